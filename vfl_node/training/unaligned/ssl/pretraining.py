"""``ssl``: each party alone learns what disturbed copies of its rows have in common, and nothing is sent."""

from __future__ import annotations

from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.inputs import ModelInput
from vfl_node.process import failpoints
from vfl_node.training.unaligned.pretraining import PretrainedHalf, Pretraining, Rows
from vfl_node.training.unaligned.siamese import Siamese, disturbed, shuffled
from vfl_node.training.unaligned.ssl.spec import SiameseMethod


class OwnRowsPretraining(Pretraining):
    """SimSiam on all own rows that may be learnt from, at the end of each epoch.

    Cost: an epoch computes each own row twice, forward and backward.
    """

    def __init__(self, method: SiameseMethod, half: PretrainedHalf, siamese: Siamese) -> None:
        super().__init__(method, half, siamese.to(half.device))
        self._siamese, self._method = siamese, method

    def end_epoch(self, epoch: int) -> None:
        """As the base."""
        half, draws = self._half, self._half.randomness.derive(f"copies/{epoch}")
        for rows in shuffled(half.rows, half.batch_size, half.randomness.derive(f"order/{epoch}")):
            failpoints.reach("pretrain")
            self._begin()
            self._learn(self._loss(rows, self._copy(rows, draws), self._copy(rows, draws)))
        super().end_epoch(epoch)

    def _copy(self, rows: Rows, draws: Randomness) -> ModelInput:
        others = self._half.own(draws.choices(self._half.rows, len(rows)))
        return disturbed(self._half.own(rows), others, self._method.replaced, draws)

    def _loss(self, rows: Rows, first: ModelInput, second: ModelInput) -> Tensor:
        """Of two copies of the own ``rows``."""
        return self._siamese.loss(first, second)


class SelfSupervisedPretraining(OwnRowsPretraining):
    """SS-VFL: Castiglia et al. 2022, with SimSiam in place of MoCo, which is for images; then the training goes on as ever."""

    def __init__(self, method: SiameseMethod, half: PretrainedHalf) -> None:
        heads = half.randomness.derive("heads")
        super().__init__(method, half, Siamese(half.bottom, half.widths[not half.active], method.projection, heads))
