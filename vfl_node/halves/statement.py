"""A half without hidden layers as one SELECT under way, for any database that knows CASE and common table expressions.

Each step is materialised: a planner that puts one into the other would write every cell out several times, and again in each
further step. Numbers are rounded as in training by adding and taking away a constant. In any database that computes in IEEE 754
that is to the nearest whole number, half to even.

::

    1    each number scaled, NULL where it is missing; each category as a code
    2    numbers cut off and rounded, each design column by itself
    3 …  what a trainer makes of these
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vfl_node.data import transforms
from vfl_node.data.bins import Sorts
from vfl_node.data.design import CENTRED, RESOLUTION, Categories, LinearEncoder, LinearScale, MissingCells, TransformedNumbers
from vfl_node.data.evidence import EvidenceColumns, WeighedColumn
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.errors import UsageError
from vfl_node.halves.graph import export_error

TABLE = "records"
"""What the SELECT calls the table."""

MOST_KNOTS = 32
"""Knots of a quantile transform: with more of them the text would be too long to read or to plan."""

_ROUNDER = "6755399441055744e0"
"""1.5 · 2^52: a double of this size has no digits after the point."""

Reader = LinearScale | TransformedNumbers | MissingCells | Categories | QuantileLevels


class Statement:
    """A statement under way: each step selects from the one before it."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = [quote(name) for name in ids]
        self._steps: list[str] = []

    def design(self, encoder: LinearEncoder) -> list[str]:
        """The columns of a design; their names."""
        return self.bend([(encoding, ()) for encoding in encoder.columns])

    def weigh(self, evidence: EvidenceColumns | None) -> None:
        """Put weights of evidence in place of columns, if there are some. Raises UsageError of dates (``E_EXPORT``)."""
        if evidence:
            cells = (f"{_weights(each)} AS {quote(each.name)}" for each in evidence.columns)
            self.step([*self.ids, *cells])

    def bend(self, encodings: Sequence[tuple[Reader, tuple[int, ...]]]) -> list[str]:
        """Each design column of encodings, of the codes that are given or else of its own."""
        raw: dict[str, str] = {}
        bent: list[str] = []
        for place, (encoding, codes) in enumerate(encodings):
            if encoding.part:
                raise _dates_error(encoding.name)
            name, column = f"c{place}", quote(encoding.name)
            if isinstance(encoding, Categories):
                raw[name] = _codes(column, encoding)
                bent += [f"CASE WHEN {name} = {code} THEN 1e0 ELSE 0e0 END" for code in codes or encoding.coded]
            elif isinstance(encoding, QuantileLevels):
                raw[name] = _intervals(column, encoding)
                bent += [f"CASE WHEN {name} = {code} THEN 1e0 ELSE 0e0 END" for code in codes]
            elif isinstance(encoding, MissingCells):
                raw[name] = f"CASE WHEN {_missing(column)} THEN 1e0 ELSE 0e0 END"
                bent.append(name)
            else:
                resolution, most = (
                    (encoding.resolution, encoding.most) if isinstance(encoding, LinearScale) else (RESOLUTION, CENTRED)
                )
                raw[name] = f"CASE WHEN {_missing(column)} THEN NULL ELSE {_scaled(column, encoding)} END"
                cut = clip_text(f"({name} * {number(float(resolution))})", most)
                bent.append(f"CASE WHEN {name} IS NULL THEN 0e0 ELSE {round_text(cut)} * {number(1 / resolution)} END")
        self.step([*self.ids, *(f"{text} AS {name}" for name, text in raw.items())])
        names = [f"x{place}" for place in range(len(bent))]
        self.step([*self.ids, *(f"{text} AS {name}" for text, name in zip(bent, names, strict=True))])
        return names

    def step(self, columns: Sequence[str]) -> None:
        """Select ``columns`` from the step before."""
        self._steps.append(f"SELECT {', '.join(columns)} FROM {f'step{len(self._steps)}' if self._steps else TABLE}")  # noqa: S608 - quoted names

    def text(self) -> str:
        """The whole statement."""
        *before, last = self._steps
        named = ",\n".join(f"step{place} AS MATERIALIZED (\n  {step}\n)" for place, step in enumerate(before, 1))
        return f"WITH {named}\n{last}"


