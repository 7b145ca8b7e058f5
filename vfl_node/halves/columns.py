"""Raw cells in, what a model reads out: the encoders of split training as nodes of a graph.

A column of numbers is an input ``double [n, 1]``, in which NaN is missing. One of categories is ``string [n]``, in which an
empty text is missing. One of dates is ``double [n, 1]``: days since 1970-01-01 in UTC, with the time of day as a fraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfl_node.data import transforms
from vfl_node.data.dates import DAY_S, Part, part_of
from vfl_node.data.features import Encoder, Scale
from vfl_node.data.levels import Levels
from vfl_node.data.lists import ListLevels
from vfl_node.data.tables import CategoricalColumn, DateColumn
from vfl_node.halves.graph import ML, Graph, export_error
from vfl_node.settings.declared import Kind

FEBRUARY_LATE = 719_468
"""Days from 1 March of the year 0 to 1970-01-01: months are counted from March, so a leap day is the last one of a year."""

ERA = 146_097
"""Days of 400 years."""


class RawColumns:
    """The columns of a table as inputs of a graph; each becomes one when it is first read.

    Args:
        graph: the graph.
        kinds: column → its kind, in the order of the inputs.
    """

    def __init__(self, graph: Graph, kinds: Mapping[str, Kind]) -> None:
        self._graph = graph
        for name, kind in kinds.items():
            graph.read(name, "string", 0) if kind == "categorical" else graph.read(name, "double", 1)
        self._missing: dict[str, str] = {}
        self._seconds: dict[str, str] = {}

    def missing(self, name: str) -> str:
        """bool[n, 1]: which rows of numbers or dates have no value."""
        if name not in self._missing:
            self._missing[name] = self._graph.apply("IsNaN", name)
        return self._missing[name]

    def present(self, name: str) -> str:
        """double[n, 1]: numbers, or days, with 0 where there is none."""
        return self._graph.apply("Where", self.missing(name), self._graph.keep([[0.0]]), name)

    def codes(self, levels: Levels, *, unseen: int) -> str:
        """int64[n, 1]: the code of each row's level; 0 where it is missing, and ``unseen`` for a level without a code."""
        graph = self._graph
        if levels.part is None:
            found = graph.apply(
                "LabelEncoder",
                levels.name,
                domain=ML,
                keys_strings=["", *levels.levels],
                values_int64s=list(range(len(levels.levels) + 1)),
                default_int64=unseen,
            )
            return graph.apply("Reshape", found, graph.keep([-1, 1], np.int64))
        code = {level: number for number, level in enumerate(levels.levels, start=1)}
        table = [code.get(level, unseen) for level in part_levels(levels.part)]
        return graph.apply("Gather", graph.keep([*table, 0], np.int64), self._place(levels.name, levels.part))

    def _place(self, name: str, part: Part) -> str:
        """int64[n, 1]: the place of a date's part among all of them; behind the last one where there is no date."""
        graph = self._graph
        if name not in self._seconds:
            rounded = graph.apply("Round", graph.calculate("Mul", self.present(name), float(DAY_S)))
            self._seconds[name] = graph.cast(rounded, "int64")

        def count(kind: str, value: str, number: int) -> str:
            return graph.calculate(kind, value, number, np.int64)

        second = count("Mod", self._seconds[name], DAY_S)
        day = count("Div", graph.apply("Sub", self._seconds[name], second), DAY_S)
        if part == "hour":
            place = count("Div", second, 3600)
        elif part == "weekday":
            place = count("Mod", count("Add", day, 3), 7)
        else:
            place = self._month(count("Mod", count("Add", day, FEBRUARY_LATE), ERA))
        return graph.apply("Where", self.missing(name), graph.keep([[len(part_levels(part))]], np.int64), place)

    def _month(self, day: str) -> str:
        """0 … 11 of a ``day`` of 400 years that begin on 1 March.

        Source: Howard Hinnant, chrono-compatible low-level date algorithms, civil_from_days.
        """
        graph = self._graph

        def count(kind: str, value: str, number: int) -> str:
            return graph.calculate(kind, value, number, np.int64)

        leap = graph.apply("Sub", count("Div", day, 1460), count("Div", day, 36_524))
        leap = graph.apply("Add", leap, count("Div", day, ERA - 1))
        year = count("Div", graph.apply("Sub", day, leap), 365)
        before = graph.apply("Sub", count("Div", year, 4), count("Div", year, 100))
        of_year = graph.apply("Sub", day, graph.apply("Add", count("Mul", year, 365), before))
        march = count("Div", count("Add", count("Mul", of_year, 5), 2), 153)
        return count("Mod", count("Add", march, 2), 12)


def part_levels(part: Part) -> tuple[str, ...]:
    """All levels of a part of a date that is a category."""
    read = part_of(DateColumn(np.zeros(1)), part)
    assert isinstance(read, CategoricalColumn)
    return read.levels


