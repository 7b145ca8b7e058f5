"""The model ``gated``: a bottom that weighs each value by a gate. Fusion and top stay those of ``mlp``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from vfl_node.models import Architecture, InputSchema, NetworkSettings
from vfl_node.models.inputs import ModelInput


class Gated(Architecture):
    """A bottom with gates. It reads numbers only."""

    version = 1  # raise it when names, shapes or the meaning of parameters change

    @override
    def bottom(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        return GatedBottom(schema.numeric, sizes[-1])


class GatedBottom(nn.Module):
    """value · σ(gate), where value and gate are linear maps of the columns."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(columns, width), nn.Linear(columns, width)

    def forward(self, rows: ModelInput) -> Tensor:
        """ModelInput of B rows → float32[B, width]."""
        gated: Tensor = self.value(rows.numeric) * torch.sigmoid(self.gate(rows.numeric))
        return gated
