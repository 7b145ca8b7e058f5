"""An input as columns of text, with the place of each row, so that every error can name its place.

A batch of a column is stored as one string. So memory stays near the size of the input, whatever the number of cells.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from vfl_node.data.readers import READERS
from vfl_node.data.readers.contract import Reader

_SEPARATOR = "\0"  # no cell contains it


class TextColumns:
    """The cells of an input as text, without white space at their ends.

    Args:
        reader: read here to its end.

    Attributes:
        source: party and input, as errors name them.
        names: columns in the order of the input.

    Raises:
        DataError, StateError: as :meth:`vfl_node.data.readers.contract.Reader.batches`.
    """

    def __init__(self, reader: Reader) -> None:
        self.source = reader.source
        self.names = reader.names
        self._places = array("q")
        self._starts: list[int] = []  # first row of each batch
        self._packed: dict[str, list[str]] = {name: [] for name in reader.names}
        for batch in reader.batches():
            self._starts.append(len(self._places))
            self._places.extend(batch.places)
            for packed, cells in zip(self._packed.values(), batch.columns, strict=True):
                packed.append(_SEPARATOR.join(cells))
            del (
                batch,
                cells,
            )  # freed before the next batch is made, which is twice as fast: it stays in the cache of the processor

    def __len__(self) -> int:
        return len(self._places)

    def blocks(self, name: str) -> Iterator[list[str]]:
        """The cells of column ``name``, a batch of rows at a time."""
        for batch in self._packed[name]:
            yield batch.split(_SEPARATOR)

    def cells(self, name: str) -> Iterator[str]:
        """The cells of column ``name``."""
        return chain.from_iterable(self.blocks(name))

    def cell(self, name: str, row: int) -> str:
        """The cell of column ``name`` in row ``row``, counted from 0."""
        batch = bisect_right(self._starts, row) - 1
        return self._packed[name][batch].split(_SEPARATOR)[row - self._starts[batch]]

    def line(self, row: int) -> int:
        """The line of the file, from 1, where row ``row`` begins; its place in an input without lines."""
        return self._places[row]

    def where(self, name: str, row: int) -> str:
        """``party: path:line:column`` of one cell."""
        return f"{self.source}:{self.line(row)}:{name}"


def read_columns(path: Path, *, party: str, format: str = "csv") -> TextColumns:
    """Read an input whole, with the reader of its format.

    Args:
        path: of the input.
        party: this party's name, for errors.
        format: a name in :data:`vfl_node.data.readers.READERS`.

    Raises:
        DataError, StateError: as the reader of the format.
        UsageError: the package that declares the format cannot be loaded (``E_EXTENSION``).
    """
    with closing(READERS[format](path, party=party)) as reader:
        return TextColumns(reader)
