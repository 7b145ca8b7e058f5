"""Learning from disturbed copies: ``ssl`` at each party alone, ``fedhssl`` between the parties, too."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import BatchNorm, Dropout, linear
from vfl_node.process import failpoints
from vfl_node.training.unaligned.pretraining import PretrainedHalf, Pretraining, Rows
from vfl_node.training.unaligned.specs import BOTTLENECK, FedHssl, SiameseMethod


class OwnRowsPretraining(Pretraining):
    """SimSiam on all own rows that may be learnt from, at the end of each epoch.

    Cost: an epoch computes each own row twice, forward and backward.
    """

    def __init__(self, method: SiameseMethod, half: PretrainedHalf, siamese: Siamese) -> None:
        super().__init__(method, half, siamese.to(half.device))
        self._siamese, self._method = siamese, method

    @override
    def end_epoch(self, epoch: int) -> None:
        half, draws = self._half, self._half.randomness.derive(f"copies/{epoch}")
        for rows in shuffle_batches(half.rows, half.batch_size, half.randomness.derive(f"order/{epoch}")):
            failpoints.reach("pretrain")
            self._begin()
            self._learn(self._loss(rows, self._copy(rows, draws), self._copy(rows, draws)))
        super().end_epoch(epoch)

    def _copy(self, rows: Rows, draws: Randomness) -> ModelInput:
        others = self._half.own(draws.choices(self._half.rows, len(rows)))
        return disturb(self._half.own(rows), others, self._method.replaced, draws)

    def _loss(self, rows: Rows, first: ModelInput, second: ModelInput) -> Tensor:
        """Loss of two copies of the own ``rows``."""
        return self._siamese.loss(first, second)


class SelfSupervisedPretraining(OwnRowsPretraining):
    """SS-VFL: Castiglia et al. 2022, with SimSiam in place of MoCo, which is for images; then the training goes on as ever."""

    def __init__(self, method: SiameseMethod, half: PretrainedHalf) -> None:
        heads = half.randomness.derive("heads")
        super().__init__(method, half, Siamese(half.bottom, half.widths[not half.active], method.projection, heads))


# ``fedhssl``: the parties foretell each other's projections of aligned rows, and learn from disturbed copies of their rows.
#
# ::
#
#     each epoch
#         for each batch of aligned rows:  z →, ← z;  −cos(predictor(z), the peer's z)         between the parties
#         the network as it is now is copied
#         for each batch of own rows:      SimSiam + match · −cos(z of a copy, z of the row by that copied network)
#
# Source: He et al. 2022, A Hybrid Self-Supervised Learning Framework for Vertical Federated Learning, stages 1 and 2, to which
# FedAds limits it. Deviation: one bottom is the encoder between the parties and the local one, since the joint model has one.
#
# What the peer learns: a projection of each aligned row in each epoch, as the party's defences leave it, which tells of its
# columns in part. The party's own loss has the clean one.


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
        self._learn(negative_cosine(self._cross.peer(projected), received))

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
        return loss + self._weight * negative_cosine(self._cross.project(first), aim)


# SimSiam on rows of a table: a network learns that two disturbed copies of a row are the same row.
#
# ::
#
#     a row ─┬─ copy ─► bottom ─► projector ─► z₁ ─► predictor ─► p₁ ──┐
#            └─ copy ─► bottom ─► projector ─► z₂ (no gradient) ───────┴─► −cos(p₁, z₂), and the same with 1 and 2 exchanged
#
# Of a copy some cells are those of another row of the same table, so that each column stays within its own distribution,
# whatever its scale.
#
# Source: Chen and He 2021 (SimSiam), section 3; heads as there, narrower. The disturbance is that of Bahri et al. 2022 (SCARF),
# section 3; FedHSSL's code draws numbers from U(0, 1) and an unknown code instead, which fits columns scaled to 0 … 1 only.


class Siamese(nn.Module):
    """A bottom with its heads. The heads are initialised, the bottom is not touched.

    Args:
        bottom: the network that learns.
        width: that it gives.
        projection: width of z and p.
        draws: of the heads' weights.
    """

    def __init__(self, bottom: nn.Module, width: int, projection: int, draws: Randomness) -> None:
        super().__init__()
        self.projector = nn.Sequential(
            linear(width, projection), BatchNorm(projection), nn.ReLU(), linear(projection, projection), BatchNorm(projection)
        )
        self.predictor = _predictor(projection)
        initialise(self.projector, draws.derive("projector"))
        initialise(self.predictor, draws.derive("predictor"))
        self.bottom = bottom

    def project(self, inputs: ModelInput) -> Tensor:
        """z, float32[B, projection]."""
        projected: Tensor = self.projector(self.bottom(inputs))
        return projected

    def loss(self, first: ModelInput, second: ModelInput) -> Tensor:
        """Loss of two copies of the same rows: the mean over rows and both directions, −1 … 1."""
        one, other = self.project(first), self.project(second)
        return (negative_cosine(self.predictor(one), other) + negative_cosine(self.predictor(other), one)) / 2


class CrossSiamese(Siamese):
    """As :class:`Siamese`, with a second predictor, of what the peer projects."""

    def __init__(self, bottom: nn.Module, width: int, projection: int, draws: Randomness) -> None:
        super().__init__(bottom, width, projection, draws)
        self.peer = _predictor(projection)
        initialise(self.peer, draws.derive("peer"))


def negative_cosine(predicted: Tensor, aim: Tensor) -> Tensor:
    """−cos of float32[B, p] and [B, p], the mean of the rows; no gradient flows into ``aim``."""
    return -cosine_similarity(predicted, aim.detach(), dim=1).mean()


def disturb(rows: ModelInput, others: ModelInput, share: float, draws: Randomness) -> ModelInput:
    """A copy of ``rows`` of which about a ``share`` of the cells are ``others``'. Costs 8 bytes of the stream a cell."""

    def choose(shape: torch.Size) -> Tensor:
        return torch.from_numpy(draws.uniform(tuple(shape)) < share).to(rows.numeric.device)

    return rows.mix(others, choose)


def shuffle_batches(count: int, batch_size: int, draws: Randomness) -> list[NDArray[np.int64]]:
    """0 … count − 1 in a random order, in batches; a last one of a single row joins the one before, as norms need two."""
    order = draws.permutation(count)
    cuts = list(range(batch_size, count, batch_size))
    if cuts and count - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)


def _predictor(projection: int) -> nn.Sequential:
    hidden = max(1, projection // BOTTLENECK)
    return nn.Sequential(linear(projection, hidden), BatchNorm(hidden), nn.ReLU(), linear(hidden, projection))
