"""Kinds of fusions: what joins the parties' embeddings for the top. Light: torch is loaded only where one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vfl_node.configuration.registry import Registry
from vfl_node.models.settings import NetworkSettings

if TYPE_CHECKING:
    from torch import nn


class FusionKind(Protocol):
    """Embeddings float32[B, widths[k]], in the order of the parties → float32[B, width]."""

    def width(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """Width of what comes out."""

    def weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights, counted without building anything."""

    def build(self, widths: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """The module, without initial weights."""


FUSIONS: Registry[FusionKind] = Registry("vfl_node.fusions", {"concat": "vfl_node.models.fusions.concat:CONCAT"})
"""Name → kind of fusion."""
