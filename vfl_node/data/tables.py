"""One party's records: identifiers, columns and, at the active party, labels. They never leave the node."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.images import Image
from vfl_node.data.merged import MergedRows
from vfl_node.data.shapes import Seems
from vfl_node.errors import UNUSABLE_DATA, DataError, PolicyError
from vfl_node.job.names import Scaling
from vfl_node.settings.declared import DeclaredList, Notation


@dataclass(frozen=True, eq=False)
class NumericColumn:
    """Numbers, float64[n]; NaN: missing.

    Attributes:
        scaling: the owner's wish, which comes before the job's ``train.scaling``; None: there is none.
        notation: how cells of text write them; None: plainly.
        zero_led: how many cells of an undeclared column have a zero before other digits, as postcodes do.
        seems: what the shape of its numbers may mean besides.
    """

    values: NDArray[np.float64] = field(repr=False)
    scaling: Scaling | None = None
    notation: Notation | None = None
    zero_led: int = 0
    seems: Seems | None = None


@dataclass(frozen=True, eq=False)
class DateColumn:
    """Dates and times: whole seconds since 1970-01-01 UTC, float64[n]; NaN: missing.

    Attributes:
        scaling: as of a :class:`NumericColumn`, for the days.
        notation: as there.
    """

    seconds: NDArray[np.float64] = field(repr=False)
    scaling: Scaling | None = None
    notation: Notation | None = None


@dataclass(frozen=True, eq=False)
class CategoricalColumn:
    """Categories: ``levels[codes[row]]``; int64[n], −1: missing. Levels are distinct and sorted.

    Attributes:
        detected: whether the values were taken for categories because nothing else suits them; else they are declared so.
        notation: which words of the owner's stand for a missing value; None: there are none.
    """

    codes: NDArray[np.int64] = field(repr=False)
    levels: tuple[str, ...] = field(repr=False)
    detected: bool = False
    notation: Notation | None = None

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many rows have each level, int64[levels]."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))


@dataclass(frozen=True, eq=False)
class ListColumn:
    """Lists of items: row r has ``levels[codes[starts[r]:starts[r + 1]]]``, in the order of its cell. An empty one is missing.

    Attributes:
        codes: int64[items of all rows].
        starts: int64[n + 1], ascending from 0.
        levels: the distinct items, sorted.
        declared: what the settings say of the column.
        cut: how many rows had more items than are read.
    """

    codes: NDArray[np.int64] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    levels: tuple[str, ...] = field(repr=False)
    declared: DeclaredList
    cut: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many items each row has, int64[n]."""
        return np.diff(self.starts)

    def rows(self, rows: NDArray[np.int64]) -> ListColumn:
        """The lists of ``rows``, int64[k], in that order; a row may come several times."""
        lengths = self.lengths[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        items = np.repeat(self.starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])
        return replace(self, codes=self.codes[items], starts=starts)


Column = NumericColumn | DateColumn | CategoricalColumn | ListColumn

KeyColumn = NDArray[np.float64] | tuple[str, ...]
"""The values of a key, none of them missing: of a number float64[n], of a date seconds since 1970-01-01, float64[n]; of a place
latitude and longitude in degrees, float64[n, 2]; of a text the cells."""

