"""What the rest of vfl-node asks of a defence before it runs: its keys in the settings, where it fits, its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vfl_node.configuration.models import Frozen

Direction = Literal["embeddings", "gradients", "projections"]
"""What leaves: embeddings at the passive party, gradients at the active one; and at each of them projections of its columns,
where a method of ``train.unaligned`` has some before the training with labels."""


class DefenceParams(Frozen):
    """One entry of ``defences`` in a node's settings. A subclass has the defence's own keys."""

    name: str

    @property
    def changes_nothing(self) -> bool:
        """Whether with these keys it leaves every tensor as it is."""
        return False

    @property
    def trains(self) -> bool:
        """Whether it changes the model while it is trained, and nothing of what that model sends in predictions."""
        return False

    @property
    def of_two_classes(self) -> bool:
        """Whether it protects labels of two classes only."""
        return False

    def words(self, direction: Direction) -> str:
        """What it does to what is sent, for the owner's report: a clause without a capital and a full stop."""
        raise NotImplementedError


@dataclass(frozen=True)
class DefenceSpec:
    """One defence.

    Attributes:
        params: the model of its keys.
        directions: the tensors that it can change. Of projections it is asked to ``protect`` alone.
        implementation: ``module:attribute`` of its :class:`~vfl_node.privacy.defences.defence.Defence`, loaded when it first
            runs.
    """

    params: type[DefenceParams]
    directions: frozenset[Direction]
    implementation: str
