"""SimSiam on rows of a table: a network learns that two disturbed copies of a row are the same row.

::

    a row ─┬─ copy ─► bottom ─► projector ─► z₁ ─► predictor ─► p₁ ──┐
           └─ copy ─► bottom ─► projector ─► z₂ (no gradient) ───────┴─► −cos(p₁, z₂), and the same with 1 and 2 exchanged

Of a copy some cells are those of another row of the same table, so that each column stays within its own distribution, whatever
its scale.

Source: Chen and He 2021 (SimSiam), section 3; heads as there, narrower. The disturbance is that of Bahri et al. 2022 (SCARF),
section 3; FedHSSL's code draws numbers from U(0, 1) and an unknown code instead, which fits columns scaled to 0 … 1 only.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import BatchNorm, linear
from vfl_node.training.unaligned.ssl.spec import BOTTLENECK


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
        """Of two copies of the same rows: the mean over rows and both directions, −1 … 1."""
        one, other = self.project(first), self.project(second)
        return (apart(self.predictor(one), other) + apart(self.predictor(other), one)) / 2


class CrossSiamese(Siamese):
    """As :class:`Siamese`, with a second predictor, of what the peer projects."""

    def __init__(self, bottom: nn.Module, width: int, projection: int, draws: Randomness) -> None:
        super().__init__(bottom, width, projection, draws)
        self.peer = _predictor(projection)
        initialise(self.peer, draws.derive("peer"))


def apart(predicted: Tensor, aim: Tensor) -> Tensor:
    """−cos of float32[B, p] and [B, p], the mean of the rows; no gradient flows into ``aim``."""
    return -cosine_similarity(predicted, aim.detach(), dim=1).mean()


def disturbed(rows: ModelInput, others: ModelInput, share: float, draws: Randomness) -> ModelInput:
    """A copy of ``rows`` of which about a ``share`` of the cells are ``others``'. Costs 8 bytes of the stream a cell."""

    def chosen(shape: torch.Size) -> Tensor:
        return torch.from_numpy(draws.uniform(tuple(shape)) < share).to(rows.numeric.device)

    return rows.mixed(others, chosen)


def shuffled(count: int, batch_size: int, draws: Randomness) -> list[NDArray[np.int64]]:
    """0 … count − 1 in a random order, in batches; a last one of a single row joins the one before, as norms need two."""
    order = draws.permutation(count)
    cuts = list(range(batch_size, count, batch_size))
    if cuts and count - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)


def _predictor(projection: int) -> nn.Sequential:
    hidden = max(1, projection // BOTTLENECK)
    return nn.Sequential(linear(projection, hidden), BatchNorm(hidden), nn.ReLU(), linear(hidden, projection))
