"""Dense layers of the sizes ``train.top``, and a linear one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfl_node.models.counts import hidden_weights, linear_weights
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from vfl_node.models.tops.mlp_network import MlpTop


class MlpTopKind:
    """A :class:`~vfl_node.models.tops.TopKind` of dense layers."""

    def weights(self, width: int, settings: NetworkSettings) -> int:
        """As :meth:`TopKind.weights`."""
        last = settings.top[-1] if settings.top else width
        return hidden_weights(width, settings.top, LayerOptions.of(settings)) + linear_weights(last, settings.outputs)

    def build(self, width: int, settings: NetworkSettings) -> MlpTop:
        """As :meth:`TopKind.build`."""
        from vfl_node.models.tops.mlp_network import MlpTop

        return MlpTop(width, settings.top, outputs=settings.outputs, options=LayerOptions.of(settings))


MLP = MlpTopKind()
