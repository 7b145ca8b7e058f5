"""Columns of lists, such as the films that a user has seen, ``17|4|22``: how they are read, and how they become codes.

=================  ====================================================================================
code               stands for
=================  ====================================================================================
0                  no item: a list is filled up with it to the length of the longest one
1 … L              the L items that enough fitted rows have in their list, in sorted order
L + 1              an item that fewer rows have, or that no fitted row has
=================  ====================================================================================

The last code exists if the fitted rows have a rare item. Otherwise nothing was learnt of items like an unseen one, which has
code 0. An item counts as often as a list has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vfl_node.configuration.models import Frozen
from vfl_node.data.missing_words import MISSING
from vfl_node.data.tables import ListColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.declared import DeclaredList

_BLOCK = 1 << 20  # items whose codes are looked up at a time


def lists_in(cells: Iterable[pa.Array], declared: DeclaredList) -> ListColumn:
    """The lists of a column.

    White space around an item does not count. Items that stand for a missing value
    (:data:`~vfl_node.data.missing_words.MISSING`) are left out, so an empty cell is an empty list. Of a list that is too long
    ``declared.keep`` stays.

    Args:
        cells: of text, some rows at a time; null: no value.
        declared: what the settings say of the column.

    Cost: about 1.3 µs an item where there are a million different ones, and 8 bytes; each different one is stored once.
    """
    missing = pa.array(sorted(MISSING), pa.large_string())
    batches: list[pa.DictionaryArray] = []
    counts: list[NDArray[np.int64]] = []
    cut = 0
    for chunk in cells:
        parts = pc.split_pattern(pc.fill_null(chunk.cast(pa.large_string()), ""), declared.separator)
        items = pc.utf8_trim_whitespace(parts.flatten())
        row = pc.list_parent_indices(parts).to_numpy().astype(np.int64)
        there = np.flatnonzero(~pc.is_in(items, value_set=missing).to_numpy(zero_copy_only=False))
        count = np.bincount(row[there], minlength=len(chunk))
        kept = _items_kept(count, declared)
        cut += int(np.count_nonzero(count > declared.longest))
        batches.append(items.take(pa.array(there[kept])).dictionary_encode())
        counts.append(np.minimum(count, declared.longest))
    codes, levels = _one_dictionary(batches)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return ListColumn(codes, starts, levels, declared, cut)


def _items_kept(counts: NDArray[np.int64], declared: DeclaredList) -> NDArray[np.bool_]:
    """Which items stay, of rows that have so many: bool[sum of counts]."""
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    if declared.keep == "first":
        return place < declared.longest
    return place >= np.repeat(counts, counts) - declared.longest


def _one_dictionary(batches: list[pa.DictionaryArray]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Codes of all batches, and the sorted items that they stand for."""
    kind = pa.dictionary(pa.int32(), pa.large_string())
    column = pa.chunked_array([batch.cast(kind) for batch in batches], kind).unify_dictionaries()
    if column.num_chunks == 0 or len(column) == 0:
        return np.empty(0, dtype=np.int64), ()
    texts = column.chunk(0).dictionary
    order = pc.array_sort_indices(texts).to_numpy()  # by bytes of UTF-8, as Python sorts text
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    used = np.zeros(len(order), dtype=np.bool_)
    indices = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
    used[rank[indices]] = True  # a dictionary may have items that were cut off
    levels = texts.take(pa.array(order[used])).to_pylist()
    return (np.cumsum(used) - 1)[rank[indices]].astype(np.int64), tuple(levels)


class ListLevels(Frozen):
    """How one column of lists is encoded: the item ``levels[k]`` has code k + 1.

    Attributes:
        levels: items that have a code of their own, sorted.
        other: whether rare and unseen items share the code after them; else an unseen one has code 0.
        length: codes of a row: as many items as the longest fitted list has, at least 1. Longer ones are cut as declared.
        declared: what the settings said of the column, which tables of other records are read by.
    """

    kind: Literal["list"] = "list"
    name: str
    levels: tuple[str, ...]
    other: bool = False
    length: int
    declared: DeclaredList

    @classmethod
    def fit(cls, name: str, column: ListColumn, rows: NDArray[np.int64], least_rows: int = 0) -> ListLevels:
        """Learn the items that the lists of ``least_rows`` of ``rows``, int64[k], have."""
        fitted = column.rows(rows)
        every = len(column.levels)
        pairs = np.unique(np.repeat(np.arange(len(rows)), fitted.lengths) * max(1, every) + fitted.codes)
        having = np.bincount(pairs % max(1, every), minlength=every)  # rows, each once
        kept = tuple(column.levels[code] for code in np.flatnonzero(having >= max(1, least_rows)))
        longest = int(fitted.lengths.max(initial=1))
        rare = len(kept) < np.count_nonzero(having)
        return cls(name=name, levels=kept, other=bool(rare), length=longest, declared=column.declared)

    @property
    def method(self) -> None:
        """None: there are no numbers."""

    @property
    def part(self) -> None:
        """None: it is no date."""

    @property
    def cardinality(self) -> int:
        """How many codes there are."""
        return len(self.levels) + 1 + self.other

    def apply(self, column: ListColumn) -> NDArray[np.int32]:
        """Codes int32[n, length], with 0 after the items of a row.

        Cost: 4 bytes a code, and time that follows from the items that there are and not from ``length``.
        """
        code_of = {level: code for code, level in enumerate(self.levels, start=1)}
        unseen = self.cardinality - 1 if self.other else 0
        of_level = np.array([code_of.get(level, unseen) for level in column.levels], dtype=np.int32)
        filled = np.zeros((len(column.lengths), self.length), dtype=np.int32)
        begin = column.starts[:-1]
        if self.declared.keep == "last":
            begin = np.maximum(begin, column.starts[1:] - self.length)
        for start in range(0, len(column.codes), _BLOCK):
            item = np.arange(start, min(start + _BLOCK, len(column.codes)))
            row = np.searchsorted(column.starts, item, side="right") - 1
            place = item - begin[row]
            read = (place >= 0) & (place < self.length)
            filled[row[read], place[read]] = of_level[column.codes[item[read]]]
        return filled

    def undo(self, codes: NDArray[np.int32]) -> ListColumn:
        """Lists that are encoded as ``codes``, int32[n, length]; the code of rare items becomes one that no table has."""
        there = codes > 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        levels = (*self.levels, "") if self.other else self.levels
        return ListColumn(codes[there].astype(np.int64) - 1, starts, levels, self.declared)


def check_lists(table: Table, party: str, *, read: bool) -> None:
    """Refuse to train on columns of lists a model that reads none, rather than leave them out unsaid.

    Args:
        table: of this party.
        party: its name.
        read: whether the model of the job reads lists.

    Raises:
        DataError: it does not, and there are some (``E_LIST``).
    """
    names = [name for name, column in table.columns.items() if isinstance(column, ListColumn)]
    if names and not read:
        raise DataError(
            f"{party}: column {names[0]!r} holds lists, and the model of the job does not read any",
            code="E_LIST",
            hint=f"agree on train.model: youtube_dnn, or declare {names[0]}: ignore in data.columns",
        )
