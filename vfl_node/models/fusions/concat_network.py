"""The module of the fusion ``concat``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Concat(nn.Module):
    """Embeddings of all parties, side by side."""

    def forward(self, embeddings: Sequence[Tensor]) -> Tensor:
        """float32[B, Σ w] of embeddings float32[B, w]."""
        return torch.cat(list(embeddings), dim=1)
