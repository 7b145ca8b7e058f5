"""What a party's half does with rows outside of the alignment: nothing, unless a subclass says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class UnusedRows:
    """Of a passive party, and of an active one whose job does not use them."""

    def epoch_begins(self, epoch: int, batches: int) -> None:
        """Make ready for epoch ``epoch``, from 0, of so many federated batches."""

    def loss_beside(self, positions: NDArray[np.int64], own: Tensor, received: Tensor, targets: Tensor) -> Tensor | None:
        """What the federated batch at ``positions`` is to lessen beside its loss.

        Args:
            positions: shared, int64[B].
            own: h_L, float32[B, d'].
            received: h_N, float32[B, d].
            targets: of the batch, as the loss reads them.
        """
        return None

    def saw(self, positions: NDArray[np.int64], received: Sequence[Tensor]) -> None:
        """Note embeddings of the shared ``positions``, received for a federated batch: float32[B, d] of each passive party."""

    def step_done(self) -> None:
        """Train on what is due after a federated batch."""

    def epoch_ends(self) -> None:
        """Do what is due after the last federated batch of the epoch; nothing is sent."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold."""
        return {}

    def report(self) -> Mapping[str, Any] | None:
        """What was done so far, as JSON; None where nothing is to be done."""
        return None
