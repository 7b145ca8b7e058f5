"""Kinds of tops: the label holder's half after the fusion. Light: torch is loaded only where one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vfl_node.configuration.registry import Registry
from vfl_node.models.settings import NetworkSettings

if TYPE_CHECKING:
    from torch import nn


class TopKind(Protocol):
    """float32[B, width] → logits float32[B, settings.outputs].

    The module may have a method ``start_at(rate)``; ``missing.calibration: train`` calls it (see
    :meth:`vfl_node.models.classifier.Classifier.start_at`).
    """

    def weights(self, width: int, settings: NetworkSettings) -> int:
        """Number of weights, counted without building anything."""

    def build(self, width: int, settings: NetworkSettings) -> nn.Module:
        """The module, without initial weights."""


TOPS: Registry[TopKind] = Registry("vfl_node.tops", {"mlp": "vfl_node.models.tops.mlp:MLP"})
"""Name → kind of top."""
