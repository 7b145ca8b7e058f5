"""Keyed marks of records: by them a table is known again that has grown, whatever the order of its rows.

A record has a mark of its identifier and one of all its cells, 16 bytes each, by a secret of the node. Whoever has the secret
can test a guess of an identifier, so marks stay at the node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, NumericColumn, Table, values_of

MARK_BYTES = 16

_BATCH_BYTES = 1 << 24
_MISSING = np.frombuffer(np.float64(np.nan).tobytes(), np.uint64)[0]

Words = NDArray[np.uint64]
"""Marks as two numbers each, uint64[n, 2]."""


@dataclass(frozen=True, eq=False)
class Marks:
    """The marks of a table's n records, in the order of its rows.

    Attributes:
        ids: of the identifiers in their form ``text``, distinct.
        cells: of identifiers and all cells together, the label and the order included; not of groups and keys.
    """

    ids: Words
    cells: Words

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_table(cls, table: Table, secret: bytes) -> Marks:
        """The marks of ``table`` by a ``secret`` of 32 bytes. Cost: 1 s for a million rows of 50 cells."""
        ids = _digest(_key(secret, b"ids"), [(table.plain or table.ids).ranks().astype("<u8")])
        columns = [*table.columns.items(), *(() if table.labels is None else [("", _labels(table))])]
        schema = "\n".join(f"{type(column).__name__} {name!r}" for name, column in columns)
        cells = [_cells(column)[:, None] for _, column in columns] + (
            [] if table.order is None else [_bits(table.order)[:, None]]
        )
        return cls(ids, _digest(_key(secret, schema.encode()), [ids, *cells]))

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
        if not len(later):
            return np.full(len(self), -1, dtype=np.int64)
        first = later.ids[:, 0].astype(np.uint64)
        order = np.argsort(first)
        near = np.minimum(np.searchsorted(first[order], self.ids[:, 0]), len(order) - 1)
        places = order[near]  # two have equal first halves in one of 4·10⁷ tables of a million rows; then one is missed
        return np.where((later.ids[places] == self.ids).all(axis=1), places, -1)


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


def _key(secret: bytes, what: bytes) -> bytes:
    """16 bytes for marks of one kind, by the node's secret."""
    return hashlib.sha256(secret + what).digest()[:MARK_BYTES]


def _digest(key: bytes, parts: list[NDArray[np.uint64]]) -> Words:
    """16 bytes of SHA-256 over the key and each row of the parts. Rows are equally long: none is the beginning of another."""
    from vfl_node.crypto.kernels import kernel  # which loads what most commands do not need

    rows, width = len(parts[0]), MARK_BYTES + 8 * sum(part.shape[1] for part in parts)
    marks = np.empty((rows, MARK_BYTES), dtype=np.uint8)
    batch = max(1, _BATCH_BYTES // width)
    for start in range(0, rows, batch):
        piece = [part[start : start + batch] for part in parts]
        head = np.broadcast_to(np.frombuffer(key, dtype="<u8"), (len(piece[0]), 2))
        text = np.concatenate([head, *piece], axis=1).astype("<u8").tobytes()
        offsets = np.arange(0, len(text) + 1, width, dtype=np.int64)
        marks[start : start + batch] = kernel().digests(text, offsets)[:, :MARK_BYTES]
    return marks.view("<u8")


def _labels(table: Table) -> Column:
    """The label as a column: its class by name where classes have names."""
    assert table.labels is not None
    if table.classes:
        return CategoricalColumn(table.labels.astype(np.int64), table.classes)
    return NumericColumn(table.labels.astype(np.float64))


def _cells(column: Column) -> NDArray[np.uint64]:
    """What stands for each cell of a column, uint64[n], whatever levels the rest of the table has."""
    if isinstance(column, ListColumn):
        items = np.array([*_levels(column.levels), 0], dtype=np.uint64)[column.codes]
        return _first_words(items.astype("<u8").tobytes(), 8 * column.starts)
    if isinstance(column, CategoricalColumn):
        return np.array([*_levels(column.levels), 0], dtype=np.uint64)[column.codes]  # −1, missing, is the last
    return _bits(np.asarray(values_of(column), dtype=np.float64))


def _bits(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Numbers as their bits; NaN has many, and becomes one."""
    return np.where(np.isnan(values), _MISSING, values.view(np.uint64))


def _levels(levels: tuple[str, ...]) -> Iterator[int]:
    texts = Identifiers.from_items(level.encode() for level in levels)
    return iter(texts.ranks()[:, 0].tolist())


def _first_words(text: bytes, offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    from vfl_node.crypto.kernels import kernel

    digests = kernel().digests(text, offsets.astype(np.int64))
    return np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0]
