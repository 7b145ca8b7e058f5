"""How far a table has moved away from the records that a model was trained on, column by column: the stability index.

A node notes at the end of a training how the values of its own records lay: of numbers and dates in ten parts of equal size,
cut at their quantiles, of categories in their levels. Later it compares a table with that::

    PSI = Σ_b (q_b − p_b) · log(q_b / p_b)        p_b, q_b: the share of the part b among the present values then, and now

Half a row is added to each part, so that an empty one has a logarithm. All of it stays with the node; nothing is sent.

Source: Siddiqi 2006, Credit Risk Scorecards, "system stability report", with its bounds .10 and .25.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, Table, values_of

PARTS = 10

LEAST_ROWS = 500
"""Fewer present values than these, then or now, and chance alone moves an index of ten parts by .02 and more."""

MOST_LEVELS = 1_000
"""Levels of a category that are noted, the most frequent ones."""

MOVED, SHIFTED = 0.1, 0.25

_WHAT, _HINT = "what was noted of the columns", "restore it from a backup, or train again"

Word = Literal["stable", "moved", "shifted", "too few rows"]


class NotedColumn(Frozen):
    """How the values of one column lay.

    Attributes:
        name: of the column.
        edges: ascending; part k of numbers, or of dates as seconds, is above edge k − 1 and up to edge k. None of categories.
        levels: of a category, each a part of its own; the last part has all others. None of numbers.
        counts: rows in each part.
        missing: rows without a value.
        all_levels: whether ``levels`` are all that there were.
    """

    name: str
    edges: tuple[float, ...] | None = None
    levels: tuple[str, ...] | None = None
    counts: tuple[int, ...]
    missing: int
    all_levels: bool = True

    @classmethod
    def from_column(cls, name: str, column: Column) -> NotedColumn:
        """What is noted of all rows of ``column``."""
        if isinstance(column, CategoricalColumn):
            counts = column.counts
            common = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
            levels = tuple(column.levels[code] for code in common.tolist() if counts[code])
            noted = cls(name=name, levels=levels, counts=(), missing=0, all_levels=len(levels) == np.count_nonzero(counts))
        else:
            values = _numbers(column)
            present = values[~np.isnan(values)]
            shares = np.arange(1, PARTS) / PARTS
            edges = np.unique(np.quantile(present, shares, method="inverted_cdf")) if len(present) else present
            noted = cls(name=name, edges=tuple(edges.tolist()), counts=(), missing=0)
        parts = noted.part_of(column)
        counts = np.bincount(parts[parts >= 0], minlength=noted.parts)
        return noted.model_copy(update={"counts": tuple(counts.tolist()), "missing": int((parts < 0).sum())})

    @property
    def parts(self) -> int:
        """How many there are."""
        return 1 + len(self.edges if self.edges is not None else self.levels or ())

    def part_of(self, column: Column) -> NDArray[np.int64]:
        """The part of each row of ``column``, int64[n]; −1: missing. Of a column of another kind all are missing."""
        if self.edges is None:
            if not isinstance(column, CategoricalColumn):
                return np.full(len(values_of(column)), -1)
            place = {level: part for part, level in enumerate(self.levels or ())}
            parts = [place.get(level, len(place)) for level in column.levels]
            return np.array([*parts, -1], dtype=np.int64)[column.codes]
        if isinstance(column, CategoricalColumn):
            return np.full(len(column.codes), -1)
        values = _numbers(column)
        return np.where(np.isnan(values), -1, np.searchsorted(np.array(self.edges), values, side="left"))


@dataclass(frozen=True)
class ColumnShift:
    """How far one column has moved.

    Attributes:
        name: of the column.
        index: the stability index; None with fewer than :data:`LEAST_ROWS` present values, then or now.
        word: the index in a word.
        missing_then: share of the rows without a value among those trained on.
        missing: the same now.
        unseen: of a category: share of the present values that are levels which no row had that was trained on; None of others,
            and where not all levels were noted.
    """

    name: str
    index: float | None
    word: Word
    missing_then: float
    missing: float
    unseen: float | None


class NotedTable(Frozen):
    """How the values of the records lay that a model was trained on.

    Attributes:
        rows: how many they were.
        columns: a column each.
    """

    version: ClassVar[int] = 1

    rows: int
    columns: tuple[NotedColumn, ...]

    @classmethod
    def from_table(cls, table: Table) -> NotedTable:
        """What is noted of all rows of ``table``. Cost: a sort a column of numbers."""
        return cls(rows=len(table), columns=tuple(NotedColumn.from_column(*column) for column in table.columns.items()))

    def compare(self, table: Table) -> tuple[ColumnShift, ...]:
        """How far each of the columns has moved that ``table`` has."""
        return tuple(
            _shift(noted, table.columns[noted.name], self.rows) for noted in self.columns if noted.name in table.columns
        )

    def to_json(self) -> bytes:
        """As :meth:`from_json` reads it."""
        return json.dumps({"version": self.version, **self.model_dump(mode="json")}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes) -> NotedTable:
        """What :meth:`to_json` wrote. Raises StateError: it is something else (``E_STATE_CORRUPT``, ``E_STATE_VERSION``)."""
        document = versions.parse(data.decode(errors="replace"), cls.version, {}, what=_WHAT, hint=_HINT)
        try:
            return cls.model_validate_json(json.dumps(document))
        except ValidationError:
            raise versions.damage_error(_WHAT, _HINT) from None


def _shift(noted: NotedColumn, column: Column, rows: int) -> ColumnShift:
    parts = noted.part_of(column)
    now, then = np.bincount(parts[parts >= 0], minlength=noted.parts), np.array(noted.counts)
    index = stability_index(then, now) if min(then.sum(), now.sum()) >= LEAST_ROWS else None
    unseen = now[-1] / max(1, now.sum()) if noted.levels is not None and noted.all_levels else None
    return ColumnShift(
        noted.name,
        index,
        _word(index),
        noted.missing / max(1, rows),
        float((parts < 0).mean()) if len(parts) else 0.0,
        None if unseen is None else float(unseen),
    )


def stability_index(then: NDArray[np.int64], now: NDArray[np.int64]) -> float:
    """The index of rows in each of k parts, int64[k] each. A part that is empty both times counts as none."""
    some = then + now > 0
    p, q = ((counts[some] + 0.5) / (counts[some] + 0.5).sum() for counts in (then, now))
    return float(((q - p) * np.log(q / p)).sum())


def _word(index: float | None) -> Word:
    if index is None:
        return "too few rows"
    return "stable" if index < MOVED else "moved" if index < SHIFTED else "shifted"


def _numbers(column: Column) -> NDArray[np.float64]:
    """Numbers, seconds of dates, or how many items lists have; an empty list is missing."""
    values = values_of(column).astype(np.float64)
    return np.where(values == 0, np.nan, values) if isinstance(column, ListColumn) else values
