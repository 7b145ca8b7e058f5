"""``jpl``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vfl_node.computing import ROWS_AT_ONCE, Network, Passes
from vfl_node.training.unaligned.methods import FillingMethod
from vfl_node.training.unaligned.sizes import Sizes

BATCH = 256
"""Rows of an update of its network."""


class JointPrivilegedLearning(FillingMethod):
    """A network from the own columns to the passive party's embedding (Li et al., joint privileged learning)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.jpl.filler:JointPrivilegedFiller"

    hidden: int = Field(default=64, ge=1, le=65536, description="width of the hidden layer above a bottom like the own one")
    updates: int = Field(default=1000, ge=1, le=10_000_000, description="training steps of the network")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, allow_inf_nan=False, description="of its Adam")

    def filling(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: its network and the joint model above it learn; then each row outside passes."""
        network = Network(bottom=True, dense=(sizes.own, self.hidden, sizes.received))
        updates = BATCH * self.updates
        return (
            Passes("active", network, updates, BATCH),
            Passes("active", Network(bottom=False, dense=sizes.above), updates, BATCH),
            Passes("active", network, sizes.outside, ROWS_AT_ONCE, learns=False),
        )

    def words(self) -> str:
        """As the base."""
        return "one that a network makes of its columns, trained on the aligned rows' embeddings and labels"
