"""The networks and optimisers that a job can name. Light: this module does not load torch.

::

    each passive  columns ─ bottom ─► embedding [B, d] ──────┐ the cut: this crosses the wire
    active        columns ─ bottom ─► embedding [B, d'] ─────┴─ fusion ─ top ─► logits [B], or [B, K]

An :class:`Architecture` builds these parts. Those of this package differ in
their bottom (:mod:`~vfl_node.models.bottoms`). An owner's architecture is a class that the node's settings declare
(``models: {gated: mymodels:Gated}``), or that an installed package declares by an entry point of the group
``vfl_node.models``; a job may then say ``train.model: gated``. The job carries the name only. Every party whose half it builds
must have declared it, and may have declared its own class::

    import torch
    from torch import nn
    from vfl_node.models import Architecture

    class Gated(Architecture):
        version = 1  # raise it when names, shapes or the meaning of parameters change

        def bottom(self, schema, sizes, settings):  # fusion and top stay those of mlp
            return GatedBottom(schema.numeric, sizes[-1])

    class GatedBottom(nn.Module):
        def __init__(self, columns, width):
            super().__init__()
            self.value, self.gate = nn.Linear(columns, width), nn.Linear(columns, width)

        def forward(self, rows):  # a ModelInput of B rows → float32[B, width]
            return self.value(rows.numeric) * torch.sigmoid(self.gate(rows.numeric))

What such a class must keep to:

* A fusion and a top take an embedding of the active party, if it has columns, and then one of each passive party, however many
  there are: they are built for the list of their widths.
* A bottom gives float32[B, ``sizes[-1]``], a top float32[B, ``settings.outputs``]; other shapes are refused.
* A bottom that reads images says so in a method ``reads_images``, and gets them as ``rows.images`` where ``schema.image`` has
  their shape, which may be another one at each party, or none. Without this method pixels are among the numeric columns.
* A bottom that reads lists says so in a method ``reads_lists``, and gets their codes as ``rows.bags``; ``schema.lists`` has the
  number of codes and the length of each. Without this method a table with such a column is refused.
* A table of very many codes is built with ``sparse=True`` (:mod:`vfl_node.models.updates`), as
  :func:`vfl_node.models.layers.lookup_tables` does; it is then read by codes only.
* Initial weights come from the party's private randomness alone: whatever a constructor has set is overwritten
  (:func:`vfl_node.models.initial_weights.initialise` says how, layer by layer; a layer that it does not know sets its own
  parameters in a method ``initialise(draws)``).
* Nothing is drawn from torch's generators. Dropout is :class:`vfl_node.models.layers.Dropout`.
* All state is in ``state_dict()``: checkpoints and stored models hold that and nothing else.
* A constructor gets any schema and settings; it is called on torch's ``meta`` device, too, to count weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from vfl_node.configuration.registry import Registry, load
from vfl_node.errors import StateError, UsageError
from vfl_node.models.architecture import Architecture, Composed
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings

ARCHITECTURES: Registry[Architecture | type[Architecture]] = Registry(
    "vfl_node.models",
    {
        "mlp": "vfl_node.models.architecture:MLP",
        "wide_deep": "vfl_node.models.architecture:WIDE_DEEP",
        "cnn": "vfl_node.models.architecture:CNN",
        "youtube_dnn": "vfl_node.models.architecture:YOUTUBE_DNN",
    },
)
"""Name → architecture, or its class; see :func:`architecture_of`."""

OPTIMISERS: Registry[Callable[..., Any]] = Registry(
    "vfl_node.optimisers",
    {
        "adam": "vfl_node.models.optimisers:adam",
        "sgd": "vfl_node.models.optimisers:sgd",
        "lamb": "vfl_node.models.optimisers:lamb",
    },
)
"""Name in the job → optimiser, called with (parameters, settings); see :mod:`vfl_node.models.optimisers`."""

SPARSE_OPTIMISERS: Registry[Callable[..., Any]] = Registry(
    "vfl_node.sparse_optimisers",
    {"adam": "vfl_node.models.optimisers:sparse_adam", "sgd": "vfl_node.models.optimisers:sgd"},
)
"""Name of an optimiser → the one for sparse tables beside it (:mod:`vfl_node.models.updates`); without one they are dense."""

NONE_DECLARED: Mapping[str, str] = {}


def architecture_of(name: str, declared: Mapping[str, str] = NONE_DECLARED) -> Architecture:
    """The architecture that a job names.

    Args:
        name: ``train.model``.
        declared: name → ``module:Class`` of this node's settings; a registered name comes first.

    Raises:
        UsageError: nothing has that name here, or what has it cannot be loaded or is no architecture (``E_EXTENSION``).
    """
    if name in ARCHITECTURES:
        entry = ARCHITECTURES[name]
    elif name in declared:
        entry = load(declared[name], what=f"model {name!r}")
    else:
        known = [*ARCHITECTURES, *declared]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        raise UsageError(
            f"the job names a model {name!r}, and this node has none of that name (it has {', '.join(known)})",
            code="E_EXTENSION",
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"Declare it in this node's settings: models: {{{name}: module:Class}}",
            for_peer=f"it has no model named {name!r}; its owner can declare one in the node's settings",
        )
    architecture = entry() if isinstance(entry, type) and issubclass(entry, Architecture) else entry
    if not isinstance(architecture, Architecture):
        raise _no_architecture(name, "it is not an Architecture", "derive it from vfl_node.models.Architecture")
    if name not in ARCHITECTURES and architecture.wide(1):
        raise _no_architecture(name, "it has wide coordinates", "declare it by an entry point of a package that both install")
    return architecture


def check_version(name: str, version: int, stored: int) -> None:
    """Refuse weights that another version of the architecture ``name`` has stored than this node's ``version``.

    Raises:
        StateError: it is another one (``E_STATE_VERSION``).
    """
    if stored != version:
        raise StateError(
            f"the weights were stored by version {stored} of model {name!r}, and this node has version {version}",
            code="E_STATE_VERSION",
            hint=f"install or declare version {stored} of it, or train again",
            for_peer="its model was stored by another version",
        )


def cut_width(settings: NetworkSettings) -> int:
    """Width of the embedding that a passive party sends; it follows from the job alone."""
    wide = architecture_of(settings.model).wide(settings.outputs) if settings.model in ARCHITECTURES else 0
    return settings.bottom[-1] + wide


def _no_architecture(name: str, why: str, hint: str) -> UsageError:
    return UsageError(
        f"model {name!r} cannot be used: {why}", code="E_EXTENSION", hint=hint, for_peer="it cannot use the model of the job"
    )


__all__ = [
    "ARCHITECTURES",
    "OPTIMISERS",
    "SPARSE_OPTIMISERS",
    "Architecture",
    "Composed",
    "InputSchema",
    "NetworkSettings",
    "architecture_of",
    "check_version",
    "cut_width",
]
