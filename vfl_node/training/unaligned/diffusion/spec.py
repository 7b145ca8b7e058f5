"""``diffusion``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vfl_node.computing import ROWS_AT_ONCE, Network, Passes
from vfl_node.training.unaligned.methods import FillingMethod
from vfl_node.training.unaligned.sizes import Sizes

TIME_WIDTH = 8
"""Sines and cosines that tell the network t."""

BATCH = 256
"""Rows of an update of its network."""

BLOCK = 4096
"""Rows of the table that are drawn together."""


class Diffusion(FillingMethod):
    """FedAds' Diffu-AT: a conditional diffusion model of the passive party's embeddings (section 4.1, eq. 6-8)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.diffusion.filler:DiffusionFiller"

    steps: int = Field(default=1000, ge=2, le=10_000, description="T: steps from an embedding to noise")
    sampler: Literal["ddim", "ddpm"] = Field(
        default="ddim", description="how noise becomes an embedding: ddim by some of the steps, ddpm by all of them"
    )
    sampler_steps: int = Field(
        default=50, ge=2, le=10_000, description="ddim: about how many of the steps; all, if there are fewer"
    )
    hidden: int = Field(default=128, ge=1, le=65536, description="width of its two hidden layers")
    updates: int = Field(default=2000, ge=1, le=10_000_000, description="training steps of the denoising network")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, allow_inf_nan=False, description="its first one; it falls to 0")

    @model_validator(mode="after")
    def _sampler_has_its_steps(self) -> Diffusion:
        if self.sampler != "ddim" and self.sampler_steps != type(self).model_fields["sampler_steps"].default:
            raise ValueError("sampler_steps is for sampler: ddim; ddpm takes all steps. Leave it out")
        return self

    @property
    def places(self) -> list[int]:
        """The steps from noise to an embedding, last one first: those of ddim lie the closer, the less noise is left.

        Some of ``sampler_steps`` may fall on the same step, and count once.
        """
        count, last = self.sampler_steps, self.steps - 1
        if self.sampler != "ddim" or count >= self.steps:
            return list(range(last, -1, -1))
        return sorted({round(last * (place / (count - 1)) ** 2) for place in range(count)} | {last}, reverse=True)

    @property
    def taken(self) -> int:
        """How many :attr:`places` there are."""
        return len(self.places)

    def filling(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: blocks of the table are drawn whole, the aligned rows in them included."""
        condition = sizes.own + sizes.outputs
        network = Network(
            bottom=False, dense=(sizes.received + condition + TIME_WIDTH, self.hidden, self.hidden, sizes.received)
        )
        return (
            Passes("active", network, BATCH * self.updates, BATCH),
            Passes("active", network, self.taken * (sizes.outside + sizes.aligned), BLOCK, learns=False),
            Passes("active", Network(bottom=True), sizes.outside, ROWS_AT_ONCE, learns=False),
        )

    def words(self) -> str:
        """As the base."""
        return (
            "one drawn by a diffusion model of the aligned rows' embeddings, given label and own embedding "
            f"({self.taken} steps)"
        )
