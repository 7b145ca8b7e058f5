"""The two halves of a split network: a bottom at each party that has features, a top at the label holder.

::

    passive   columns ─ Bottom ─► embedding [B, d] ──────────┐ the cut: this crosses the wire
    active    columns ─ Bottom ─► embedding [B, d'] ─────────┴─ Top ─► logits [B], or [B, K]

Weights come from a party's own stream of secret bytes (:func:`initialise`) and from nowhere else. With
initial weights the peer knows, the first embeddings can be inverted to the raw columns.

Source: Song et al. 2021 (FLORIST), Table 4 and section 4; Cheng et al. 2016 (Wide & Deep).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

AT_ONCE = 1 << 16
"""Weights that are drawn at a time."""


class Draws(Protocol):
    """Where initial weights come from: a :class:`~vfl_node.crypto.randomness.Randomness`."""

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers in 0 … 1, 1 excluded."""

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal numbers."""


class Bottom(nn.Module):
    """One party's columns → its embedding at the cut layer.

    Every categorical column has an embedding table; their rows and the numeric columns,
    side by side, go through Linear + ReLU layers. With ``wide`` so many more coordinates are
    appended that are linear in the columns and pass no ReLU.

    Args:
        numeric: number of numeric columns p.
        cardinalities: number of codes of each of the c categorical columns, code 0 included.
        embedding_size: width of an embedded category.
        sizes: layer widths; the last is the cut layer.
        wide: number of linear coordinates to append; 0: none.
    """

    def __init__(
        self, *, numeric: int, cardinalities: Sequence[int], embedding_size: int, sizes: Sequence[int], wide: int
    ) -> None:
        super().__init__()
        self.categories = _tables(cardinalities, embedding_size)
        self.layers = _stack(numeric + embedding_size * len(cardinalities), sizes)
        self.wide = wide
        self.wide_numeric = _linear(numeric, wide, bias=False) if wide and numeric else None
        self.wide_categories = _tables(cardinalities if wide else (), wide)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Embedding float32[B, d] (wide: [B, d + wide]) of numeric float32[B, p] and categorical int64[B, c]."""
        deep = self.layers(torch.cat([numeric, *_looked_up(self.categories, categorical)], dim=1))  # [B, d]
        if not self.wide:
            return deep
        linear = _looked_up(self.wide_categories, categorical)  # c × [B, wide]
        if self.wide_numeric is not None:
            linear.append(self.wide_numeric(numeric))
        return torch.cat([deep, torch.stack(linear).sum(dim=0)], dim=1)


class Top(nn.Module):
    """Embeddings of all parties, side by side → one logit a row, or K.

    Args:
        widths: width of each embedding, in the order they are given.
        sizes: widths of the hidden layers; none makes a linear top.
        wide: the last coordinates of each embedding, one a logit, are linear in its party's
            columns and are added to the logits as they are.
        outputs: logits a row.
    """

    def __init__(self, *, widths: Sequence[int], sizes: Sequence[int], wide: bool, outputs: int = 1) -> None:
        super().__init__()
        deep = sum(widths) - (outputs * len(widths) if wide else 0)
        self.wide, self.outputs = wide, outputs
        self.layers = _stack(deep, sizes)
        self.output = _linear(sizes[-1] if sizes else deep, outputs)

    def forward(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Logits float32[B], or float32[B, outputs] of several, of embeddings float32[B, widths[k]]."""
        if self.wide:
            deep = torch.cat([embedding[:, : -self.outputs] for embedding in embeddings], dim=1)
            linear = torch.stack([embedding[:, -self.outputs :] for embedding in embeddings]).sum(dim=0)
            logits = self.output(self.layers(deep)) + linear
        else:
            logits = self.output(self.layers(torch.cat(list(embeddings), dim=1)))
        return logits.squeeze(1) if self.outputs == 1 else logits


class Classifier(nn.Module):
    """The label holder's half: its own bottom, if it has columns, and the top.

    Given no embedding of another party it is the local-only model.
    """

    def __init__(self, bottom: Bottom | None, top: Top) -> None:
        super().__init__()
        self.bottom = bottom
        self.top = top

    def start_at(self, rate: float) -> None:
        """Let the first probabilities of two classes be about ``rate``, which is above 0 and below 1 (Lin et al. 2017)."""
        with torch.no_grad():
            self.top.output.bias.fill_(math.log(rate / (1 - rate)))

    def forward(self, numeric: Tensor, categorical: Tensor, received: Sequence[Tensor] = ()) -> Tensor:
        """Logits, as :class:`Top` gives them, of own columns and the embeddings received."""
        own = [] if self.bottom is None else [self.bottom(numeric, categorical)]
        return self.top([*own, *received])


def initialise(module: nn.Module, draws: Draws) -> None:
    """Draw every parameter of ``module``, which is on the CPU, from ``draws``, in the order of its layers.

    Linear: uniform within ±1/√fan_in. Embedding: standard normal, except code 0 (missing
    or never seen), which starts at the mean of the others: zero.

    Raises:
        TypeError: a layer with parameters that this function does not know.
    """
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if isinstance(layer, nn.Linear):
            bound = max(1, layer.in_features) ** -0.5
            for parameter in own:
                for part in _parts(parameter):
                    part.copy_(torch.from_numpy(bound * (2 * draws.uniform(tuple(part.shape)) - 1)))
        elif isinstance(layer, nn.Embedding):
            for part in _parts(layer.weight):
                part.copy_(torch.from_numpy(draws.normal(tuple(part.shape))))
            layer.weight.detach()[0] = 0
        elif own:
            raise TypeError(f"no initial weights are defined for {type(layer).__name__}")


def _parts(parameter: Tensor) -> Sequence[Tensor]:
    """The numbers of ``parameter``, some at a time: they are drawn at several times the size of a weight."""
    return torch.split(parameter.detach().view(-1), AT_ONCE)


def _linear(width: int, size: int, *, bias: bool = True) -> nn.Linear:
    """A layer without initial weights: made on ``meta`` it draws nothing from the global generator."""
    return nn.Linear(width, size, bias=bias, device="meta").to_empty(device="cpu")


def _stack(width: int, sizes: Sequence[int]) -> nn.Sequential:
    """Linear + ReLU for each of ``sizes``; a ReLU follows the last as well."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *sizes], sizes, strict=False):
        layers += [_linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


def _tables(cardinalities: Sequence[int], width: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Embedding(codes, width, device="meta").to_empty(device="cpu") for codes in cardinalities)


def _looked_up(tables: nn.ModuleList, categorical: Tensor) -> list[Tensor]:
    """c × [B, width]."""
    return [table(categorical[:, column]) for column, table in enumerate(tables)]
