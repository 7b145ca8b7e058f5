"""What a trainer's settings must say for networks and optimisers to be built. Light: this module does not load torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class NetworkSettings(Protocol):
    """The part of a job's ``train`` section that networks and optimisers read (:class:`vfl_node.job.Train` has it).

    All sizes are widths of layers. The last one of a bottom is the width of its embedding.
    """

    @property
    def model(self) -> str:
        """Name of the architecture."""

    @property
    def bottom(self) -> Sequence[int]:
        """Sizes of the passive party's bottom; at least one."""

    @property
    def active_bottom(self) -> Sequence[int]:
        """Sizes of the active party's bottom; at least one."""

    @property
    def top(self) -> Sequence[int]:
        """Sizes of the top's hidden layers; none makes it linear."""

    @property
    def embedding_size(self) -> int:
        """Width of an embedded category."""

    @property
    def outputs(self) -> int:
        """Logits a row: one for two classes, else one a class."""

    @property
    def learning_rate(self) -> float:
        """Of the optimiser."""
