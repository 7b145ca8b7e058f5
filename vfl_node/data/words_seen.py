"""Which words for a missing value the cells of a table hold, for a look at it. All of them are of lists, or the owner's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from vfl_node.data.cells import absent, text_of
from vfl_node.data.missing_words import ABSENT, MISSING
from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.settings.declared import notation_of
from vfl_node.settings.node import Data


class WordsReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of the rows of another one, whose words it counts meanwhile.

    Args:
        reader: of the input; closed by whoever opened it.
        data: of the settings.

    Attributes:
        seen: column → word, as it is spelled → rows that have it, of the columns that were read.
    """

    def __init__(self, reader: Reader, data: Data) -> None:
        self.source, self.names, self.repeatable = reader.source, reader.names, reader.repeatable
        self.decimal, self.decimal_known, self.format = reader.decimal, reader.decimal_known, reader.format
        self.unit, self.merged = reader.unit, reader.merged
        self.seen: dict[str, Counter[str]] = {}
        self._reader = reader
        self._words = {name: _own(data, name) | ABSENT | set(map(str.lower, MISSING)) - {""} for name in reader.names}

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        counted: dict[str, Counter[str]] = {}
        for batch in self._reader.batches(columns):
            for name, column in zip(batch.columns.schema.names, batch.columns.columns, strict=True):
                counted.setdefault(name, Counter()).update(_count(column, self._words[name]))
            self.seen |= counted
            yield batch

    def close(self) -> None:
        """Close the other reader."""
        self._reader.close()


def missing_among(seen: Mapping[str, int], data: Data, name: str, *, numbers: bool) -> dict[str, int]:
    """Those of the words in a column that were read as missing values.

    Args:
        seen: word → rows.
        data: of the settings.
        name: of the column.
        numbers: whether it is one of numbers or dates.
    """
    words = _own(data, name) | (ABSENT if numbers else frozenset())
    return {word: rows for word, rows in seen.items() if word in MISSING or word.lower() in words}


def _own(data: Data, name: str) -> set[str]:
    """The owner's words in small letters."""
    return set(map(str.lower, notation_of(data.columns.get(name), data.notation).missing))


def _count(cells: pa.Array, words: Collection[str]) -> dict[str, int]:
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return {}
    text = text_of(cells)
    found = pc.value_counts(text.filter(pa.array(absent(text, words))))
    return {str(each["values"]): int(each["counts"]) for each in found.to_pylist()}
