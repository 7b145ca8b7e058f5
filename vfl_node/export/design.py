"""The columns of additive models as nodes of a graph: double[n, d], to the last bit as they were trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import FRACTION
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
from vfl_node.export.columns import RawColumns, scale
from vfl_node.export.graph import Graph
from vfl_node.training.hidden.frequent import CUT
from vfl_node.training.hidden.rows import FAR, Placed, RowEncoder


def design(graph: Graph, raw: RawColumns, encoder: LinearEncoder) -> str | None:
    """The design matrix; None where there are no columns."""
    made = []
    for encoding in encoder.columns:
        if isinstance(encoding, Categories):
            codes = raw.codes(encoding, unseen=-1)
            made.append(graph.cast(graph.calculate("Equal", codes, [encoding.coded], np.int64), "double"))
        elif isinstance(encoding, MissingCells):
            made.append(graph.cast(raw.missing(encoding.name), "double"))
        else:
            made.append(_scaled(graph, raw, encoding))
    return graph.join(made) if made else None


def rows(graph: Graph, raw: RawColumns, encoder: RowEncoder) -> str | None:
    """The rows of hidden training, without the intercept; None where nothing is read of the table."""
    if not encoder.columns:
        return None
    cut = FAR if encoder.length is None else CUT
    made, places, less = [], list[int](), np.array(encoder.means)
    for placed in encoder.columns:
        if isinstance(placed.encoding, LinearScale | TransformedNumbers):
            place = placed.places[0]
            centred = graph.calculate("Sub", _scaled(graph, raw, placed.encoding), encoder.means[place])
            clipped = graph.apply("Clip", centred, graph.keep(-cut), graph.keep(cut))
            made.append(graph.calculate("Mul", clipped, encoder.weight))
            less[place] = 0.0
        else:
            made.append(graph.cast(_marks(graph, raw, placed), "double"))
        places += placed.places
    select = np.zeros((len(places), encoder.width))
    select[np.arange(len(places)), places] = 1
    values = graph.calculate("Sub", graph.calculate("MatMul", graph.join(made), select), less[None])
    if encoder.length is not None:
        squares = graph.apply("ReduceSum", graph.apply("Mul", values, values), graph.keep([1], np.int64), keepdims=1)
        length = graph.calculate("Max", graph.apply("Sqrt", squares), encoder.length)
        share = graph.calculate("Mul", graph.apply("Div", graph.keep(1.0), length), 2.0**FRACTION)
        values = graph.apply("Mul", values, share)
        whole = graph.apply("Floor", graph.apply("Abs", values))
        return graph.calculate("Mul", graph.apply("Mul", graph.apply("Sign", values), whole), 2.0**-FRACTION)
    return graph.calculate("Mul", graph.apply("Round", graph.calculate("Mul", values, 2.0**FRACTION)), 2.0**-FRACTION)


def _scaled(graph: Graph, raw: RawColumns, encoding: LinearScale | TransformedNumbers) -> str:
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


def _marks(graph: Graph, raw: RawColumns, placed: Placed) -> str:
    """bool[n, k]: which of its codes each row has."""
    encoding = placed.encoding
    if isinstance(encoding, Categories):
        codes = raw.codes(encoding, unseen=-1)
    elif isinstance(encoding, QuantileLevels):
        codes = _intervals(graph, raw, encoding)
    else:
        codes = graph.cast(raw.missing(encoding.name), "int64")
    return graph.calculate("Equal", codes, [placed.codes], np.int64)


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


def hidden_layers(
    graph: Graph, sums: str, layers: Sequence[NDArray[np.float64]], series: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> str:
    """Scores double[n, K] of the sums double[n, width] of all parts; ``layers``: a weight and a bias each.

    Args:
        graph: the graph.
        sums: what the first layer makes of a row.
        layers: of the party with the labels; none in a model without hidden layers.
        series: coefficients and rates of the sines that make the activation.
    """
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        terms = [
            graph.calculate("Mul", graph.apply("Sin", graph.calculate("Mul", sums, rate)), 2 * coefficient)
            for coefficient, rate in zip(*series, strict=True)
        ]
        active = terms[0]
        for term in terms[1:]:
            active = graph.apply("Add", active, term)
        sums = graph.calculate("Add", graph.calculate("MatMul", active, weight), bias)
    return sums


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
