"""The contract of a reader: the schema first, then batches of columns, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class RowBatch:
    """Some rows, column by column.

    Attributes:
        columns: the cells of each column, in the order of the reader's ``names``. A cell is text, whatever the
            format: without white space at its ends and without NUL characters; empty where there is no value.
            One set of rules decides for all formats what is a number or a missing value.
        places: where each row is in the input, for errors: the line of a file, from 1.
    """

    columns: Sequence[Sequence[str]]
    places: Sequence[int]


class Reader(Protocol):
    """Reads an input once, from its beginning to its end.

    Attributes:
        source: party and input, as errors name them.
        names: columns in the order of the input, distinct and not empty; known before any row is read.
    """

    source: str
    names: tuple[str, ...]

    def batches(self) -> Iterator[RowBatch]:
        """All rows in their order, at least one; called once. No batch is empty.

        Raises:
            DataError: the input is not what its format requires (``E_CSV`` for CSV), or has no rows (``E_EMPTY``).
                The text names the place, and never contains a cell.
            StateError: the machine has a problem, not the input (:func:`vfl_node.files.fault`).
        """

    def close(self) -> None:
        """Close the input. Idempotent."""


class OpenReader(Protocol):
    """Opens an input and reads its schema."""

    def __call__(self, path: Path, *, party: str) -> Reader:
        """A reader of ``path``; ``party`` is this party's name, for errors.

        Raises:
            DataError: it cannot be read (``E_FILE``), or its schema is wrong, as for :meth:`Reader.batches`.
            StateError: as :meth:`Reader.batches`.
        """
