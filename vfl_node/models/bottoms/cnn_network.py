"""The network of the bottom ``cnn``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import convolutions
from vfl_node.models.settings import LayerOptions


class CnnBottom(nn.Module):
    """One party's image and columns → its embedding at the cut layer.

    Args:
        colours: channels of the image.
        channels: of each convolution (:func:`vfl_node.models.layers.convolutions`).
        dense: reads the party's numeric columns, followed by what the convolutions give, and its categories.
        options: of each convolution.
    """

    def __init__(self, colours: int, channels: Sequence[int], dense: nn.Module, options: LayerOptions) -> None:
        super().__init__()
        self.convolutions = convolutions(colours, channels, options)
        self.dense = dense

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d] of the B rows."""
        found = self.convolutions(inputs.images).flatten(1)  # (B, c·h·w)
        embedding: Tensor = self.dense(replace(inputs, numeric=torch.cat([inputs.numeric, found], dim=1), images=None))
        return embedding
