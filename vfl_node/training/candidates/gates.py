"""The gates of FedSim, all at the active party: they turn K pairs of a row into one prediction.

Symbols: K candidates, l what the local network gives of a pair (l_m in the paper), s scaled similarities, C logits a row.

Source: FedSim (arXiv 2106.06312), section 4.4, Algorithm 1 and figure 5; sizes as in its appendix C and its code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.models.layers import Dropout, allocate, hidden_layers, linear
from vfl_node.models.settings import LayerOptions

FLOOR = 1e-7
"""Least weight of a candidate, as in the code: a weighted mean has a weight to divide by."""


class SimilarityScale(nn.Module):
    """Similarities in standard deviations from their mean, of those of the rows trained on. Both stay at the active party.

    Args:
        similarities: float32[n, K] of the rows trained on; 0 where there is no candidate, which does not count.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, similarities: NDArray[np.float32]) -> None:
        super().__init__()
        known = similarities[similarities != 0].astype(np.float64)
        mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 1.0)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("deviation", torch.tensor(deviation if deviation > 0 else 1.0, dtype=torch.float32))

    def forward(self, similarities: Tensor) -> Tensor:
        """float32[B, K] → the same shape."""
        return (similarities - self.mean) / self.deviation


class WeightGate(nn.Module):
    """A similarity → the weight of its candidate, by layers 1 → ``units`` → 1 and a sigmoid; :data:`FLOOR` is added."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.layers = hidden_layers(1, [units], LayerOptions())
        self.output = linear(units, 1)

    def forward(self, scaled: Tensor) -> Tensor:
        """w, float32[B, K], of s, float32[B, K]."""
        return torch.sigmoid(self.output(self.layers(scaled.unsqueeze(2)))).squeeze(2) + FLOOR


def sort_gate(similarities: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the candidates of each row, [B, K], by ascending similarity: the largest comes last.

    Equal ones keep their order. What is computed of a candidate depends on it alone, so that sorting what goes in sorts what
    comes out.
    """
    order = torch.sort(similarities, dim=1, stable=True).indices
    return similarities.gather(1, order), index.gather(1, order)


class ConvolutionMerge(nn.Module):
    """Weighted pairs in the order of their similarity → logits.

    A convolution of ``kernel`` candidates and one column over the K × l numbers of a row, with kernel − 1 zeros before and
    after them, so that each of its ``channels`` has K + kernel − 1 rows; ReLU; dropout; hidden layers with dropout; logits.

    Args:
        candidates: K.
        width: l.
        channels: of the convolution.
        kernel: candidates that it reads at once.
        sizes: widths of the hidden layers.
        outputs: C.
        options: of each hidden layer.
    """

    def __init__(
        self,
        candidates: int,
        width: int,
        *,
        channels: int,
        kernel: int,
        sizes: Sequence[int],
        outputs: int,
        options: LayerOptions,
    ) -> None:
        super().__init__()
        self.convolution = allocate(nn.Conv2d(1, channels, (kernel, 1), padding=(kernel - 1, 0), device="meta"))
        self.dropout = Dropout(options.dropout) if options.dropout else nn.Identity()
        flat = channels * (candidates + kernel - 1) * width
        self.layers = hidden_layers(flat, sizes, options)
        self.output = linear(sizes[-1] if sizes else flat, outputs)

    def forward(self, pairs: Tensor, weights: Tensor) -> Tensor:
        """Logits float32[B, C] of o, float32[B, K, l], and w, float32[B, K], sorted."""
        weighted = pairs * weights.unsqueeze(2)  # (B, K, l)
        found = torch.relu(self.convolution(weighted.unsqueeze(1)))  # (B, channels, K + kernel - 1, l)
        return self.output(self.layers(self.dropout(found.flatten(1))))


class WeightedMean(nn.Module):
    """Σ_j w_j·o_j / Σ_j w_j: logits of weighted pairs in any order."""

    def forward(self, pairs: Tensor, weights: Tensor) -> Tensor:
        """Logits float32[B, C] of o, float32[B, K, C], and w, float32[B, K]."""
        return (pairs * weights.unsqueeze(2)).sum(dim=1) / weights.sum(dim=1, keepdim=True)
