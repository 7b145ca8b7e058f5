"""The columns of additive models as nodes of a graph: double[n, d], to the last bit as they were trained on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.design import (
    CENTRED,
    RESOLUTION,
    Categories,
    LinearEncoder,
    LinearScale,
    MissingCells,
    TransformedNumbers,
)
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.halves.columns import RawColumns, scale
from vfl_node.halves.graph import Graph


def design(graph: Graph, raw: RawColumns, encoder: LinearEncoder) -> str | None:
    """The design matrix; None where there are no columns."""
    made = []
    for encoding in encoder.columns:
        if isinstance(encoding, Categories):
            made.append(mark_codes(graph, raw, encoding, encoding.coded))
        elif isinstance(encoding, MissingCells):
            made.append(mark_codes(graph, raw, encoding, [1]))
        else:
            made.append(scale_to_steps(graph, raw, encoding))
    return graph.join(made) if made else None


def scale_to_steps(graph: Graph, raw: RawColumns, encoding: LinearScale | TransformedNumbers) -> str:
    """Whole numbers times their step, double[n, 1]."""
    values = raw.present(encoding.name)
    if isinstance(encoding, LinearScale):
        resolution, most = encoding.resolution, encoding.most
        values = graph.calculate("Div", graph.calculate("Sub", values, encoding.centre), encoding.unit)
    else:
        resolution, most = RESOLUTION, CENTRED
        values = scale(graph, values, encoding.transform)
    whole = graph.apply("Round", graph.calculate("Mul", values, float(resolution)))
    whole = graph.apply("Clip", whole, graph.keep(-float(most)), graph.keep(float(most)))
    whole = graph.apply("Where", raw.missing(encoding.name), graph.keep([[0.0]]), whole)
    return graph.calculate("Mul", whole, 1 / resolution)


def mark_codes(
    graph: Graph, raw: RawColumns, encoding: Categories | MissingCells | QuantileLevels, wanted: Collection[int]
) -> str:
    """double[n, k] of 0 and 1: which of the ``wanted`` codes each row has."""
    if isinstance(encoding, Categories):
        codes = raw.codes(encoding, unseen=-1)
    elif isinstance(encoding, QuantileLevels):
        codes = _intervals(graph, raw, encoding)
    else:
        codes = graph.cast(raw.missing(encoding.name), "int64")
    return graph.cast(graph.calculate("Equal", codes, [list(wanted)], np.int64), "double")


def _intervals(graph: Graph, raw: RawColumns, encoding: QuantileLevels) -> str:
    """The code of the interval of each number, int64[n, 1]; −1: none."""
    table = np.full(len(encoding.edges) + 2, -1)
    table[list(encoding.levels)] = np.arange(len(encoding.levels))
    if not encoding.edges:
        place = graph.calculate("Mul", graph.cast(raw.missing(encoding.name), "int64"), 0, np.int64)
    else:
        passed = graph.cast(graph.calculate("GreaterOrEqual", raw.present(encoding.name), [encoding.edges]), "int64")
        place = graph.apply("ReduceSum", passed, graph.keep([1], np.int64), keepdims=1)
    place = graph.apply("Where", raw.missing(encoding.name), graph.keep([[len(table) - 1]], np.int64), place)
    return graph.apply("Gather", graph.keep(table, np.int64), place)


def predictions(graph: Graph, scores: str, outputs: int, target: NDArray[np.float64] | None) -> str:
    """What scores double[n, K] say: probabilities or numbers, double[n], or of several classes double[n, K]."""
    if target is not None:
        scores = graph.calculate("Add", graph.calculate("Mul", scores, target[1]), target[0])
    elif outputs == 1:
        scores = graph.apply("Sigmoid", scores)
    else:  # σ of each class, scaled to sum to 1, by logarithms: −log(1 + exp(−z))
        size = graph.apply("Neg", graph.apply("Abs", scores))
        rest = graph.apply("Log", graph.calculate("Add", graph.apply("Exp", size), 1.0))
        logs = graph.apply("Sub", graph.calculate("Min", scores, 0.0), rest)
        scores = graph.apply("Softmax", logs, axis=1)
    return scores if outputs > 1 else graph.apply("Reshape", scores, graph.keep([-1], np.int64))
