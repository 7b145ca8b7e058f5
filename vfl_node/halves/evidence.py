"""Weights of evidence in place of columns, as nodes of a graph."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from vfl_node.data.bins import Sorts
from vfl_node.data.dates import DAY_S
from vfl_node.data.evidence import EvidenceColumns, WeighedColumn
from vfl_node.halves.columns import RawColumns
from vfl_node.halves.graph import ML, Graph


class WeighedColumns(RawColumns):
    """Columns of numbers, none of them missing: the weights of the bins of other columns.

    Args:
        graph: the graph.
        raw: the columns that are cut into bins.
        evidence: the weights.
    """

    def __init__(self, graph: Graph, raw: RawColumns, evidence: EvidenceColumns) -> None:
        super().__init__(graph, {})
        self._raw, self._read = raw, {each.name: each for each in evidence.columns}
        self._weights: dict[str, str] = {}

    @override
    def missing(self, name: str) -> str:
        return self._graph.apply("IsNaN", self.present(name))

    @override
    def present(self, name: str) -> str:
        if name not in self._weights:
            read = self._read[name]
            place = self._sort(name, read.bins.levels) if isinstance(read.bins, Sorts) else self._cut(read, read.bins.cuts)
            self._weights[name] = self._graph.apply("Gather", self._graph.keep(read.weights), place)
        return self._weights[name]

    def _cut(self, read: WeighedColumn, cuts: tuple[float, ...]) -> str:
        """int64[n, 1]: how many cuts lie below each number, or date; of a missing one the last place."""
        graph, missing, values = self._graph, self._raw.missing(read.name), self._raw.present(read.name)
        if read.bins.holds == "date":
            values = graph.apply("Round", graph.calculate("Mul", values, float(DAY_S)))
        if cuts:
            above = np.nextafter(np.array(cuts), np.inf)  # the least number beyond each
            passed = graph.cast(graph.calculate("GreaterOrEqual", values, above[None]), "int64")
            place = graph.apply("ReduceSum", passed, graph.keep([1], np.int64), keepdims=1)
        else:
            place = graph.calculate("Mul", graph.cast(missing, "int64"), 0, np.int64)
        return graph.apply("Where", missing, graph.keep([[len(cuts) + 1]], np.int64), place)

    def _sort(self, name: str, levels: tuple[str, ...]) -> str:
        """int64[n, 1]: the place of each level; behind the last one those of all others, and then of missing ones."""
        found = self._graph.apply(
            "LabelEncoder",
            name,
            domain=ML,
            keys_strings=[*levels, ""],
            values_int64s=[*range(len(levels)), len(levels) + 1],
            default_int64=len(levels),
        )
        return self._graph.apply("Reshape", found, self._graph.keep([-1, 1], np.int64))


def weigh_columns(graph: Graph, raw: RawColumns, evidence: EvidenceColumns | None) -> RawColumns:
    """The columns that an encoder reads: those of the table, or their weights of evidence."""
    return WeighedColumns(graph, raw, evidence) if evidence else raw
