"""A half of an additive model that leaves the product: weights of a party's own columns, and what is behind their sum."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.configuration.versions import damage_error
from vfl_node.data.tables import Table
from vfl_node.halves.columns import RawColumns
from vfl_node.halves.design import predictions
from vfl_node.halves.graph import Graph, Kind, export_error
from vfl_node.halves.half import About, Emitted, Floats, OwnHalf
from vfl_node.halves.statement import Statement
from vfl_node.training.additive.half import HINT, WHAT


class SummedHalf(OwnHalf):
    """Weights of a party's own columns; at the party with the labels also what is behind their sum.

    Attributes:
        width: d, number of columns.
        weight: float64[d, width of the sums].
        bias: float64 as wide; None at another party.
        layers: weight and bias of each hidden layer behind the first one.
        target: mean and deviation of a regression's target; None where there is none.
    """

    part_kind: ClassVar[Kind] = "double"

    def __init__(self, about: About, width: int, weights: Mapping[str, Floats]) -> None:
        weight = weights["weight"].T
        if weight.shape[0] != width or not all(np.isfinite(each).all() for each in weights.values()):
            raise damage_error(WHAT, HINT)
        gives = about.gives if about.predicts else "partial_scores"
        target = weights.get("target")
        super().__init__(
            replace(about, width=weight.shape[1], gives=gives), 1.0 if target is None else float(np.abs(target).max())
        )
        self.width, self.weight, self.bias, self.target = width, weight, weights.get("bias"), target
        self.layers = [weights[name] for name in sorted((n for n in weights if n.startswith("layer ")), key=_number)]

    @abstractmethod
    def columns(self, table: Table) -> Floats:
        """The columns as they were trained on, float64[n, d]."""

    @abstractmethod
    def write_columns(self, graph: Graph, raw: RawColumns) -> str | None:
        """The same as nodes, double[n, d]; None where there are none."""

    @abstractmethod
    def write_cells(self, statement: Statement) -> list[str]:
        """The same in SQL: the text of each of the d columns. Raises UsageError (``E_EXPORT``) where that cannot be."""

    def write_layers(self, graph: Graph, sums: str) -> str:
        """What hidden layers make of sums double[n, width]: scores double[n, K]. Without layers the sums."""
        return sums

    @override
    def part(self, table: Table) -> Floats:
        return np.asarray(self.columns(table) @ self.weight)

    @override
    def encoded(self, table: Table) -> dict[str, NDArray[Any]]:
        return {"columns": self.columns(table)} if self.width else {}

    @override
    def emit(self, graph: Graph, raw: RawColumns) -> Emitted:
        columns = self.write_columns(graph, raw)
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
        total = self.write_layers(graph, graph.calculate("Add", total, self.bias))
        outputs = self.layers[-1].shape[1] if self.layers else self.weight.shape[1]
        return Emitted(predictions(graph, total, outputs, self.target), received, encoded, 1 + (outputs > 1))

    def sums(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        """The own part and those of the others, float64[n, width]."""
        return np.asarray(sum(parts, self.part(table)))


def _number(name: str) -> int:
    return int(name.removeprefix("layer "))
