"""Builds networks, whoever wrote them: what an architecture gives is checked before it is used.

An architecture's own code runs here with the node's rights. It comes from an installed package or from a class that the
node's owner has declared in the settings, never from a job or a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.random import fork_rng

from vfl_node.errors import UsageError, VflError
from vfl_node.models.architecture import Architecture
from vfl_node.models.classifier import Classifier
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings

FOREIGN_DRAWS = (nn.modules.dropout._DropoutNd, nn.RReLU)
"""Torch's own layers that draw from its generator while they train."""


def build_bottom(architecture: Architecture, settings: NetworkSettings, schema: InputSchema, sizes: Sequence[int]) -> nn.Module:
    """One party's half up to the cut layer, without initial weights.

    Args:
        architecture: that the job names.
        settings: the job's section.
        schema: of the party's input.
        sizes: ``settings.bottom`` or ``settings.active_bottom``.

    Raises:
        UsageError: the architecture's code fails, or draws from torch's generator (``E_EXTENSION``). The module's forward
            raises it where its output is not float32[B, cut width].
    """
    module = build_module(lambda: architecture.bottom(schema, sizes, settings), settings.model)
    return _check_outputs(module, architecture.cut_width(sizes, settings.outputs), settings.model, "bottom")


def build_classifier(
    architecture: Architecture, settings: NetworkSettings, schema: InputSchema, received: Sequence[int]
) -> Classifier:
    """The label holder's half, without initial weights.

    Args:
        architecture: that the job names.
        settings: the job's section.
        schema: of the label holder's own columns; it may be empty.
        received: width of each embedding that other parties send; none for the local-only model.

    Raises:
        UsageError: as :func:`build_bottom`.
    """
    wide, own = architecture.wide(settings.outputs), None if schema.empty else settings.active_bottom
    bottom = build_bottom(architecture, settings, schema, own) if own else None
    cuts = [*([architecture.cut_width(own, settings.outputs)] if own else []), *received]
    widths = [width - wide for width in cuts]
    fusion = build_module(lambda: architecture.fusion(widths, settings), settings.model)
    top = build_module(lambda: architecture.top(widths, settings), settings.model)
    return Classifier(bottom, fusion, _check_outputs(top, settings.outputs, settings.model, "top"), wide=wide)


def build_module(build: Callable[[], nn.Module], name: str) -> nn.Module:
    """What ``build`` gives. What constructors draw from torch's global generator leaves it as it was.

    Args:
        build: calls an architecture.
        name: of the architecture, for errors.

    Raises:
        UsageError: it fails, or has layers that would draw from torch's generator in training (``E_EXTENSION``).
    """
    with fork_rng(devices=[]):
        try:
            module = build()
        except VflError:
            raise
        except Exception as error:
            raise _refusal(f"model {name!r} cannot be built: {type(error).__name__}: {error}") from error
    for layer in module.modules():
        rate = getattr(layer, "dropout", 0.0)
        if isinstance(layer, FOREIGN_DRAWS) or (isinstance(rate, float) and rate > 0):
            raise _refusal(
                f"model {name!r} has a layer {type(layer).__name__} that draws from torch's generator",
                hint="use vfl_node.models.layers.Dropout, which draws from the party's own randomness",
            )
    return module


def _check_outputs(module: nn.Module, width: int, name: str, part: str) -> nn.Module:
    """``module``, which raises where its output for B rows is not float32[B, width]."""

    def check(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        expected = (len(args[0]), width)
        if not isinstance(output, Tensor) or output.shape != expected or output.dtype != torch.float32:
            given = f"{output.dtype}{list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise _refusal(f"the {part} of model {name!r} gives {given}, and torch.float32{list(expected)} is due")

    module.register_forward_hook(check)
    return module


def _refusal(message: str, *, hint: str = "correct the class that the node's settings or the package declare") -> UsageError:
    return UsageError(message, code="E_EXTENSION", hint=hint, for_peer="it cannot use the model that the job names")
