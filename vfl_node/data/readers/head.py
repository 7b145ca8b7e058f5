"""The first rows of an input, for a look at a table that may be huge."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.data.readers.contract import Reader, RowBatch


class HeadReader:
    """A :class:`~vfl_node.data.readers.contract.Reader` of the first rows of another one.

    Args:
        reader: of the input; closed by whoever opened it. It is asked for one batch more than needed at the most.
        rows: how many, at least 1.

    Attributes:
        whole: whether these were all rows; known when the last one has been read.
    """

    def __init__(self, reader: Reader, rows: int) -> None:
        self.source, self.names = reader.source, reader.names
        self.whole = True
        self._reader, self._rows = reader, rows

    def batches(self) -> Iterator[RowBatch]:
        """As in the contract."""
        left = self._rows
        for batch in self._reader.batches():
            if len(batch.places) > left:
                self.whole = False
                if left:
                    yield RowBatch([cells[:left] for cells in batch.columns], batch.places[:left])
                return
            left -= len(batch.places)
            yield batch

    def close(self) -> None:
        """Close the other reader."""
        self._reader.close()
