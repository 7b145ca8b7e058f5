"""Layers that own networks are made of. They are built without initial weights: the constructors draw nothing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def linear(width: int, size: int, *, bias: bool = True) -> nn.Linear:
    """A dense layer. Made on ``meta`` it draws nothing from torch's global generator."""
    return nn.Linear(width, size, bias=bias, device="meta").to_empty(device="cpu")


def dense(width: int, sizes: Sequence[int]) -> nn.Sequential:
    """Linear + ReLU for each of ``sizes``; a ReLU follows the last as well."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *sizes], sizes, strict=False):
        layers += [linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


def lookup_tables(cardinalities: Sequence[int], width: int) -> nn.ModuleList:
    """An embedding table of ``width`` numbers a code for each categorical column."""
    return nn.ModuleList(nn.Embedding(codes, width, device="meta").to_empty(device="cpu") for codes in cardinalities)
