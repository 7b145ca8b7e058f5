"""What a node takes one column of a table for, in words and counts for its owner; no cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from vfl_node.data.cells import numbers_of
from vfl_node.data.columns_apart import Apart
from vfl_node.data.levels import find_near_unique, mostly_rare
from vfl_node.data.shapes import Seems
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, ListColumn, NumericColumn, values_of
from vfl_node.errors import DataError
from vfl_node.settings.declared import Notation

Use = Literal[Apart, "numeric", "categorical", "date", "list", "ignored"]


@dataclass(frozen=True)
class ColumnProfile:
    """One column.

    Attributes:
        name: of the column.
        use: what a node takes it for.
        declared: whether the settings say so; otherwise the values do.
        missing: rows without a value; None for a column that is not read.
        distinct: different values, of lists different items; likewise.
        numbers: how many values of a categorical column are finite numbers; None if it is declared.
        error: why the column cannot be read in its kind.
        near_unique: whether training would refuse it as text (``E_TEXT_COLUMN``).
        longest: most items of a list that are read; None for another kind.
        cut: rows with more items than that.
        zero_led: cells of an undeclared column of numbers that begin with a zero before other digits.
        seems: what the shape of its numbers may mean besides.
        rare: whether nearly all values are levels that few rows have, so that a model gets hardly anything from them.
        words: word that was read as a missing value → rows, where that is known; each is of a list, or the owner's.
        written: how numbers or dates are written, in words; empty where they are plain.
    """

    name: str
    use: Use
    declared: bool
    missing: int | None = None
    distinct: int | None = None
    numbers: int | None = None
    error: DataError | None = None
    near_unique: bool = False
    longest: int | None = None
    cut: int = 0
    zero_led: int = 0
    seems: Seems | None = None
    rare: bool = False
    written: str = ""
    words: Mapping[str, int] = field(default_factory=dict)


def feature_profile(name: str, column: Column, decimal: str, *, declared: bool) -> ColumnProfile:
    """What is told of a column that is read; ``decimal`` is how the input writes decimals."""
    if isinstance(column, ListColumn):
        empty, longest = int(np.count_nonzero(column.lengths == 0)), int(column.lengths.max(initial=0))
        return ColumnProfile(name, "list", declared, empty, len(column.levels), longest=longest, cut=column.cut)
    if not isinstance(column, CategoricalColumn):
        values = values_of(column)
        absent = np.isnan(values)
        use: Use = "date" if isinstance(column, DateColumn) else "numeric"
        profile = ColumnProfile(name, use, declared, int(absent.sum()), len(np.unique(values[~absent])))
        if isinstance(column, NumericColumn):
            profile = replace(profile, zero_led=column.zero_led, seems=column.seems)
        return replace(profile, written=_describe(column.notation))
    missing = int(np.count_nonzero(column.codes < 0))
    numbers = None if declared else _numbers(column, decimal)
    text = column.detected and find_near_unique(column) is not None
    rare = mostly_rare(column) is not None
    return ColumnProfile(name, "categorical", declared, missing, len(column.levels), numbers, near_unique=text, rare=rare)


def _describe(notation: Notation | None) -> str:
    """How cells are written, without the unit, which is a part of them."""
    if notation is None:
        return ""
    said = [f"as {notation.date_format}"] if notation.date_format else []
    said += [f"thousands by {notation.thousands!r}"] if notation.thousands else []
    said += [f"decimals by {notation.decimal!r}"] if notation.decimal == "," else []
    return ", ".join([*said, *(["a sign or unit left out"] if notation.unit else [])])


def _numbers(column: CategoricalColumn, decimal: str) -> int:
    """How many values of a categorical column are finite numbers."""
    return int(column.counts[np.isfinite(numbers_of(pa.array(column.levels, pa.string()), decimal))].sum())
