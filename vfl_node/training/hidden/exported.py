"""A half of hidden training whose weights were opened to their owners, as it leaves the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.configuration.versions import damage_error
from vfl_node.crypto.shares.ring import FRACTION, decode
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.data.design import LinearScale, TransformedNumbers
from vfl_node.data.tables import Table
from vfl_node.halves.columns import RawColumns
from vfl_node.halves.design import mark_codes, scale_to_steps
from vfl_node.halves.evidence import weigh_columns
from vfl_node.halves.graph import Graph, export_error
from vfl_node.halves.half import About, Floats
from vfl_node.halves.statement import Statement, clip_text, number, round_text
from vfl_node.training.additive.exported import SummedHalf
from vfl_node.training.additive.half import HINT, WHAT
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.frequent import CUT
from vfl_node.training.hidden.network import HIDDEN_TERMS
from vfl_node.training.hidden.rows import FAR, RowEncoder, columns_of
from vfl_node.training.predictor import StoredModel
from vfl_node.training.shares.prediction.answers import interpret


class HiddenHalf(SummedHalf):
    """One party's half, with its own block of the opened weights.

    Raises:
        UsageError: its weights stayed in shares (``E_EXPORT``).
        StateError: it is damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, about: About, model: StoredModel) -> None:
        if "weight" not in model.weights:
            raise export_error(
                "the weights of this model stayed in shares: no party has a half of it",
                "train with train.reveal: owners, or predict between nodes",
            )
        opened = {name: weight for name, weight in model.weights.items() if not name.startswith("share ")}
        if not all(weight.dtype == torch.float64 for weight in opened.values()):
            raise damage_error(WHAT, HINT)
        self._train, self._encoder = Hidden.section_of(model.job), RowEncoder.from_json(model.encoder)
        super().__init__(about, self._encoder.width, {name: weight.numpy() for name, weight in opened.items()})

    @override
    def columns(self, table: Table) -> Floats:
        return decode(columns_of(self._encoder, table, active=False))

    @override
    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        assert self.bias is not None
        scores = alone.scores_from_sums(self.sums(table, parts) + self.bias, self.layers)
        return interpret(scores, self._train, None if self.target is None else (self.target[0], self.target[1]))

    @property
    @override
    def encodings(self) -> tuple[object, ...]:
        evidence = self._encoder.evidence
        return tuple(each.bins for each in evidence.columns) if evidence else self._encoder.encodings

    @override
    def write_columns(self, graph: Graph, raw: RawColumns) -> str | None:
        return _rows(graph, weigh_columns(graph, raw, self._encoder.evidence), self._encoder)

    @override
    def write_cells(self, statement: Statement) -> list[str]:
        statement.weigh(self._encoder.evidence)
        return _cells(statement, self._encoder)

    @override
    def write_layers(self, graph: Graph, sums: str) -> str:
        coefficients, rates = SIGMOID[HIDDEN_TERMS].terms_of_sines
        for weight, bias in zip(self.layers[::2], self.layers[1::2], strict=True):
            first, *others = [
                graph.calculate("Mul", graph.apply("Sin", graph.calculate("Mul", sums, rate)), 2 * coefficient)
                for coefficient, rate in zip(coefficients, rates, strict=True)
            ]
            for term in others:
                first = graph.apply("Add", first, term)
            sums = graph.calculate("Add", graph.calculate("MatMul", first, weight), bias)
        return sums


def _rows(graph: Graph, raw: RawColumns, encoder: RowEncoder) -> str | None:
    """The rows of hidden training, without the intercept; None where nothing is read of the table."""
    if not encoder.columns:
        return None
    cut = FAR if encoder.length is None else CUT
    made, places, less = [], list[int](), np.array(encoder.means)
    for placed in encoder.columns:
        if isinstance(placed.encoding, LinearScale | TransformedNumbers):
            place = placed.places[0]
            centred = graph.calculate("Sub", scale_to_steps(graph, raw, placed.encoding), encoder.means[place])
            clipped = graph.apply("Clip", centred, graph.keep(-cut), graph.keep(cut))
            made.append(graph.calculate("Mul", clipped, encoder.weight))
            less[place] = 0.0
        else:
            made.append(mark_codes(graph, raw, placed.encoding, placed.codes))
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


def _cells(statement: Statement, encoder: RowEncoder) -> list[str]:
    """The columns of a row of hidden training; their names."""
    cut = FAR if encoder.length is None else CUT
    bent = statement.bend([(placed.encoding, placed.codes) for placed in encoder.columns])
    cells = {place: number(-encoder.means[place]) for place in range(encoder.width)}
    made = iter(bent)
    for placed in encoder.columns:
        for place in placed.places:
            name, mean = next(made), number(encoder.means[place])
            cells[place] = f"({name} - {mean})"
            if isinstance(placed.encoding, LinearScale | TransformedNumbers):
                cells[place] = f"{clip_text(f'({name} - {mean})', cut)} * {number(encoder.weight)}"
    names = [f"r{place}" for place in cells]
    statement.step([*statement.ids, *(f"{text} AS {name}" for text, name in zip(cells.values(), names, strict=True))])
    scale = 2.0**FRACTION
    if encoder.length is None:
        return [f"({round_text(f'{name} * {number(scale)}')} * {number(1 / scale)})" for name in names]
    squares, least = " + ".join(f"{name} * {name}" for name in names), number(encoder.length)
    statement.step([*statement.ids, *names, f"sqrt({squares}) AS length"])
    longer = f"CASE WHEN length > {least} THEN length ELSE {least} END"
    statement.step([*statement.ids, *(f"{name} * (1e0 / ({longer}) * {number(scale)}) AS {name}" for name in names)])
    statement.step([*statement.ids, *names, *(f"{round_text(f'abs({name})')} AS w{name}" for name in names)])
    whole = (f"(CASE WHEN w{n} > abs({n}) THEN w{n} - 1e0 ELSE w{n} END)" for n in names)
    return [
        f"(CASE WHEN {name} < 0e0 THEN -{size} ELSE {size} END * {number(1 / scale)})"
        for name, size in zip(names, whole, strict=True)
    ]
