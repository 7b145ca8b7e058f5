"""What an encoder does with each column of a table, in words and counts for the table's owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from vfl_node.data.dates import Part, part_of
from vfl_node.data.levels import Levels
from vfl_node.data.lists import ListLevels
from vfl_node.data.tables import CategoricalColumn, DateColumn, ListColumn, NumericColumn, Table, values_of
from vfl_node.errors import DataError
from vfl_node.job.names import ScalingMethod
from vfl_node.settings.declared import Kind


class ColumnEncoding(Protocol):
    """How one column, or a part of a date, becomes model input."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def part(self) -> Part | None:
        """Part of the date."""

    @property
    def method(self) -> ScalingMethod | None:
        """How numbers are scaled; None where there are none."""


@dataclass(frozen=True)
class EncodedColumn:
    """One column. It has counts and the column's name, and no cell.

    Attributes:
        name: of the column.
        kind: of its values.
        transform: how its numbers, or the days of a date, are scaled, or that they are cut into intervals; None for categories,
            and where they are left out.
        levels: of a categorical column: how many have a code or a column of their own; of lists, items; None for another kind.
        merged: of a categorical column: how many other levels the table has; of lists, other items.
        parts: of a date: those that vary, beside the days.
        missing: rows of the table without a value.
        cut: of lists: rows of the table that have more items than are read.
    """

    name: str
    kind: Literal["numeric", "categorical", "date", "list"]
    transform: ScalingMethod | Literal["cuts"] | None
    levels: int | None
    merged: int | None
    parts: tuple[Part, ...]
    missing: int
    cut: int = 0

    def __str__(self) -> str:
        """In words, without the name."""
        if self.kind in ("categorical", "list"):
            merged = f", {self.merged:,} rare or unseen ones merged" if self.merged else ""
            what = "items" if self.kind == "list" else "levels"
            said = [f"{self.levels:,} {what}{merged}" if self.levels or self.merged else "left out"]
            said += [f"{self.cut:,} cut short"] if self.cut else []
        else:
            said = [self.transform or "left out", *self.parts]
        return ", ".join([self.kind, *said, *([f"{self.missing:,} missing"] if self.missing else [])])


def encoded_columns(table: Table, encodings: Iterable[ColumnEncoding]) -> tuple[EncodedColumn, ...]:
    """What ``encodings`` make of each column of ``table``."""
    by_column: dict[str, list[ColumnEncoding]] = {name: [] for name in table.columns}
    for encoding in encodings:
        by_column[encoding.name].append(encoding)
    described = []
    for name, column in table.columns.items():
        method = next((encoding.method for encoding in by_column[name] if encoding.method), None)
        if isinstance(column, ListColumn):
            own = sum(len(encoding.levels) for encoding in by_column[name] if isinstance(encoding, ListLevels))
            empty = int(np.count_nonzero(column.lengths == 0))
            others = len(np.unique(column.codes)) - own if by_column[name] else 0
            described.append(EncodedColumn(name, "list", None, own, others, (), empty, column.cut))
        elif isinstance(column, CategoricalColumn):
            own = sum(len(encoding.levels) for encoding in by_column[name] if isinstance(encoding, Levels))
            present = len(np.unique(column.codes[column.codes >= 0]))
            missing = int(np.count_nonzero(column.codes < 0))
            described.append(EncodedColumn(name, "categorical", None, own, present - own, (), missing))
        else:
            kind: Literal["date", "numeric"] = "date" if isinstance(column, DateColumn) else "numeric"
            parts = tuple(encoding.part for encoding in by_column[name] if encoding.part and isinstance(encoding, Levels))
            missing = int(np.count_nonzero(np.isnan(values_of(column))))
            described.append(EncodedColumn(name, kind, method, None, None, parts, missing))
    return tuple(described)


def column_for(encoding: ColumnEncoding, table: Table) -> NumericColumn | CategoricalColumn:
    """The column of ``table``, or the part of a date, that an encoding reads.

    Raises:
        DataError: there is none, or one of another kind (``E_COLUMN``).
    """
    column = part_of(table.columns.get(encoding.name), encoding.part)
    categorical = isinstance(encoding, Levels)
    if isinstance(column, CategoricalColumn if categorical else NumericColumn):
        return column
    kind = "date" if encoding.part else "categorical" if categorical else "numeric"
    raise DataError(
        f"the model reads a {kind} column {encoding.name!r}, and this table has none",
        code="E_COLUMN",
        hint="give a table with the columns the model was trained on; declare their kinds in data.columns",
    )


def kinds_of(encodings: Iterable[ColumnEncoding]) -> dict[str, Kind]:
    """Column → kind, of those that any of these reads."""
    return {
        encoding.name: "date" if encoding.part else "categorical" if isinstance(encoding, Levels) else "numeric"
        for encoding in encodings
    }
