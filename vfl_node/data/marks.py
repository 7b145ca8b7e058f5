"""Keyed marks of records: by them a table is known again that has grown, whatever the order of its rows.

A record has a mark of its identifier and one of all its cells, 16 bytes each, by a secret of the node. Whoever has the secret
can test a guess of an identifier, so marks stay at the node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, NumericColumn, Table, values_of

MARK_BYTES = 16

_BATCH = 1 << 14
_MISSING = np.frombuffer(np.float64(np.nan).tobytes(), np.uint64)[0]

Words = NDArray[np.uint64]
"""Marks as two numbers each, uint64[n, 2]."""

CellsOf = Callable[[slice], NDArray[np.uint64]]
"""What stands for the cells of some rows."""


@dataclass(frozen=True, eq=False)
class Marks:
    """The marks of a table's n records, in the order of its rows.

    Attributes:
        ids: of the identifiers in their form ``text``, distinct.
        cells: of identifiers and all cells together, label, order, weight and offset included; not of groups and keys.
    """

    ids: Words
    cells: Words

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_table(cls, table: Table, secret: bytes) -> Marks:
        """The marks of ``table`` by a ``secret`` of 32 bytes. Cost: 1 s for a million rows of 50 cells, and 32 bytes a row."""
        ids = (table.plain or table.ids).ranks()
        columns = [*table.columns.items(), *(() if table.labels is None else [("", _labels(table))])]
        schema = "\n".join(f"{type(column).__name__} {name!r}" for name, column in columns)
        marked = _mark(ids, secret)
        cells = [_cells(column) for _, column in columns]
        cells += [_cells(NumericColumn(values)) for values in (table.order, table.weights, table.offsets) if values is not None]
        return cls(marked, _digest(_key(secret, schema.encode()), len(ids), [lambda rows: marked[rows], *cells]))

    def to_bytes(self) -> bytes:
        """As :meth:`from_bytes` reads it, 32 bytes a record."""
        return self.ids.astype("<u8").tobytes() + self.cells.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Marks:
        """What :meth:`to_bytes` wrote. Raises ValueError if it is something else."""
        ids, cells = np.frombuffer(data, dtype="<u8").reshape(2, -1, 2)
        return cls(ids, cells)

    def compare(self, later: Marks) -> Growth:
        """What has become of these records in a ``later`` table."""
        places = self.find_in(later)
        there = places >= 0
        changed = (self.cells[there] != later.cells[places[there]]).any(axis=1)
        return Growth(len(self), len(later), int(there.sum()), int(changed.sum()))

    def find_in(self, later: Marks) -> NDArray[np.int64]:
        """The places of these records in a ``later`` table, int64[n]; −1 where it has them no more."""
        return find_marks(self.ids, later.ids)


@dataclass(frozen=True)
class Growth:
    """What has become of a table.

    Attributes:
        before: how many records it had.
        after: how many it has.
        common: how many of the earlier ones are still there.
        changed: in how many of these some cell is another one, or all where the columns are others.
    """

    before: int
    after: int
    common: int
    changed: int

    @property
    def word(self) -> str:
        """``same``, ``grown``, ``changed``, ``shrunk``, or ``other`` where less than half of the smaller table is common."""
        if 2 * self.common < min(self.before, self.after) or not self.common:
            return "other"
        if self.common < self.before:
            return "shrunk"
        return "changed" if self.changed else "grown" if self.after > self.before else "same"


def mark_ids(ids: Identifiers, secret: bytes) -> Words:
    """The marks of identifiers by a ``secret`` of 32 bytes. Cost: as 2·n digests, and 16 bytes an identifier."""
    return _mark(ids.ranks(), secret)


def find_marks(marks: Words, later: Words) -> NDArray[np.int64]:
    """The place of each of ``marks`` among ``later`` ones, int64[n]; −1 where it is not there."""
    if not len(later):
        return np.full(len(marks), -1, dtype=np.int64)
    first = later[:, 0].astype(np.uint64)
    order = np.argsort(first)
    near = np.minimum(np.searchsorted(first[order], marks[:, 0]), len(order) - 1)
    places = order[near]  # two have equal first halves in one of 4·10⁷ tables of a million rows; then one is missed
    return np.where((later[places] == marks).all(axis=1), places, -1)


def _mark(ranks: NDArray[np.uint64], secret: bytes) -> Words:
    ranked = ranks.astype("<u8")
    return _digest(_key(secret, b"ids"), len(ranked), [lambda rows: ranked[rows]])


def _key(secret: bytes, what: bytes) -> bytes:
    """16 bytes for marks of one kind, by the node's secret."""
    return hashlib.sha256(secret + what).digest()[:MARK_BYTES]


