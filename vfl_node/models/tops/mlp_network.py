"""The network of the top ``mlp``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfl_node.models.layers import dense, linear


class MlpTop(nn.Module):
    """Fused embeddings → one logit a row, or K.

    Args:
        width: of what the fusion gives.
        sizes: widths of the hidden layers; none makes a linear top.
        outputs: logits a row.
    """

    def __init__(self, width: int, sizes: Sequence[int], *, outputs: int = 1) -> None:
        super().__init__()
        self.layers = dense(width, sizes)
        self.output = linear(sizes[-1] if sizes else width, outputs)

    def start_at(self, rate: float) -> None:
        """Let the first probabilities of two classes be about ``rate``, above 0 and below 1 (Lin et al. 2017)."""
        with torch.no_grad():
            self.output.bias.fill_(math.log(rate / (1 - rate)))

    def forward(self, fused: Tensor) -> Tensor:
        """Logits float32[B, outputs] of float32[B, width]."""
        return self.output(self.layers(fused))
