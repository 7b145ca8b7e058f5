"""``mpd``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vfl_node.computing import Network, Passes
from vfl_node.training.unaligned.methods import PretrainingMethod
from vfl_node.training.unaligned.sizes import Sizes


class MatchedPairs(PretrainingMethod):
    """FedAds' VFL-MPD: which embeddings of the two parties are of the same row (Li et al. 2022, VFed-SSD)."""

    exchanges: ClassVar[Literal["nothing", "embeddings and gradients", "projections"]] = "embeddings and gradients"
    implementation: ClassVar[str] = "vfl_node.training.unaligned.mpd.pretraining:MatchedPairsPretraining"

    hidden: int = Field(default=64, ge=1, le=65536, description="width of the hidden layer of the head that judges a pair")

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: for an aligned row one outside, and three pairs that are judged."""
        rows = self.pretrain_epochs * sizes.aligned
        head = Network(bottom=False, dense=(sizes.own + sizes.received, self.hidden, 1))
        return (
            Passes("active", Network(bottom=True), 2 * rows, sizes.batch),
            Passes("active", head, 3 * rows, sizes.batch),
            Passes("passive", Network(bottom=True), rows, sizes.batch),
        )

    def words(self) -> str:
        """As the base."""
        return "both bottoms learnt to tell matched pairs of embeddings from unmatched ones"