def _digest(key: bytes, count: int, parts: list[CellsOf]) -> Words:
    """16 bytes of SHA-256 over the key and each row of the parts. Rows are equally long: none is the beginning of another."""
    from vfl_node.crypto.kernels import kernel  # which loads what most commands do not need

    head, marks = np.frombuffer(key, dtype="<u8"), np.empty((count, MARK_BYTES), dtype=np.uint8)
    for start in range(0, count, _BATCH):
        rows = slice(start, min(count, start + _BATCH))
        pieces = [part(rows).reshape(rows.stop - start, -1) for part in parts]
        text = np.concatenate([np.broadcast_to(head, (rows.stop - start, 2)), *pieces], axis=1).astype("<u8")
        offsets = np.arange(0, text.nbytes + 1, text.shape[1] * 8, dtype=np.int64)
        marks[rows] = kernel().digests(text.tobytes(), offsets)[:, :MARK_BYTES]
    return marks.view("<u8")


def _labels(table: Table) -> Column:
    """The label as a column: its class by name where classes have names."""
    assert table.labels is not None
    if table.classes:
        return CategoricalColumn(table.labels.astype(np.int64), table.classes)
    return NumericColumn(table.labels.astype(np.float64))


def _cells(column: Column) -> CellsOf:
    """What stands for each cell of a column, uint64[rows], whatever levels the rest of the table has."""
    if isinstance(column, ListColumn):
        items = np.array([*_levels(column.levels), 0], dtype="<u8")
        return lambda rows: _first_words(column, items, rows)
    if isinstance(column, CategoricalColumn):
        levels = np.array([*_levels(column.levels), 0], dtype=np.uint64)  # −1, missing, is the last
        return lambda rows: levels[column.codes[rows]]
    values = np.asarray(values_of(column), dtype=np.float64)
    return lambda rows: _bits(values[rows])


def _bits(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Numbers as their bits; NaN has many, and becomes one."""
    return np.where(np.isnan(values), _MISSING, values.view(np.uint64))


def _levels(levels: tuple[str, ...]) -> Iterator[int]:
    texts = Identifiers.from_items(level.encode() for level in levels)
    return iter(texts.ranks()[:, 0].tolist())


def _first_words(column: ListColumn, items: NDArray[np.uint64], rows: slice) -> NDArray[np.uint64]:
    """A digest of the items of each list."""
    from vfl_node.crypto.kernels import kernel

    starts = column.starts[rows.start : rows.stop + 1]
    text = items[column.codes[starts[0] : starts[-1]]].tobytes()
    digests = kernel().digests(text, 8 * (starts - starts[0]))
    return np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0]


def is_most(ever: Words | None, now: Words) -> bool:
    """Whether half of the smaller of two sets of marks are in both, of which ``ever`` is sorted by :func:`unite`."""
    if ever is None or not len(ever) or not len(now):
        return False
    common = int(_is_in(ever, now).sum())
    return common > 0 and 2 * common >= min(len(ever), len(now))


def unite(ever: Words | None, now: Words) -> Words:
    """The marks of either set, each once, sorted; ``now`` has none twice."""
    new = now if ever is None or not len(ever) else now[~_is_in(ever, now)]
    both = new if ever is None else np.concatenate([ever, new])
    return both[np.lexsort((both[:, 1], both[:, 0]))]


def _is_in(ever: Words, now: Words) -> NDArray[np.bool_]:
    near = np.minimum(np.searchsorted(ever[:, 0], now[:, 0]), len(ever) - 1)
    return (ever[near] == now).all(axis=1)  # of two with equal first halves one may be missed, as in find_in
