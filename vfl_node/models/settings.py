"""What a job must say for networks and optimisers to be built. Light: this module does not load torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from vfl_node.configuration.models import text_like

ModelName = Annotated[
    str,
    text_like(
        r"^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$",
        "a name: 1 to 63 small letters, digits, underscores and hyphens that begin and end with a letter or digit",
    ),
]
"""Name of an architecture."""

ModelPlace = Annotated[str, text_like(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a class in it, such as mymodels:Gated")]
"""``module:Class`` of an owner's own architecture."""


class NetworkSettings(Protocol):
    """The part of a job's ``train`` section that networks and optimisers read.

    A :class:`~vfl_node.training.network.config.NetworkConfig` has all of it.

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
    def batch_norm(self) -> bool:
        """Whether each hidden layer is normalised over the batch (:class:`vfl_node.models.layers.BatchNorm`)."""

    @property
    def layer_norm(self) -> bool:
        """Whether each hidden layer is normalised within the row."""

    @property
    def dropout(self) -> float:
        """Share of the numbers of each hidden layer that a training step sets to 0."""

    @property
    def learning_rate(self) -> float:
        """Learning rate of the optimiser."""

    @property
    def weight_decay(self) -> float:
        """What the optimiser adds to each weight's gradient, in units of the weight."""

    @property
    def clip(self) -> float | None:
        """Largest norm of the gradient of all weights of one party's half; None: any."""


@dataclass(frozen=True)
class LayerOptions:
    """What follows the linear part of a hidden layer: a norm or none, ReLU, dropout or none.

    Attributes:
        batch_norm: as :attr:`NetworkSettings.batch_norm`.
        layer_norm: as :attr:`NetworkSettings.layer_norm`.
        dropout: as :attr:`NetworkSettings.dropout`.
    """

    batch_norm: bool = False
    layer_norm: bool = False
    dropout: float = 0.0

    @classmethod
    def from_job(cls, settings: NetworkSettings) -> LayerOptions:
        """The options of a job."""
        return cls(settings.batch_norm, settings.layer_norm, settings.dropout)

    @property
    def norm_weights(self) -> int:
        """Weights that a norm has for each unit of its layer: a scale and an offset each."""
        return 2 * (self.batch_norm + self.layer_norm)

    @property
    def values(self) -> int:
        """Numbers that a row takes in memory for each unit: of the linear part, of a norm, of dropout's mask and result."""
        return 1 + self.batch_norm + self.layer_norm + 2 * (self.dropout > 0)


PLAIN = LayerOptions()
