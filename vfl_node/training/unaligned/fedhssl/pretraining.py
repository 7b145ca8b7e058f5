"""``fedhssl``: the parties foretell each other's projections of aligned rows, and learn from disturbed copies of their rows.

::

    each epoch
        for each batch of aligned rows:  z →, ← z;  −cos(predictor(z), the peer's z)         between the parties
        the network as it is now is copied
        for each batch of own rows:      SimSiam + match · −cos(z of a copy, z of the row by that copied network)

Source: He et al. 2022, A Hybrid Self-Supervised Learning Framework for Vertical Federated Learning, stages 1 and 2, to which
FedAds limits it. Deviation: one bottom is the encoder between the parties and the local one, since the joint model has one.

What the peer learns: a projection of each aligned row in each epoch, as the party's defences leave it, which tells of its
columns in part. The party's own loss has the clean one.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import Dropout
from vfl_node.training.unaligned.fedhssl.spec import FedHssl
from vfl_node.training.unaligned.pretraining import PretrainedHalf, Rows
from vfl_node.training.unaligned.siamese import CrossSiamese, apart
from vfl_node.training.unaligned.ssl.pretraining import OwnRowsPretraining


class FedHsslPretraining(OwnRowsPretraining):
    """Both stages at one party."""

    def __init__(self, method: FedHssl, half: PretrainedHalf) -> None:
        self._cross = CrossSiamese(
            half.bottom, half.widths[not half.active], method.projection, half.randomness.derive("heads")
        )
        super().__init__(method, half, self._cross)
        self._weight = method.match
        self._earlier = self._cross

    async def step(self, number: int, positions: Rows) -> None:
        """As the base: stage 1."""
        self._begin()
        projected = self._cross.project(self._half.shared(positions))
        received = await self._half.exchange.swap(number, positions, projected.detach())
        self._learn(apart(self._cross.peer(projected), received))

    def end_epoch(self, epoch: int) -> None:
        """As the base: stage 2."""
        for layer in self._cross.modules():
            if isinstance(layer, Dropout):
                layer.draw_from(None)  # the copy is at rest
        self._earlier = copy.deepcopy(self._cross).eval()
        super().end_epoch(epoch)
        self._earlier = self._cross

    def _loss(self, rows: Rows, first: ModelInput, second: ModelInput) -> Tensor:
        loss = super()._loss(rows, first, second)
        if not self._weight:
            return loss
        with torch.no_grad():
            aim = self._earlier.project(self._half.own(rows))
        return loss + self._weight * apart(self._cross.project(first), aim)
