"""The same-step twin attack: equal rows under equal weights have equal embeddings.

Two rows of one batch meet the same weights, so a copied row and its source are equal up to
rounding whenever a batch has both, and the same holds for all rows that are held out or
predicted. In how many batches a row met its equal is what counts: a copy meets its source
beside other copies, a source other copies only.

Source: our own; the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.transcript import Batch

EXACT = 1e-5
"""Distance of equal rows relative to their norm, at most: float32 rounds at about 1e-7."""

ROWS_AT_ONCE = 1024


def twins(rows: Tensor) -> NDArray[np.bool_]:
    """Which rows of a batch, float[B, d], are equal to another one of it up to rounding: bool[B].

    Cost: B²·d multiplications.
    """
    rows = rows.double().cpu()
    found = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        asked = rows[start : start + ROWS_AT_ONCE]
        distances = torch.cdist(asked, rows)
        own = torch.arange(len(asked))
        distances[own, start + own] = torch.inf
        found.append(distances.amin(dim=1) <= EXACT * asked.norm(dim=1))
    return torch.cat(found).numpy() if found else np.zeros(0, dtype=np.bool_)


def counted(transcript: Sequence[Batch], size: int) -> NDArray[np.float64]:
    """In how many batches each position had a twin, float64[size]; NaN at one never met."""
    found = np.full(size, np.nan)
    for batch in transcript:
        found[batch.positions] = np.nan_to_num(found[batch.positions]) + twins(batch.rows)
    return found


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """AUC of the count, at positions met at all; None if these are of one kind."""
    equals = counted(transcript, len(synthetic))
    met = ~np.isnan(equals)
    return auc(synthetic[met], equals[met])
