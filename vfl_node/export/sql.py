"""A half without hidden layers as one SELECT, for any database that knows CASE, common table expressions and REAL numbers.

DuckDB and SQLite give the same partial scores to a billionth. Each step is materialised: a planner that puts one into the
other would write every cell out several times, and again in each further step. Numbers are rounded as in training by adding and
taking away a constant. In any database that computes in IEEE 754 that is to the nearest whole number, half to even.

::

    1    each number scaled, NULL where it is missing; each category as a code
    2    numbers cut off and rounded, each design column by itself
    3    of hidden training: centred and cut off again
    4 …  of hidden training with bounded rows: the length of each row, and its cells divided by it
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.data import transforms
from vfl_node.data.design import CENTRED, RESOLUTION, Categories, LinearEncoder, LinearScale, MissingCells, TransformedNumbers
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.export.additive_half import AdditiveHalf
from vfl_node.export.checks import MOST_ROWS, largest_difference, refuse_difference
from vfl_node.export.graph import export_error
from vfl_node.export.halves import Floats, Half
from vfl_node.training.hidden.frequent import CUT
from vfl_node.training.hidden.rows import FAR, RowEncoder

TABLE = "records"
"""What the SELECT calls the table."""

MOST_KNOTS = 32
"""Of a quantile transform: with more of them the text would be too long to read or to plan."""

BOUND = 1e-9

_ROUNDER = "6755399441055744e0"
"""1.5 · 2^52: a double of this size has no digits after the point."""

_Reader = LinearScale | TransformedNumbers | MissingCells | Categories | QuantileLevels


@dataclass(frozen=True)
class Select:
    """A half in SQL.

    Attributes:
        text: the statement.
        ids: the id columns, which come first.
        width: how many partial scores follow.
    """

    text: str
    ids: tuple[str, ...]
    width: int


def select_of(half: Half, ids: tuple[str, ...]) -> Select:
    """The SELECT of a half.

    Raises:
        UsageError: it cannot be written in SQL (``E_EXPORT``).
    """
    if not isinstance(half, AdditiveHalf) or half.layers:
        raise export_error("a network has no SQL", "export it as ONNX")
    if not half.encoder.width:
        raise export_error("this half has no columns: there is nothing to compute", "export the other halves")
    parts = _Parts(ids)
    encoder = half.encoder
    cells = parts.design(encoder) if isinstance(encoder, LinearEncoder) else parts.rows(encoder)
    names = ["partial_score"] if half.weight.shape[1] == 1 else [f"partial_score_{k}" for k in range(half.weight.shape[1])]
    sums = [
        " + ".join(f"{cell} * {_number(weight)}" for cell, weight in zip(cells, column, strict=True))
        for column in half.weight.T.tolist()
    ]
    parts.select([*parts.ids, *(f"{total} AS {name}" for total, name in zip(sums, names, strict=True))])
    head = f"-- The half of {half.about.party}, job {half.about.job}. Add the partial scores of all parties"
    if half.bias is not None:
        bias = ", ".join(_number(value) for value in half.bias.ravel().tolist())
        head += f" and the bias {bias}"
    if half.target is not None:
        head += f"; times {_number(half.target[1])}, plus {_number(half.target[0])} is the prediction"
    elif half.about.predicts:
        head += "; 1 / (1 + exp(-sum)) is the probability" + (
            " of each class, before they are scaled to 1" if len(names) > 1 else ""
        )
    return Select(f"{head}.\n{parts.text()};\n", ids, len(names))


def check_select(half: AdditiveHalf, select: Select, own: Table | None) -> None:
    """Compare a SELECT with its half, in SQLite.

    Raises:
        UsageError: they differ by more than :data:`BOUND` (``E_EXPORT``).
    """
    for table in filter(None, (half.probes(), None if own is None else own.take(np.arange(min(len(own), MOST_ROWS))))):
        try:
            found = run_in_sqlite(select, table)
        except sqlite3.Error as error:
            raise export_error(f"SQLite cannot run the SELECT: {error}", "export the half as ONNX") from None
        expected = half.part(table)
        refuse_difference(largest_difference(expected, found), BOUND, "the SELECT")


def run_in_sqlite(select: Select, table: Table) -> Floats:
    """The partial scores float64[n, width] that a SELECT gives of a table, whose ids become row numbers."""
    cells = [list(range(len(table)))] * len(select.ids) + [_cells(column) for column in table.columns.values()]
    names = [*select.ids, *table.columns]
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE {TABLE} ({', '.join(map(quote, names))})")
        database.executemany(
            f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(names))})",  # noqa: S608 - question marks
            zip(*cells, strict=True),
        )
        rows = database.execute(select.text).fetchall()
    database.close()
    found: NDArray[np.float64] = np.array(sorted(rows), dtype=np.float64)
    return found[:, len(select.ids) :]


def _cells(column: object) -> list[object]:
    if isinstance(column, CategoricalColumn):
        return [*np.array([*column.levels, None], dtype=object)[column.codes]]
    assert isinstance(column, NumericColumn)
    return [None if math.isnan(value) else value for value in column.values.tolist()]


class _Parts:
    """A statement under way: each step selects from the one before it."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = [quote(name) for name in ids]
        self._steps: list[str] = []

    def design(self, encoder: LinearEncoder) -> list[str]:
        """The columns of a design; their names."""
        return self._bend([(encoding, ()) for encoding in encoder.columns])

    def rows(self, encoder: RowEncoder) -> list[str]:
        """The columns of a row of hidden training; their names."""
        cut = FAR if encoder.length is None else CUT
        bent = self._bend([(placed.encoding, placed.codes) for placed in encoder.columns])
        cells = {place: _number(-encoder.means[place]) for place in range(encoder.width)}
        made = iter(bent)
        for placed in encoder.columns:
            for place in placed.places:
                name, mean = next(made), _number(encoder.means[place])
                cells[place] = f"({name} - {mean})"
                if isinstance(placed.encoding, LinearScale | TransformedNumbers):
                    cells[place] = f"{_clip(f'({name} - {mean})', cut)} * {_number(encoder.weight)}"
        names = [f"r{place}" for place in cells]
        self._step([*self.ids, *(f"{text} AS {name}" for text, name in zip(cells.values(), names, strict=True))])
        scale = 2.0**FRACTION
        if encoder.length is None:
            return [f"({_round(f'{name} * {_number(scale)}')} * {_number(1 / scale)})" for name in names]
        squares, least = " + ".join(f"{name} * {name}" for name in names), _number(encoder.length)
        self._step([*self.ids, *names, f"sqrt({squares}) AS length"])
        longer = f"CASE WHEN length > {least} THEN length ELSE {least} END"
        self._step([*self.ids, *(f"{name} * (1e0 / ({longer}) * {_number(scale)}) AS {name}" for name in names)])
        self._step([*self.ids, *names, *(f"{_round(f'abs({name})')} AS w{name}" for name in names)])
        whole = (f"(CASE WHEN w{n} > abs({n}) THEN w{n} - 1e0 ELSE w{n} END)" for n in names)
        return [
            f"(CASE WHEN {name} < 0e0 THEN -{size} ELSE {size} END * {_number(1 / scale)})"
            for name, size in zip(names, whole, strict=True)
        ]

    def _bend(self, encodings: Sequence[tuple[_Reader, tuple[int, ...]]]) -> list[str]:
        """Each design column of encodings, of the codes that are given or else of its own."""
        raw: dict[str, str] = {}
        bent: list[str] = []
        for number, (encoding, codes) in enumerate(encodings):
            if encoding.part:
                raise export_error(f"column {encoding.name!r} holds dates, which have no SQL", "export the half as ONNX")
            name, column = f"c{number}", quote(encoding.name)
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
                cut = _clip(f"({name} * {_number(float(resolution))})", most)
                bent.append(f"CASE WHEN {name} IS NULL THEN 0e0 ELSE {_round(cut)} * {_number(1 / resolution)} END")
        self._step([*self.ids, *(f"{text} AS {name}" for name, text in raw.items())])
        names = [f"x{place}" for place in range(len(bent))]
        self._step([*self.ids, *(f"{text} AS {name}" for text, name in zip(bent, names, strict=True))])
        return names

    def _step(self, columns: Sequence[str]) -> None:
        self._steps.append(f"SELECT {', '.join(columns)} FROM {f'step{len(self._steps)}' if self._steps else TABLE}")  # noqa: S608 - quoted names

    def select(self, columns: Sequence[str]) -> None:
        """The last step."""
        self._step(columns)

    def text(self) -> str:
        """The statement."""
        *before, last = self._steps
        named = ",\n".join(f"step{number} AS MATERIALIZED (\n  {step}\n)" for number, step in enumerate(before, 1))
        return f"WITH {named}\n{last}"


