"""A half of a linear or logistic regression that leaves the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.halves.columns import RawColumns
from vfl_node.halves.design import design
from vfl_node.halves.evidence import weigh_columns
from vfl_node.halves.graph import Graph
from vfl_node.halves.half import About, Floats
from vfl_node.halves.statement import Statement
from vfl_node.training.additive.exported import SummedHalf
from vfl_node.training.glm.predictor import open_half
from vfl_node.training.predictor import StoredModel


class RegressionHalf(SummedHalf):
    """One party's half of a regression; made of what it has stored."""

    def __init__(self, about: About, model: StoredModel) -> None:
        self._opened, self._encoder = open_half(model), LinearEncoder.from_json(model.encoder)  # checks names and shapes
        super().__init__(about, self._encoder.width, {name: weight.numpy() for name, weight in model.weights.items()})

    @override
    def columns(self, table: Table) -> Floats:
        return self._encoder.transform(table).values

    @override
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        assert self._opened.predicted is not None
        return self._opened.predicted(self.sums(table, parts))

    @property
    @override
    def encodings(self) -> tuple[object, ...]:
        evidence = self._encoder.evidence
        return tuple(each.bins for each in evidence.columns) if evidence else self._encoder.columns

    @override
    def write_columns(self, graph: Graph, raw: RawColumns) -> str | None:
        return design(graph, weigh_columns(graph, raw, self._encoder.evidence), self._encoder)

    @override
    def write_cells(self, statement: Statement) -> list[str]:
        statement.weigh(self._encoder.evidence)
        return statement.design(self._encoder)
