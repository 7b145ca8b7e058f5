"""What a peer keeps of a training: the rows it received, batch by batch, and the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """One training step as its receiver sees it.

    Attributes:
        epoch: number of the epoch.
        positions: int64[B], shared positions, each once an epoch.
        rows: float[B, d], embeddings or gradients, as received.
        gradients: float[B, d] of the batch's *summed* loss, so that a smaller last batch has the
            same scale: what the active party sent and the passive one received. None: not kept.
    """

    epoch: int
    positions: NDArray[np.int64]
    rows: Tensor
    gradients: Tensor | None = None


def by_epoch(transcript: Sequence[Batch]) -> tuple[NDArray[np.int64], Tensor]:
    """Positions met in every epoch, int64[k], and their rows, float[E, k, d], epochs in order."""
    if not transcript:
        return np.empty(0, dtype=np.int64), torch.empty(0, 0, 0)
    epochs = []
    for epoch in sorted({batch.epoch for batch in transcript}):
        batches = [batch for batch in transcript if batch.epoch == epoch]
        positions = np.concatenate([batch.positions for batch in batches])
        epochs.append((positions, torch.cat([batch.rows for batch in batches])))
    common = reduce(np.intersect1d, [positions for positions, _ in epochs])
    rows = []
    for positions, received in epochs:
        order = np.argsort(positions)
        rows.append(received[torch.from_numpy(order[np.searchsorted(positions, common, sorter=order)])])
    return common, torch.stack(rows)
