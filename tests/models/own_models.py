"""Architectures as owners write them, for tests: by import path they are ``tests.models.own_models:NAME``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vfl_node.models import Architecture
from vfl_node.models.layers import Dropout


class Gated(Architecture):
    """The example of the docs; it reads numbers only."""

    def bottom(self, schema: Any, sizes: Any, settings: Any) -> nn.Module:
        return GatedBottom(schema.numeric, sizes[-1])


class LaterGated(Gated):
    version = 2


class GatedBottom(nn.Module):
    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(columns, width), nn.Linear(columns, width)

    def forward(self, rows: Any) -> Tensor:
        return self.value(rows.numeric) * torch.sigmoid(self.gate(rows.numeric))


class Everything(Architecture):
    """An own bottom with a batch norm, dropout and a parameter of its own; an own fusion and top."""

    def bottom(self, schema: Any, sizes: Any, settings: Any) -> nn.Module:
        return ScaledBottom(schema, sizes[-1])

    def fusion(self, widths: Any, settings: Any) -> nn.Module:
        return Mean(widths)

    def top(self, widths: Any, settings: Any) -> nn.Module:
        return PlainTop(8, settings.outputs)


class ScaledBottom(nn.Module):
    def __init__(self, schema: Any, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(codes, 2) for codes in schema.cardinalities)
        self.linear = nn.Linear(schema.numeric + 2 * len(schema.cardinalities), width)
        self.norm, self.dropout = nn.BatchNorm1d(width), Dropout(0.2)
        self.scale = nn.Parameter(torch.ones(width))

    def initialise(self, draws: Any) -> None:
        self.scale.copy_(torch.from_numpy(draws.uniform(tuple(self.scale.shape))))

    def forward(self, rows: Any) -> Tensor:
        codes = [table(rows.categorical[:, column]) for column, table in enumerate(self.tables)]
        return self.dropout(self.norm(self.linear(torch.cat([rows.numeric, *codes], dim=1)))) * self.scale


class Mean(nn.Module):
    """The mean of all embeddings, brought to 8 numbers each."""

    def __init__(self, widths: Any) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(width, 8) for width in widths)

    def forward(self, embeddings: Any) -> Tensor:
        return torch.stack([one(embedding) for one, embedding in zip(self.maps, embeddings, strict=True)]).mean(dim=0)


class PlainTop(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, outputs)

    def forward(self, fused: Tensor) -> Tensor:
        return self.output(fused)


class Pictures(Architecture):
    """Reads images and sequences, which no table has yet."""

    def bottom(self, schema: Any, sizes: Any, settings: Any) -> nn.Module:
        return PicturesBottom(schema, sizes[-1])


class PicturesBottom(nn.Module):
    def __init__(self, schema: Any, width: int) -> None:
        super().__init__()
        channels, _, _ = schema.image
        _, vocabulary = schema.sequence
        self.convolution = nn.Conv2d(channels, 3, kernel_size=2)
        self.words, self.recurrent = nn.Embedding(vocabulary, 4), nn.GRU(4, 5, batch_first=True)
        self.linear = nn.Linear(3 + 5, width)

    def forward(self, rows: Any) -> Tensor:
        seen = self.convolution(rows.images).mean(dim=(2, 3))
        _, read = self.recurrent(self.words(rows.sequences))
        return self.linear(torch.cat([seen, read[0]], dim=1))


class TooNarrow(Gated):
    def bottom(self, schema: Any, sizes: Any, settings: Any) -> nn.Module:
        return GatedBottom(schema.numeric, sizes[-1] - 1)


class Broken(Gated):
    def bottom(self, schema: Any, sizes: Any, settings: Any) -> nn.Module:
        raise KeyError("no such thing")


class Dropping(Gated):
    def top(self, widths: Any, settings: Any) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(sum(widths), settings.outputs))


class Wide(Gated):
    def wide(self, outputs: int) -> int:
        return outputs


NO_ARCHITECTURE = nn.Linear
