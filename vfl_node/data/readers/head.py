"""The first rows of an input, for a look at a table that may be huge."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch


class HeadReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of the first rows of another one.

    Args:
        reader: of the input; closed by whoever opened it. It is asked for one batch more than needed at the most.
        rows: how many, at least 1.

    Attributes:
        whole: whether these were all rows; known when the last one has been read.
    """

    def __init__(self, reader: Reader, rows: int) -> None:
        self.source, self.names = reader.source, reader.names
        self.decimal, self.decimal_known, self.format = reader.decimal, reader.decimal_known, reader.format
        self.unit, self.whole = reader.unit, True
        self._reader, self._rows = reader, rows

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        left = self._rows
        for batch in self._reader.batches(columns):
            if batch.columns.num_rows > left:
                self.whole = False
                if left:
                    lines = None if batch.lines is None else batch.lines[:left]
                    yield replace(batch, columns=batch.columns.slice(0, left), lines=lines)
                return
            left -= batch.columns.num_rows
            yield batch

    def close(self) -> None:
        """Close the other reader."""
        self._reader.close()
