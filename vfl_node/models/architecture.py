"""What every kind of split network says of itself. Light: torch is loaded only where a network is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vfl_node.models.bottoms import BOTTOMS
from vfl_node.models.fusions import FUSIONS
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings
from vfl_node.models.tops import TOPS

if TYPE_CHECKING:
    from torch import nn


class Architecture(ABC):
    """A kind of split network; :mod:`vfl_node.models` says how to write one.

    Modules come without initial weights: the trainer draws these from the party's own randomness.
    """

    @abstractmethod
    def wide(self, outputs: int) -> int:
        """How many coordinates at the end of each embedding are added to the ``outputs`` logits as they are: 0, or each one."""

    @abstractmethod
    def bottom(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """One party's half up to the cut layer: ModelInput of B rows → float32[B, ``sizes[-1]`` + wide]."""

    @abstractmethod
    def fusion(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """What joins embeddings of these ``widths``, wide coordinates left out: a list of float32[B, w] → float32[B, f]."""

    @abstractmethod
    def top(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """The label holder's half after the fusion of embeddings of these ``widths``: float32[B, f] → float32[B, outputs]."""

    @abstractmethod
    def bottom_weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights of a bottom."""

    @abstractmethod
    def head_weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights of fusion and top over embeddings of these ``widths``, wide coordinates left out."""

    def cut_width(self, sizes: Sequence[int], outputs: int = 1) -> int:
        """Width of the embedding of a bottom with layers ``sizes``."""
        return sizes[-1] + self.wide(outputs)


@dataclass(frozen=True)
class Composed(Architecture):
    """One of the registered bottoms, fusions and tops each; their weights are counted without torch.

    Attributes:
        bottom_kind: name in :data:`~vfl_node.models.bottoms.BOTTOMS`.
        fusion_kind: name in :data:`~vfl_node.models.fusions.FUSIONS`.
        top_kind: name in :data:`~vfl_node.models.tops.TOPS`.
    """

    bottom_kind: str
    fusion_kind: str = "concat"
    top_kind: str = "mlp"

    def wide(self, outputs: int) -> int:
        """As :meth:`Architecture.wide`."""
        return BOTTOMS[self.bottom_kind].wide(outputs)

    def bottom(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """As :meth:`Architecture.bottom`."""
        return BOTTOMS[self.bottom_kind].build(schema, sizes, settings)

    def fusion(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """As :meth:`Architecture.fusion`."""
        return FUSIONS[self.fusion_kind].build(widths, settings)

    def top(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """As :meth:`Architecture.top`."""
        return TOPS[self.top_kind].build(FUSIONS[self.fusion_kind].width(widths, settings), settings)

    def bottom_weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`Architecture.bottom_weights`."""
        return BOTTOMS[self.bottom_kind].weights(schema, sizes, settings)

    def head_weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`Architecture.head_weights`."""
        fusion, top = FUSIONS[self.fusion_kind], TOPS[self.top_kind]
        return fusion.weights(widths, settings) + top.weights(fusion.width(widths, settings), settings)


MLP = Composed(bottom_kind="mlp")
WIDE_DEEP = Composed(bottom_kind="wide_deep")