def quote(name: str) -> str:
    """A column's name."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _number(value: float) -> str:
    """A double to the last bit; without an exponent DuckDB would read a decimal number."""
    written = repr(float(value))
    return f"({written})" if "e" in written else f"({written}e0)"


def _missing(column: str) -> str:
    """Whether a cell has no value; NaN is larger than every number where a database has it."""
    return f"{column} IS NULL OR {column} > 1.797e308"


def _round(text: str) -> str:
    """To the nearest whole number, half to even; of numbers below 2^50."""
    return f"(({text} + {_ROUNDER}) - {_ROUNDER})"


def _clip(text: str, most: float) -> str:
    bound = _number(float(most))
    return f"CASE WHEN {text} > {bound} THEN {bound} WHEN {text} < -{bound} THEN -{bound} ELSE {text} END"


def _codes(column: str, encoding: Categories) -> str:
    cases = " ".join(f"WHEN {_text(level)} THEN {code}" for code, level in enumerate(encoding.levels, start=1))
    found = f"CASE {column} {cases} ELSE -1 END" if cases else "-1"
    return f"CASE WHEN {column} IS NULL OR {column} = '' THEN 0 ELSE {found} END"


def _intervals(column: str, encoding: QuantileLevels) -> str:
    code = {interval: place for place, interval in enumerate(encoding.levels)}
    last = len(encoding.edges)
    cases = " ".join(f"WHEN {column} < {_number(edge)} THEN {code.get(k, -1)}" for k, edge in enumerate(encoding.edges))
    return f"CASE WHEN {_missing(column)} THEN -1 {cases} ELSE {code.get(last, -1)} END"


def _scaled(column: str, encoding: LinearScale | TransformedNumbers) -> str:
    if isinstance(encoding, LinearScale):
        return f"({column} - {_number(encoding.centre)}) / {_number(encoding.unit)}"
    transform = encoding.transform
    if isinstance(transform, transforms.Quantile):
        return _quantile(column, encoding.name, transform)
    if isinstance(transform, transforms.SignedLog):
        unit, log = _number(transform.unit), _number(math.log(transform.unit))
        size = f"abs({column})"
        logs = (
            f"CASE WHEN {size} < {unit} THEN ln(1e0 + {size} / {unit}) ELSE ln({size}) - {log} + ln(1e0 + {unit} / {size}) END"
        )
        return f"(CASE WHEN {column} < 0 THEN -1e0 ELSE 1e0 END * {logs} - {_number(transform.mean)}) / {_number(transform.sd)}"
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
    cases = [f"WHEN {column} >= {_number(knots[-1])} THEN {_number(scores[-1])}"]
    cases += [f"WHEN {column} <= {_number(knots[0])} THEN {_number(scores[0])}"]
    for k in range(len(knots) - 1):
        width = _number(knots[k + 1] / 2 - knots[k] / 2)
        share = f"(({column} / 2e0 - {_number(knots[k] / 2)}) / {width})"
        level = f"{_number(scores[k])} * (1e0 - {share}) + {_number(scores[k + 1])} * {share}"
        cases.append(f"WHEN {column} < {_number(knots[k + 1])} THEN {level}")
    return f"CASE {' '.join(cases)} ELSE {_number(scores[-1])} END"
