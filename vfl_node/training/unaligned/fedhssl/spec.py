"""``fedhssl``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vfl_node.computing import Passes
from vfl_node.training.unaligned.sizes import Sizes
from vfl_node.training.unaligned.ssl.spec import SiameseMethod


class FedHssl(SiameseMethod):
    """FedAds' FedHSSL: self-supervision between the parties, and at each of them (He et al. 2022)."""

    allowed_by_default: ClassVar[bool] = False
    exchanges: ClassVar[Literal["nothing", "embeddings and gradients", "projections"]] = "projections"
    implementation: ClassVar[str] = "vfl_node.training.unaligned.fedhssl.pretraining:FedHsslPretraining"

    match: float = Field(
        default=0.5,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="weight of the loss that holds a disturbed copy to what the bottom learnt between the parties",
    )

    def exchanged_width(self, embedding: int) -> int:
        """As the base."""
        return self.projection

    @property
    def own_copies(self) -> int:
        """As the base; one more is held to what was learnt between the parties, by a network that does not learn."""
        return 3 if self.match else 2

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base, and each aligned row once at each party, between them."""
        aligned = self.pretrain_epochs * sizes.aligned
        parties = (
            Passes("active", self.head(sizes.own), aligned, sizes.batch),
            Passes("passive", self.head(sizes.received), aligned, sizes.batch),
        )
        return (*super().work(sizes), *parties)

    def words(self) -> str:
        """As the base."""
        return "both bottoms learnt to foretell each other's projections of aligned rows, and their own of disturbed copies"
