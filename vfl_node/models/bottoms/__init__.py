"""Kinds of bottoms: one party's half up to the cut layer. Light: torch is loaded only where one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vfl_node.configuration.registry import Registry
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings

if TYPE_CHECKING:
    from torch import nn


class BottomKind(Protocol):
    """A :class:`~vfl_node.models.inputs.ModelInput` of B rows → their embedding, float32[B, d + wide]."""

    @property
    def reads_images(self) -> bool:
        """Whether it reads images; else the pixels of a party's image are numeric columns."""

    @property
    def reads_lists(self) -> bool:
        """Whether it reads lists; else training refuses a table with a column of lists."""

    def wide(self, outputs: int) -> int:
        """How many linear coordinates follow the d = ``sizes[-1]`` others: 0, or one for each of ``outputs`` logits."""

    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights, counted without building anything."""

    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """How many numbers a row of a batch takes in memory, what it reads included; likewise."""

    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """The module, without initial weights."""


BOTTOMS: Registry[BottomKind] = Registry(
    "vfl_node.bottoms",
    {
        "mlp": "vfl_node.models.bottoms.mlp:MLP",
        "wide_deep": "vfl_node.models.bottoms.mlp:WIDE_DEEP",
        "cnn": "vfl_node.models.bottoms.cnn:CNN",
        "youtube_dnn": "vfl_node.models.bottoms.youtube_dnn:YOUTUBE_DNN",
    },
)
"""Name → kind of bottom."""
