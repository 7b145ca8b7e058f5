"""The longitudinal attack: a synthetic row that is drawn anew each epoch jumps, a real one drifts.

Against features redrawn each epoch it reached AUC .86, .93 and 1.00 after 2, 3 and 10 epochs
where the attack of one batch stayed at chance; against one fixed draw it stayed at .50.

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.transcript import Batch, by_epoch

SMALLEST = 1e-300
"""Norm below which a row has no direction; gradients of rows that are predicted well are tiny and still have one."""


def scores(rows: Tensor) -> Tensor:
    """Mean change, 1 − cosine, of each position's row between consecutive epochs.

    Args:
        rows: float[E, k, d], E ≥ 2 epochs of the same k positions.

    Returns:
        float64[k] in 0 … 2; larger: more likely synthetic.
    """
    return change(rows[:-1], rows[1:]).mean(dim=0)


def change(before: Tensor, after: Tensor) -> Tensor:
    """1 − cosine between rows, float[…, d] → float64[…]. Two zero rows are no change."""
    before, after = (normalize(rows.double(), dim=-1, eps=SMALLEST) for rows in (before, after))
    still = (before == after).all(dim=-1)  # also two zero rows, which have no cosine
    return (1 - (before * after).sum(dim=-1)).masked_fill(still, 0.0)


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC over the positions met in every epoch; None before the second epoch or if all are of one kind."""
    positions, rows = by_epoch(transcript)
    if len(rows) < 2:
        return None
    return auc(synthetic[positions], scores(rows).numpy())
