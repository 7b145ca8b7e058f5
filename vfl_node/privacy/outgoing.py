"""What leaves a party in training, and who looks at it on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sent:
    """One step of training, as the peer sees it.

    Attributes:
        positions: int64[B], shared positions of the batch.
        rows: float32[B, d], what the peer received: embeddings, or gradients; not changed afterwards.
        gradients: float32[B, d], gradients of the batch's mean loss that crossed in this step; not changed afterwards.
    """

    positions: NDArray[np.int64]
    rows: Tensor
    gradients: Tensor


class Observer(Protocol):
    """Sees each tensor where it leaves, and changes none."""

    def see(self, sent: Sent) -> None:
        """Look at a step of training, once it is over."""

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        """Look at held-out rows, int64[n] and float32[n, d], before the first of them leaves.

        Raises:
            PolicyError: they must not leave.
        """
