"""The row-loss attack: a synthetic row's features do not fit its label, so its gradient is long.

A copied row's label has nothing to do with its columns, nor has a synthetic label with the
real columns beside it. What a row's loss is follows from its gradient's norm, which both
parties know of every row.

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.transcript import Batch


def scores(gradients: Tensor) -> Tensor:
    """The norm of each row, float[B, d] → float64[B] on the CPU; larger: more likely synthetic."""
    return gradients.double().norm(dim=1).cpu()


def average(transcript: Sequence[Batch], size: int) -> NDArray[np.float64]:
    """The mean over batches of each position's score, float64[size]; NaN at one never met or without gradients."""
    total, count = np.zeros(size), np.zeros(size)
    for batch in transcript:
        if batch.gradients is not None:
            total[batch.positions] += scores(batch.gradients).numpy()
            count[batch.positions] += 1
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC of the mean over epochs; None if there are no gradients or all rows are of one kind."""
    losses = average(transcript, len(synthetic))
    met = ~np.isnan(losses)
    return auc(synthetic[met], losses[met])
