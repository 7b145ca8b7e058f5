"""How a step changes the weights of a model: one optimiser for its dense weights, another one for its sparse tables.

A table of millions of codes is an ``nn.Embedding`` or ``nn.EmbeddingBag`` with ``sparse=True``: its gradient has the rows of
the batch alone. An optimiser that updates every weight would still read and write the whole table, and its two moments, in
each step. So each optimiser that a job can name may have a sparse one beside it (``SPARSE_OPTIMISERS``), which touches the rows
of the batch alone:

=========  =========================  =========================================================================
optimiser  of sparse tables           difference
=========  =========================  =========================================================================
``adam``   ``torch.optim.SparseAdam``  moments of a row decay only in steps whose batch has its code
``sgd``    gradient descent           none, but for rounding
=========  =========================  =========================================================================

Weight decay moves every weight in every step, whatever the batch has. With it tables are dense, and so they are with an
optimiser that has no sparse one beside it: the job's words keep their meaning, and a step takes longer.

Source: Kingma and Ba 2015 (Adam); torch's documentation of SparseAdam for the lazy version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from vfl_node.errors import UsageError
from vfl_node.models import OPTIMISERS, SPARSE_OPTIMISERS
from vfl_node.models.descent import ModelOptimiser
from vfl_node.models.optimisers import restore_optimiser, tensors_of_optimiser
from vfl_node.models.settings import NetworkSettings

Make = Callable[..., ModelOptimiser]


class Updates:
    """The optimisers of one model.

    Args:
        model: on its device. Its sparse tables become dense where the job's words leave no other choice (see the module).
        optimizer: name of a registered optimiser.
        settings: what it reads.
    """

    def __init__(self, model: nn.Module, optimizer: str, settings: NetworkSettings) -> None:
        beside: Make | None = SPARSE_OPTIMISERS[optimizer] if optimizer in SPARSE_OPTIMISERS else None  # noqa: SIM401 - no Mapping
        tables = _sparse_tables(model, wanted=beside is not None and not settings.weight_decay)
        everything = list(model.parameters())
        places = {index: id(parameter) in {id(table) for table in tables} for index, parameter in enumerate(everything)}
        self._tables = tables
        self._parts: list[tuple[ModelOptimiser, list[int]]] = []
        for make, sparse in ((OPTIMISERS[optimizer], False), (beside, True)):
            mine = [index for index, in_table in places.items() if in_table is sparse]
            if make is not None and mine:
                self._parts.append((make([everything[index] for index in mine], settings), mine))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of all optimisers; a learning rate that is set here holds from the next step on."""
        return [group for optimizer, _ in self._parts for group in optimizer.param_groups]

    def zero_grad(self) -> None:
        """Leave no gradient."""
        for optimizer, _ in self._parts:
            optimizer.zero_grad()

    def step(self) -> None:
        """Change the weights by their gradients.

        Raises:
            UsageError: an own network reads a sparse table otherwise than by codes (``E_EXTENSION``).
        """
        if any(table.grad is not None and not table.grad.is_sparse for table in self._tables):
            raise UsageError(
                "a network reads the weights of a sparse table otherwise than by codes, so their gradient is not sparse",
                code="E_EXTENSION",
                hint="build its nn.Embedding or nn.EmbeddingBag with sparse=False",
                for_peer="it cannot train the model that the job names",
            )
        for optimizer, _ in self._parts:
            optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """What the optimisers remember, as ``PARAMETER.KEY``.

        A parameter has its place in the model, whichever optimiser updates it: a checkpoint of a time when a table was dense
        is taken back, too.
        """
        found: dict[str, Tensor] = {}
        for optimizer, places in self._parts:
            for name, value in tensors_of_optimiser(optimizer).items():
                index, key = name.split(".")
                found[f"{places[int(index)]}.{key}"] = value
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the next step has the same bits as without a stop."""
        for optimizer, places in self._parts:
            own = {str(place): index for index, place in enumerate(places)}
            split = ((name.split("."), value) for name, value in tensors.items())
            restore_optimiser(optimizer, {f"{own[place]}.{key}": value for (place, key), value in split if place in own})


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> None:
    """Shorten the gradient of all ``parameters``, taken as one vector, to the Euclidean norm ``most`` if it is longer.

    Of a sparse gradient the rows of the batch count, each once: rows of equal codes are added up before.
    """
    held: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values = parameter.grad._values()  # shares memory with the gradient
            stand_in = torch.empty_like(values)
            stand_in.grad = values
            held.append(stand_in)
        else:
            held.append(parameter)
    clip_grad_norm_(held, most)


def _sparse_tables(model: nn.Module, *, wanted: bool) -> list[nn.Parameter]:
    """Weights of sparse tables of ``model``. Those that are not ``wanted``, or that a dense layer shares, become dense."""
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse]
    if not layers:
        return []
    sparse = {id(layer) for layer in layers}
    dense = {id(weight) for layer in model.modules() if id(layer) not in sparse for weight in layer.parameters(recurse=False)}
    for layer in layers:
        layer.sparse = wanted and id(layer.weight) not in dense
    tables = {id(layer.weight): layer.weight for layer in layers if layer.sparse}
    return [weight for weight in model.parameters() if id(weight) in tables]