def scale(graph: Graph, values: str, transform: transforms.Transform) -> str:
    """What a transform makes of numbers double[n, 1] without a missing one."""
    if isinstance(transform, transforms.Quantile):
        return _quantile(graph, values, transform)
    if isinstance(transform, transforms.Unscaled):
        return _clip(graph, graph.calculate("Sub", values, transform.start), transforms.MOST_UNSCALED)
    if isinstance(transform, transforms.SignedLog):
        values = _signed_log(graph, values, transform.unit)
    return _clip(
        graph,
        graph.calculate("Div", graph.calculate("Sub", values, transform.mean), transform.sd),
        transforms.CLIP,
    )


def _clip(graph: Graph, values: str, most: float) -> str:
    return graph.apply("Clip", values, graph.keep(-most), graph.keep(most))


def _signed_log(graph: Graph, values: str, unit: float) -> str:
    """sign(x)·log(1 + |x| / unit), of a large |x| as log |x| − log unit + log(1 + unit / |x|): a quotient may overflow."""
    size = graph.apply("Abs", values)
    small = graph.calculate("Div", graph.apply("Min", size, graph.keep(unit)), unit)
    large = graph.apply("Max", size, graph.keep(unit))
    ratio = graph.apply("Div", graph.keep(unit), large)
    one = graph.keep(1.0)
    low = graph.apply("Log", graph.apply("Add", one, small))
    high = graph.apply(
        "Add",
        graph.calculate("Sub", graph.apply("Log", large), np.log(unit)),
        graph.apply("Log", graph.apply("Add", one, ratio)),
    )
    chosen = graph.apply("Where", graph.calculate("Less", size, unit), low, high)
    return graph.apply("Mul", graph.apply("Sign", values), chosen)


def _quantile(graph: Graph, values: str, transform: transforms.Quantile) -> str:
    knots, scores = np.array(transform.knots), np.array(transform.scores)
    if len(knots) < 2:
        constant = scores[0] if len(knots) else 0.0
        return graph.calculate("Add", graph.calculate("Mul", graph.apply("Sign", values), 0.0), constant)
    reached = graph.cast(graph.calculate("GreaterOrEqual", values, knots[None]), "int64")
    count = graph.apply("ReduceSum", reached, graph.keep([1], np.int64), keepdims=1)
    last = graph.apply("Min", graph.calculate("Sub", count, [[1]], np.int64), graph.keep([[len(knots) - 2]], np.int64))
    place = graph.apply("Max", last, graph.keep([[0]], np.int64))
    low, high = (graph.apply("Gather", graph.keep(part), place) for part in (knots[:-1] / 2, knots[1:] / 2))
    below, above = (graph.apply("Gather", graph.keep(part), place) for part in (scores[:-1], scores[1:]))
    along = graph.apply("Sub", graph.calculate("Mul", values, 0.5), low)
    share = graph.apply("Div", along, graph.apply("Sub", high, low))
    share = graph.apply("Where", graph.apply("IsNaN", share), graph.keep([[0.0]]), share)
    share = graph.apply("Clip", share, graph.keep(0.0), graph.keep(1.0))
    rest = graph.apply("Sub", graph.keep(1.0), share)
    level = graph.apply("Add", graph.apply("Mul", below, rest), graph.apply("Mul", above, share))
    level = graph.apply("Min", graph.apply("Max", level, below), above)
    return graph.apply("Where", graph.calculate("GreaterOrEqual", values, [[knots[-1]]]), graph.keep([[scores[-1]]]), level)


@dataclass(frozen=True)
class EncodedInputs:
    """What a network of split training reads.

    Attributes:
        numeric: float[n, p]; None where there are no numbers.
        codes: int64[n, 1] of each column of categories.
    """

    numeric: str | None
    codes: tuple[str, ...]


def encode(graph: Graph, raw: RawColumns, encoder: Encoder) -> EncodedInputs:
    """The nodes of an encoder.

    Raises:
        UsageError: it reads an image or lists (``E_EXPORT``).
    """
    scaled, indicators, codes = [], [], []
    if encoder.image is not None:
        raise export_error("a half that reads an image cannot be exported", "declare the pixels numeric, and train again")
    for encoding in encoder.columns:
        if isinstance(encoding, ListLevels):
            raise export_error(f"column {encoding.name!r} holds lists, which are not exported", "train without it")
        if isinstance(encoding, Levels):
            codes.append(raw.codes(encoding, unseen=encoding.cardinality - 1 if encoding.other else 0))
            continue
        assert isinstance(encoding, Scale)
        numbers = scale(graph, raw.present(encoding.name), encoding.transform)
        numbers = graph.apply("Where", raw.missing(encoding.name), graph.keep([[0.0]]), numbers)
        scaled.append(graph.cast(numbers, "float"))
        if encoding.indicator:
            indicators.append(graph.cast(raw.missing(encoding.name), "float"))
    numeric = [*scaled, *indicators]
    return EncodedInputs(graph.join(numeric) if numeric else None, tuple(codes))
