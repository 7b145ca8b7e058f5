"""The same-step twin attack: equal rows under equal weights have equal embeddings.

Two rows of one batch meet the same weights, so a copied row and its source are equal up to
rounding whenever a batch has both. Over many steps the least distance counts. The whole
epoch, which :mod:`~vfl_node.privacy.attacks.near_duplicate` compares, has more pairs, but
between steps the weights move.

Source: our own; the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.longitudinal import SMALLEST
from vfl_node.privacy.attacks.near_duplicate import nearest
from vfl_node.privacy.attacks.transcript import Batch


def distances(rows: Tensor, which: Tensor | None = None) -> Tensor:
    """The distance of each row of a batch to the nearest other one, relative to its own norm.

    Args:
        rows: float[B, d], one batch.
        which: int64[q], numbers of the rows asked for; None: all.

    Returns:
        float64[q] on the CPU, infinite in a batch of one row; about 1e-7 between exact twins, which is float32's rounding.
    """
    which = torch.arange(len(rows)) if which is None else which
    return nearest(rows, which) / rows[which].double().norm(dim=1).cpu().clamp_min(SMALLEST)


def least(transcript: Sequence[Batch], size: int) -> NDArray[np.float64]:
    """The least distance over all batches, float64[size]; NaN at a position never met."""
    found = np.full(size, np.nan)
    for batch in transcript:
        found[batch.positions] = np.fmin(found[batch.positions], distances(batch.rows).numpy())
    return found


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC of minus the least distance, at positions met at all; None if these are of one kind."""
    nearest_yet = least(transcript, len(synthetic))
    met = ~np.isnan(nearest_yet)
    return auc(synthetic[met], -nearest_yet[met])
