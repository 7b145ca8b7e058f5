"""What a peer has of a training: the rows it received, batch by batch, and the gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        gradients: float[B, d], what the active party sent and the passive one received. None: not known.
        mean_of: of how many rows' losses they are the mean; times this, a smaller last batch has the same scale. 1: of the
            summed loss.
    """

    epoch: int
    positions: NDArray[np.int64]
    rows: Tensor
    gradients: Tensor | None = None
    mean_of: int = 1


@dataclass(eq=False)
class TranscriptEpoch:
    """The steps of one epoch.

    Attributes:
        number: of the epoch.
        positions: int64[B] of each step.
        rows: float[B, w] of each step.
    """

    number: int
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)

    def sort(self) -> tuple[NDArray[np.int64], Tensor]:
        """Positions ascending, int64[k], and the row of each, float[k, w]."""
        positions = np.concatenate(self.positions)
        order = np.argsort(positions)
        return positions[order], torch.cat(self.rows)[torch.from_numpy(order)]
