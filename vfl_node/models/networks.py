"""The modules that networks are composed of: bottoms, fusions and tops. They are built without initial weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import convolutions, hidden_layers, linear, lookup_tables, mean_tables
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import PLAIN, LayerOptions


class MlpBottom(nn.Module):
    """One party's columns → its embedding at the cut layer.

    Every categorical column has an embedding table. Their rows and the numeric columns, side by side, go through hidden layers
    (:func:`vfl_node.models.layers.hidden_layers`). With ``wide`` so many more coordinates are appended that are linear in the
    columns: no norm, ReLU or dropout follows.

    Args:
        schema: of the party's columns; images and sequences are not read.
        sizes: layer widths; the last is the cut layer.
        embedding_size: width of an embedded category.
        wide: number of linear coordinates to append; 0: none.
        options: of each hidden layer.
    """

    def __init__(
        self,
        schema: InputSchema,
        sizes: Sequence[int],
        *,
        embedding_size: int = 1,
        wide: int = 0,
        options: LayerOptions = PLAIN,
    ) -> None:
        super().__init__()
        self.categories = lookup_tables(schema.cardinalities, embedding_size)
        self.layers = hidden_layers(schema.numeric + embedding_size * len(schema.cardinalities), sizes, options)
        self.wide = wide
        self.wide_numeric = linear(schema.numeric, wide, bias=False) if wide and schema.numeric else None
        self.wide_categories = lookup_tables(schema.cardinalities if wide else (), wide)

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d + wide] of the B rows."""
        deep = self.layers(torch.cat([inputs.numeric, *_rows(self.categories, inputs.categorical)], dim=1))  # [B, d]
        if not self.wide:
            return deep
        wide = _rows(self.wide_categories, inputs.categorical)  # c × [B, wide]
        if self.wide_numeric is not None:
            wide.append(self.wide_numeric(inputs.numeric))
        return torch.cat([deep, torch.stack(wide).sum(dim=0)], dim=1)


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


class YoutubeDnnBottom(nn.Module):
    """One party's lists and other columns → its embedding at the cut layer.

    Every column of lists has an embedding table. The mean of the embeddings of a row's items, an item counting as often as it
    occurs, goes into the dense layers beside the numeric columns; of an empty list it is 0.

    Args:
        lists: number of codes and length of each column of lists.
        embedding_size: width of an embedded item.
        dense: reads the party's numeric columns, followed by the means, and its categories.
    """

    def __init__(self, lists: Sequence[tuple[int, int]], embedding_size: int, dense: nn.Module) -> None:
        super().__init__()
        self.lengths = [length for _, length in lists]
        self.items = mean_tables([codes for codes, _ in lists], embedding_size)
        self.dense = dense

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d] of the B rows."""
        assert inputs.bags is not None
        ends = itertools.accumulate(self.lengths)
        bags = (inputs.bags[:, end - length : end] for length, end in zip(self.lengths, ends, strict=True))
        means = [table(bag) for table, bag in zip(self.items, bags, strict=True)]  # l × (B, embedding_size)
        embedding: Tensor = self.dense(replace(inputs, numeric=torch.cat([inputs.numeric, *means], dim=1), bags=None))
        return embedding


class Concat(nn.Module):
    """Embeddings of all parties, side by side."""

    def forward(self, embeddings: Sequence[Tensor]) -> Tensor:
        """float32[B, Σ w] of embeddings float32[B, w]."""
        return torch.cat(list(embeddings), dim=1)


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
        self.layers = hidden_layers(width, sizes, options)
        self.output = linear(sizes[-1] if sizes else width, outputs)

    def start_at(self, rate: float) -> None:
        """Let the first probabilities of two classes be about ``rate``, above 0 and below 1 (Lin et al. 2017)."""
        with torch.no_grad():
            self.output.bias.fill_(math.log(rate / (1 - rate)))

    def forward(self, fused: Tensor) -> Tensor:
        """Logits float32[B, outputs] of float32[B, width]."""
        return self.output(self.layers(fused))


def _rows(tables: nn.ModuleList, categorical: Tensor) -> list[Tensor]:
    """c × [B, width]."""
    return [table(categorical[:, column]) for column, table in enumerate(tables)]
