"""The near-duplicate attack: a synthetic row that copies a real one has a twin in the same epoch.

The twin of a copied row is its source, and the source scores as high, so the attack is worth
more the fewer of the rows are sources. It works even if each copy is drawn once only
(AUC .72–.77 with continuous features).

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.transcript import Batch, by_epoch

ROWS_AT_ONCE = 1024


def scores(rows: Tensor) -> Tensor:
    """Minus the Euclidean distance of each row to the nearest other one.

    Args:
        rows: float[k, d], one epoch.

    Returns:
        float64[k]; larger: more likely synthetic.

    Cost: k²·d multiplications.
    """
    rows = rows.double()  # distances of near twins are differences of large numbers
    nearest = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        distances = torch.cdist(rows[start : start + ROWS_AT_ONCE], rows)  # (b, k)
        distances.diagonal(start).fill_(torch.inf)  # not itself
        nearest.append(distances.amin(dim=1))
    return -torch.cat(nearest)


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC of the mean over epochs, at positions met in every epoch; None if fewer than two or all of one kind."""
    positions, rows = by_epoch(transcript)
    if len(positions) < 2:
        return None
    return auc(synthetic[positions], torch.stack([scores(epoch) for epoch in rows]).mean(dim=0).numpy())
