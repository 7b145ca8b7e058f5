"""The row-loss attack: a synthetic row's features do not fit its label, so its gradient is long.

A copied row's label has nothing to do with its columns, nor has a synthetic label with the
real columns beside it. What a row's loss is follows from its gradient's norm, which both
parties know of every row.

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.attacks.attack import EpochAttack, Positions
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch


def scores(gradients: Tensor) -> Tensor:
    """The norm of each row, float[B, d] → float64[B] on the CPU; larger: more likely synthetic."""
    return gradients.double().norm(dim=1).cpu()


class RowLoss(EpochAttack):
    """AUC of the mean over steps, at positions met at all."""

    title = "row loss"
    reading = "how large a row's gradient is"
    needs = frozenset({"gradients"})

    def see(self, batch: Batch) -> None:
        """As :meth:`~vfl_node.privacy.attacks.attack.Attack.see`; a step without gradients is passed over."""
        if batch.gradients is not None:
            super().see(batch)

    def _gather(self, batch: Batch) -> tuple[Positions, Tensor]:
        followed = self._scope.alone(batch)
        assert followed.gradients is not None
        return followed.positions, followed.gradients * followed.mean_of

    def _judge(self, epoch: TranscriptEpoch) -> None:
        self._tally.add(np.concatenate(epoch.positions), scores(torch.cat(epoch.rows)).numpy())

    @property
    def _known(self) -> NDArray[np.bool_]:
        return self._tally.counts > 0