def quote(name: str) -> str:
    """A column's name."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def number(value: float) -> str:
    """A double to the last bit; without an exponent DuckDB would read a decimal number."""
    written = repr(float(value))
    return f"({written})" if "e" in written else f"({written}e0)"


def _missing(column: str) -> str:
    """Whether a cell has no value; NaN is larger than every number where a database has it."""
    return f"{column} IS NULL OR {column} > 1.797e308"


def round_text(text: str) -> str:
    """The nearest whole number, half to even; of numbers below 2^50."""
    return f"(({text} + {_ROUNDER}) - {_ROUNDER})"


def clip_text(text: str, most: float) -> str:
    """A number cut off at ±most."""
    bound = number(float(most))
    return f"CASE WHEN {text} > {bound} THEN {bound} WHEN {text} < -{bound} THEN -{bound} ELSE {text} END"


def _codes(column: str, encoding: Categories) -> str:
    cases = " ".join(f"WHEN {_text(level)} THEN {code}" for code, level in enumerate(encoding.levels, start=1))
    found = f"CASE {column} {cases} ELSE -1 END" if cases else "-1"
    return f"CASE WHEN {column} IS NULL OR {column} = '' THEN 0 ELSE {found} END"


def _intervals(column: str, encoding: QuantileLevels) -> str:
    code = {interval: place for place, interval in enumerate(encoding.levels)}
    last = len(encoding.edges)
    cases = " ".join(f"WHEN {column} < {number(edge)} THEN {code.get(k, -1)}" for k, edge in enumerate(encoding.edges))
    return f"CASE WHEN {_missing(column)} THEN -1 {cases} ELSE {code.get(last, -1)} END"


def _weights(read: WeighedColumn) -> str:
    column, (*weights, last, missing) = quote(read.name), map(number, read.weights)
    if isinstance(read.bins, Sorts):
        cases = " ".join(f"WHEN {_text(level)} THEN {weight}" for level, weight in zip(read.bins.levels, weights, strict=True))
        found = f"CASE {column} {cases} ELSE {last} END" if cases else last
        return f"CASE WHEN {column} IS NULL OR {column} = '' THEN {missing} ELSE {found} END"
    if read.bins.holds == "date":
        raise _dates_error(read.name)
    cases = " ".join(
        f"WHEN {column} <= {number(cut)} THEN {weight}" for cut, weight in zip(read.bins.cuts, weights, strict=True)
    )
    return f"CASE WHEN {_missing(column)} THEN {missing} {cases} ELSE {last} END"


def _dates_error(name: str) -> UsageError:
    return export_error(f"column {name!r} holds dates, which have no SQL", "export the half as ONNX")


def _scaled(column: str, encoding: LinearScale | TransformedNumbers) -> str:
    if isinstance(encoding, LinearScale):
        return f"({column} - {number(encoding.centre)}) / {number(encoding.unit)}"
    transform = encoding.transform
    if isinstance(transform, transforms.Quantile):
        return _quantile(column, encoding.name, transform)
    if isinstance(transform, transforms.SignedLog):
        unit, log = number(transform.unit), number(math.log(transform.unit))
        size = f"abs({column})"
        logs = (
            f"CASE WHEN {size} < {unit} THEN ln(1e0 + {size} / {unit}) ELSE ln({size}) - {log} + ln(1e0 + {unit} / {size}) END"
        )
        return f"(CASE WHEN {column} < 0 THEN -1e0 ELSE 1e0 END * {logs} - {number(transform.mean)}) / {number(transform.sd)}"
    raise export_error(f"column {encoding.name!r} is scaled by {transform.method}, which has no SQL", "use scaling: standard")


def _quantile(column: str, name: str, transform: transforms.Quantile) -> str:
    knots, scores = transform.knots, transform.scores
    if len(knots) > MOST_KNOTS:
        raise export_error(
            f"column {name!r} is scaled by {len(knots)} quantiles, and SQL has at most {MOST_KNOTS}",
            "use scaling: standard (train.scaling, or data.columns), and train again; or export the half as ONNX",
        )
    if not knots:
        return "0e0"
    cases = [f"WHEN {column} >= {number(knots[-1])} THEN {number(scores[-1])}"]
    cases += [f"WHEN {column} <= {number(knots[0])} THEN {number(scores[0])}"]
    for k in range(len(knots) - 1):
        width = number(knots[k + 1] / 2 - knots[k] / 2)
        share = f"(({column} / 2e0 - {number(knots[k] / 2)}) / {width})"
        level = f"{number(scores[k])} * (1e0 - {share}) + {number(scores[k + 1])} * {share}"
        cases.append(f"WHEN {column} < {number(knots[k + 1])} THEN {level}")
    return f"CASE {' '.join(cases)} ELSE {number(scores[-1])} END"
