"""The network of the top ``mlp``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfl_node.models.layers import hidden, linear
from vfl_node.models.settings import PLAIN, LayerOptions


class MlpTop(nn.Module):
    """Fused embeddings → one logit a row, or K.

    Args:
        width: of what the fusion gives.
        sizes: widths of the hidden layers; none makes a linear top.
        outputs: logits a row.
        options: of each hidden layer.
    """

    def __init__(self, width: int, sizes: Sequence[int], *, outputs: int = 1, options: LayerOptions = PLAIN) -> None:
        super().__init__()
        self.layers = hidden(width, sizes, options)
        self.output = linear(sizes[-1] if sizes else width, outputs)

    def start_at(self, rate: float) -> None:
        """Let the first probabilities of two classes be about ``rate``, above 0 and below 1 (Lin et al. 2017)."""
        with torch.no_grad():
            self.output.bias.fill_(math.log(rate / (1 - rate)))

    def forward(self, fused: Tensor) -> Tensor:
        """Logits float32[B, outputs] of float32[B, width]."""
        return self.output(self.layers(fused))
