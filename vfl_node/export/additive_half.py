"""A half of an additive model: a regression, or hidden training whose weights were opened to their owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.configuration.versions import damage_error
from vfl_node.crypto.shares.ring import decode
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.export.columns import RawColumns
from vfl_node.export.design import design, hidden_layers, predictions, rows
from vfl_node.export.graph import Graph, Kind, export_error
from vfl_node.export.halves import About, Emitted, Floats, Half
from vfl_node.export.probes import probe_design
from vfl_node.job import Job
from vfl_node.training.additive.half import HINT, WHAT
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.predictor import open_half
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import HIDDEN_TERMS
from vfl_node.training.hidden.prediction.answers import interpret
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.hidden.rows import columns_of as rows_of_table
from vfl_node.training.predictor import StoredModel


class AdditiveHalf(Half):
    """Weights of a party's own columns; at the party with the labels also what is behind their sum.

    Attributes:
        encoder: of its columns.
        weight: float64[d, width].
        bias: float64[width]; None at another party.
        layers: weight and bias of each hidden layer behind the first one.
        target: mean and deviation of a regression's target; None where there is none.
    """

    part_kind: ClassVar[Kind] = "double"

    def __init__(
        self,
        about: About,
        encoder: LinearEncoder | RowEncoder,
        weights: Mapping[str, Floats],
    ) -> None:
        weight = weights["weight"].T
        if weight.shape[0] != encoder.width or not all(np.isfinite(each).all() for each in weights.values()):
            raise damage_error(WHAT, HINT)
        super().__init__(replace(about, width=weight.shape[1]))
        self.encoder, self.weight, self.bias = encoder, weight, weights.get("bias")
        self.layers = [weights[name] for name in sorted((n for n in weights if n.startswith("layer ")), key=_number)]
        self.target = weights.get("target")
        self.unit = 1.0 if self.target is None else float(np.abs(self.target).max())

    @override
    def part(self, table: Table) -> Floats:
        return np.asarray(self.columns(table) @ self.weight)

    def columns(self, table: Table) -> Floats:
        """The columns as they were trained on, float64[n, d]."""
        if isinstance(self.encoder, LinearEncoder):
            return self.encoder.transform(table).values
        return decode(rows_of_table(self.encoder, table, active=False))

    @override
    def encoded(self, table: Table) -> dict[str, NDArray[Any]]:
        return {"columns": self.columns(table)} if self.encoder.width else {}

    @override
    def probes(self) -> Table:
        return probe_design(self.encoder)

    @override
    def emit(self, graph: Graph, raw: RawColumns) -> Emitted:
        kinds = self.encoder
        columns = design(graph, raw, kinds) if isinstance(kinds, LinearEncoder) else rows(graph, raw, kinds)
        encoded: dict[str, tuple[str, Kind]] = {"columns": (columns, "double")} if columns else {}
        own = [graph.calculate("MatMul", columns, self.weight)] if columns else []
        if self.bias is None:
            if not own:
                raise export_error("this half has no columns: there is nothing to export", "export the other halves")
            return Emitted(own[0], (), encoded)
        received = self.read_parts(graph)
        total, *others = [*own, *received]
        for part in others:
            total = graph.apply("Add", total, part)
        total = hidden_layers(graph, graph.calculate("Add", total, self.bias), self.layers, series())
        outputs = self.layers[-1].shape[1] if self.layers else self.weight.shape[1]
        return Emitted(predictions(graph, total, outputs, self.target), received, encoded, 1 + (outputs > 1))


class RegressionHalf(AdditiveHalf):
    """Of a linear or logistic regression."""

    def __init__(self, about: About, model: StoredModel) -> None:
        self._opened = open_half(model)  # checks names and shapes
        weights = {name: weight.numpy() for name, weight in model.weights.items()}
        super().__init__(about, LinearEncoder.from_json(model.encoder), weights)

    @override
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        assert self._opened.predicted is not None
        return self._opened.predicted(sum(parts, self.part(table)))


class HiddenHalf(AdditiveHalf):
    """Of hidden training, whose weights were opened to their owners."""

    def __init__(self, about: About, model: StoredModel) -> None:
        if "weight" not in model.weights:
            raise export_error(
                "the weights of this model stayed in shares: no party has a half of it",
                "train with train.reveal: owners, or predict between nodes",
            )
        opened = {name: weight for name, weight in model.weights.items() if not name.startswith("share ")}
        if not all(weight.dtype == torch.float64 for weight in opened.values()):
            raise damage_error(WHAT, HINT)
        weights = {name: weight.numpy() for name, weight in opened.items()}
        super().__init__(about, RowEncoder.from_json(model.encoder), weights)
        self._train = Hidden.section_of(model.job)

    @override
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        assert self.bias is not None
        scores = alone.scores_from_sums(sum(parts, self.part(table)) + self.bias, self.layers)
        return interpret(scores, self._train, None if self.target is None else (self.target[0], self.target[1]))


def open_additive(about: About, job: Job, weights: Mapping[str, Tensor], encoder: str) -> AdditiveHalf:
    """The half of an additive model.

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``).
        UsageError: its weights stayed in shares (``E_EXPORT``).
    """
    model = StoredModel(job, weights, encoder, "")
    return RegressionHalf(about, model) if isinstance(job.train, GeneralisedLinear) else HiddenHalf(about, model)


def series() -> tuple[Floats, Floats]:
    """Coefficients and rates of the sines of a hidden layer's activation."""
    return SIGMOID[HIDDEN_TERMS].terms_of_sines


def _number(name: str) -> int:
    return int(name.removeprefix("layer "))