LabelColumn = NDArray[Any]
"""Labels float32[n], or the targets of a regression float64[n]."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The records of one party, n of them.

    Attributes:
        ids: canonical identifiers (:func:`~vfl_node.data.identifiers.canonical`, or
            :func:`~vfl_node.data.identifiers.composite` of several columns), distinct.
        columns: name → column, in the order of the file.
        labels: float32[n] of 0 and 1, or of 0 to classes − 1; in a regression the targets, float64[n], in their own unit.
            None where they are not needed.
        plain: the same identifiers in the form ``text``, whatever form the job names; None if ``ids`` already are.
        classes: names of the classes, in their order; empty without labels, and where the table has their numbers.
        positive_assumed: whether there are two such names, and the settings do not say which is positive.
        image: which of the columns are an image; they are numeric, and none of their values is missing.
        order: float64[n], finite: the larger, the later is the record (``data.order``). None where a job needs no order.
        keys: name of a key of the job → its values, in the order of the job; they are no columns.
        groups: int64[n], records of equal codes belong together (``data.group``); −1: the record has no group. None without.
        weights: float64[n], from 0, how many times each record counts in a loss (``data.weight``). None: all count alike.
        offsets: float64[n], what is added to the score of each record (``data.offset``, or the logarithm of
            ``data.exposure``). None: nothing is.
        offset_columns: ``offset`` or ``exposure`` → the column behind them; empty without.
        label: name of the column of labels; empty without.
        left_out: column that is none of ``columns`` → what it was taken for, though the settings do not say so.
        merged: how many rows of the input became the records; None: each row is one.
    """

    ids: Identifiers
    columns: Mapping[str, Column]
    labels: LabelColumn | None = None
    plain: Identifiers | None = None
    classes: tuple[str, ...] = ()
    positive_assumed: bool = False
    image: Image | None = None
    order: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    offsets: NDArray[np.float64] | None = None
    offset_columns: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, KeyColumn] = field(default_factory=dict)
    label: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    merged: MergedRows | None = None

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {len(values_of(column)) for column in self.columns.values()}
        of_records = (self.labels, self.order, self.groups, self.weights, self.offsets, *self.keys.values())
        lengths |= {len(values) for values in of_records if values is not None}
        if lengths - {len(self.ids)}:
            raise ValueError("ids, columns, labels, order, groups, weights, offsets and keys must have one entry a record")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Table({len(self)} records, {len(self.columns)} columns, {'no ' if self.labels is None else ''}labels)"

    @property
    def identity(self) -> bytes:
        """32 bytes that identify the set of records, whatever form of identifiers a job uses; other columns do not matter.

        Leaks: as :meth:`~vfl_node.data.identifiers.Identifiers.digest`.
        """
        return (self.plain or self.ids).digest()

    def take(self, rows: NDArray[np.int64]) -> Table:
        """The table of the records ``rows`` only, int64[k], in that order. Levels stay that no longer occur."""
        return replace(
            self,
            ids=self.ids.choose(rows),
            plain=self.plain and self.plain.choose(rows),
            columns={name: rows_of(column, rows) for name, column in self.columns.items()},
            labels=None if self.labels is None else self.labels[rows],
            order=None if self.order is None else self.order[rows],
            groups=None if self.groups is None else self.groups[rows],
            weights=None if self.weights is None else self.weights[rows],
            offsets=None if self.offsets is None else self.offsets[rows],
            keys={name: key_rows_of(column, rows) for name, column in self.keys.items()},
        )

    def digest(self) -> bytes:
        """SHA-256 over the whole table, in order; a restarted job must find it unchanged. It is computed once."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        state = hashlib.sha256()

        def add(part: bytes) -> None:
            state.update(_prefix_length(part))

        add(self.ids.digest())
        add(self.ids.canonical_order.astype("<i8").tobytes())
        for name, column in self.columns.items():
            add(name.encode())
            add(type(column).__name__.encode())
            if isinstance(column, NumericColumn | DateColumn):
                values = values_of(column)
                add(np.where(np.isnan(values), np.nan, values).astype("<f8").tobytes())  # NaN has many bit patterns
                if column.scaling:
                    add(column.scaling.encode())
            else:
                if isinstance(column, ListColumn):
                    add(column.starts.astype("<i8").tobytes())
                    add(column.declared.model_dump_json().encode())
                add(column.codes.astype("<i8").tobytes())
                levels = [level.encode() for level in column.levels]
                add(np.fromiter(map(len, levels), "<i8", len(levels)).tobytes())
                add(b"".join(levels))
        add(b"" if self.labels is None else self.labels.astype(self.labels.dtype.newbyteorder("<")).tobytes())
        if self.classes:  # where they have no names, the digest is that of versions without names
            add(b"".join(hashlib.sha256(name.encode()).digest() for name in self.classes))
        if self.image:
            add(self.image.model_dump_json().encode())
        if self.order is not None:
            add(b"order" + self.order.astype("<f8").tobytes())
        if self.groups is not None:
            add(b"groups" + self.groups.astype("<i8").tobytes())
        if self.weights is not None:
            add(b"weights" + self.weights.astype("<f8").tobytes())
        if self.offsets is not None:
            add(b"offsets" + self.offsets.astype("<f8").tobytes())
        for name, key in self.keys.items():
            add(b"key" + name.encode())
            is_text = isinstance(key, tuple)
            add(b"".join(_prefix_length(cell.encode()) for cell in key) if is_text else np.asarray(key).astype("<f8").tobytes())
        return state.digest()


def _prefix_length(data: bytes) -> bytes:
    """``data`` behind its length."""
    return len(data).to_bytes(8, "big") + data


def check_enough(records: int, least: int, party: str) -> None:
    """Refuse a set that is too small, before anything else of the table is read, so that a refusal reveals nothing about it.

    Raises:
        PolicyError: fewer than ``least`` (``E_TOO_FEW``); the peer gets the same text as for a table that cannot be used.
    """
    if records < least:
        raise PolicyError(
            f"{party} takes part with {records} records, and this node's minimum is {least} (min_own_rows)",
            code="E_TOO_FEW",
            hint="the sizes of small sets betray who is in them; min_own_rows in the policy is this owner's choice",
            for_peer=UNUSABLE_DATA,
            peer_code=DataError.default_code,
        )


def values_of(column: Column) -> NDArray[np.float64] | NDArray[np.int64]:
    """What stands for the rows of ``column``: numbers, seconds or codes, [n]; of lists how many items they have."""
    if isinstance(column, NumericColumn):
        return column.values
    if isinstance(column, ListColumn):
        return column.lengths
    return column.seconds if isinstance(column, DateColumn) else column.codes


def key_rows_of(column: KeyColumn, rows: NDArray[np.int64]) -> KeyColumn:
    """The values of a key for the records ``rows`` only."""
    return column[rows] if isinstance(column, np.ndarray) else tuple(column[row] for row in rows.tolist())


def rows_of(column: Column, rows: NDArray[np.int64]) -> Column:
    """The column for the records ``rows`` only. All its levels stay, including those that no longer occur."""
    if isinstance(column, NumericColumn):
        return replace(column, values=column.values[rows])
    if isinstance(column, DateColumn):
        return replace(column, seconds=column.seconds[rows])
    if isinstance(column, ListColumn):
        return column.rows(rows)
    return replace(column, codes=column.codes[rows])


def prune_levels(table: Table) -> Table:
    """The same table without levels that do not occur, as if it were read without the records that had them."""
    return replace(table, columns={name: _prune(column) for name, column in table.columns.items()})


def _prune(column: Column) -> Column:
    if not isinstance(column, CategoricalColumn | ListColumn):
        return column
    used = np.unique(column.codes[column.codes >= 0])
    places = np.full(len(column.levels) + 1, -1, dtype=np.int64)  # the last is that of −1, missing
    places[used] = np.arange(len(used))
    return replace(column, codes=places[column.codes], levels=tuple(column.levels[code] for code in used.tolist()))
