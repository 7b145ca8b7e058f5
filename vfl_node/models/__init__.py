"""The networks and optimisers that a job can name. Light: this module does not load torch.

::

    passive   columns ─ bottom ─► embedding [B, d] ──────────┐ the cut: this crosses the wire
    active    columns ─ bottom ─► embedding [B, d'] ─────────┴─ fusion ─ top ─► logits [B], or [B, K]

An :class:`Architecture` builds the three kinds of parts. ``mlp`` and ``wide_deep`` are composed of the parts registered in
``bottoms``, ``fusions`` and ``tops``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vfl_node.models.architecture import Architecture, Composed
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings
from vfl_node.registry import Registry

ARCHITECTURES: Registry[Architecture] = Registry(
    "vfl_node.models", {"mlp": "vfl_node.models.architecture:MLP", "wide_deep": "vfl_node.models.architecture:WIDE_DEEP"}
)
"""Name in the job → architecture."""

OPTIMISERS: Registry[Callable[..., Any]] = Registry(
    "vfl_node.optimisers", {"adam": "vfl_node.models.optimisers:adam", "sgd": "vfl_node.models.optimisers:sgd"}
)
"""Name in the job → optimiser, called with (parameters, settings); see :mod:`vfl_node.models.optimisers`."""


def cut_width(settings: NetworkSettings) -> int:
    """Width of the embedding that a passive party sends."""
    return ARCHITECTURES[settings.model].cut_width(settings.bottom, settings.outputs)


__all__ = ["ARCHITECTURES", "OPTIMISERS", "Architecture", "Composed", "InputSchema", "NetworkSettings", "cut_width"]
