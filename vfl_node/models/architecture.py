"""What every kind of split network says of itself. Light: torch is loaded only where a network is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from vfl_node.models.bottoms import BOTTOMS
from vfl_node.models.counts import dense_values, hidden_weights, linear_weights, weights
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from torch import nn


class Architecture(ABC):
    """A kind of split network; :mod:`vfl_node.models` says how to write one. Only :meth:`bottom` must be written.

    Widths of embeddings are given without their wide coordinates. Whoever overrides :meth:`fusion` overrides :meth:`top`, too,
    unless the fusion's output is as wide as all embeddings together.

    Attributes:
        version: of its parameters: names, shapes and meaning. Stored models and checkpoints of another one are refused.
    """

    version: ClassVar[int] = 1

    @abstractmethod
    def bottom(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """One party's half up to the cut layer: ModelInput of B rows → float32[B, ``sizes[-1]`` + wide].

        Args:
            schema: of the party's input.
            sizes: ``settings.bottom`` or ``settings.active_bottom``.
            settings: the job's section.
        """

    def fusion(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """What joins embeddings of these ``widths``: a list of float32[B, w] → float32[B, f]. By default side by side."""
        from vfl_node.models.networks import Concat

        return Concat()

    def top(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """The label holder's half after the fusion: float32[B, f] → float32[B, ``settings.outputs``]. By default dense layers.

        For ``missing.calibration: train`` the module needs a method ``start_at(rate)``
        (:meth:`vfl_node.models.networks.MlpTop.start_at`).
        """
        from vfl_node.models.networks import MlpTop

        return MlpTop(sum(widths), settings.top, outputs=settings.outputs, options=LayerOptions.from_job(settings))

    def bottom_weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights of a bottom; 0 where nothing is known of its input.

        By default one is built without memory for its weights (torch's ``meta`` device).
        """
        return 0 if schema.empty else weights(lambda: self.bottom(schema, sizes, settings))

    def head_weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights of fusion and top; likewise."""
        return weights(lambda: self.fusion(widths, settings)) + weights(lambda: self.top(widths, settings))

    def bottom_values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """How many numbers a row of a batch takes in a bottom, for an estimate of memory. By default as in dense layers."""
        return dense_values(schema, sizes, settings)

    def reads_images(self) -> bool:
        """Whether bottoms read :attr:`ModelInput.images <vfl_node.models.inputs.ModelInput.images>`.

        Where they do not, a party's image is as many numeric columns.
        """
        return False

    def reads_lists(self) -> bool:
        """Whether bottoms read :attr:`ModelInput.bags <vfl_node.models.inputs.ModelInput.bags>`.

        Where they do not, a table with a column of lists is refused.
        """
        return False

    def wide(self, outputs: int) -> int:
        """How many coordinates at the end of each embedding are added to the ``outputs`` logits as they are: 0, or each one.

        Only an installed package may say another number than 0: how wide an embedding is on the wire must follow from the
        job, and what one node's settings declare the other party does not know.
        """
        return 0

    def cut_width(self, sizes: Sequence[int], outputs: int = 1) -> int:
        """Width of the embedding of a bottom with layers ``sizes``."""
        return sizes[-1] + self.wide(outputs)


@dataclass(frozen=True)
class Composed(Architecture):
    """A registered bottom, below the fusion and the top that every architecture has; weights are counted without torch.

    Attributes:
        bottom_kind: name in :data:`~vfl_node.models.bottoms.BOTTOMS`.
    """

    bottom_kind: str

    @override
    def bottom(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        return BOTTOMS[self.bottom_kind].build(schema, sizes, settings)

    @override
    def bottom_weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        return BOTTOMS[self.bottom_kind].weights(schema, sizes, settings)

    @override
    def head_weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        last = settings.top[-1] if settings.top else sum(widths)
        hidden = hidden_weights(sum(widths), settings.top, LayerOptions.from_job(settings))
        return hidden + linear_weights(last, settings.outputs)

    @override
    def bottom_values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        return BOTTOMS[self.bottom_kind].values(schema, sizes, settings)

    @override
    def reads_images(self) -> bool:
        return BOTTOMS[self.bottom_kind].reads_images

    @override
    def reads_lists(self) -> bool:
        return BOTTOMS[self.bottom_kind].reads_lists

    @override
    def wide(self, outputs: int) -> int:
        return BOTTOMS[self.bottom_kind].wide(outputs)


MLP = Composed(bottom_kind="mlp")
WIDE_DEEP = Composed(bottom_kind="wide_deep")
CNN = Composed(bottom_kind="cnn")
YOUTUBE_DNN = Composed(bottom_kind="youtube_dnn")
