"""``ssl``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vfl_node.computing import Network, Passes
from vfl_node.training.unaligned.methods import PretrainingMethod
from vfl_node.training.unaligned.sizes import Sizes

BOTTLENECK = 4
"""How much narrower the hidden layer of a predictor is."""


class SiameseMethod(PretrainingMethod):
    """A method in which a party's bottom learns that two disturbed copies of a row are the same row (SimSiam)."""

    projection: int = Field(default=64, ge=4, le=8192, description="width of what is compared, made by a head above the bottom")
    replaced: float = Field(
        default=0.3, gt=0, lt=1, description="share of a row's cells that stand in a copy as another row of the table has them"
    )

    @property
    def own_copies(self) -> int:
        """How often an own row goes through the network in an epoch."""
        return 2

    def head(self, width: int) -> Network:
        """A bottom that gives ``width``, with the heads above it."""
        return Network(
            bottom=True, dense=(width, self.projection, self.projection, self.projection // BOTTLENECK, self.projection)
        )

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: copies of each own row, at both parties."""
        times = self.pretrain_epochs * self.own_copies
        return (
            Passes("active", self.head(sizes.own), times * (sizes.outside + sizes.aligned), sizes.batch),
            Passes("passive", self.head(sizes.received), times * sizes.passive, sizes.batch),
        )


class SelfSupervised(SiameseMethod):
    """FedAds' SS-VFL: each party alone (Castiglia et al. 2022, SS-VFL-C)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.ssl.pretraining:SelfSupervisedPretraining"

    def words(self) -> str:
        """As the base."""
        return "each party's bottom learnt by itself what the disturbed copies of a row have in common"
