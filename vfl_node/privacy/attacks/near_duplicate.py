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
    """Minus the distance of each row to the nearest other one, by :func:`nearest`.

    Args:
        rows: float[k, d], one epoch.

    Returns:
        float64[k]; larger: more likely synthetic.
    """
    return -nearest(rows, torch.arange(len(rows)))


def nearest(rows: Tensor, which: Tensor) -> Tensor:
    """The Euclidean distance of each of the rows ``which`` to the nearest other row.

    The nearest is sought in the rows' own precision, where one of several nearly equally near
    may win; the distance to it is exact to float64, since that of twins is a difference of
    large numbers.

    Args:
        rows: float[k, d].
        which: int64[q], numbers of rows.

    Returns:
        float64[q] on the CPU; infinite if there is no other row.

    Cost: q·k·d multiplications.
    """
    if len(rows) < 2:
        return torch.full((len(which),), torch.inf, dtype=torch.float64)
    half_norms = rows.norm(dim=1).square() / 2  # (k,)
    found = []
    for asked in torch.split(which.to(rows.device), ROWS_AT_ONCE):
        # ‖q − r‖²/2 less ‖q‖²/2, which does not change the order
        distances = torch.addmm(half_norms[None], rows[asked], rows.mT, alpha=-1)  # (q, k)
        distances.scatter_(1, asked[:, None], torch.inf)  # not itself
        found.append((rows[asked].double() - rows[distances.argmin(dim=1)].double()).norm(dim=1).cpu())
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC of the mean over epochs, at positions met in every epoch; None if fewer than two or all of one kind."""
    positions, rows = by_epoch(transcript)
    if len(positions) < 2:
        return None
    return auc(synthetic[positions], torch.stack([scores(epoch) for epoch in rows]).mean(dim=0).numpy())
