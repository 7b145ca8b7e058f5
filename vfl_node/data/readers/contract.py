"""The contract of a reader: the names of the columns first, then batches of rows as Arrow columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from vfl_node.data.merged import MergedRows
from vfl_node.settings.declared import DecimalSign

if TYPE_CHECKING:  # settings know the names of readers, and load no Arrow
    import pyarrow as pa


@dataclass(frozen=True)
class RowBatch:
    """Some rows, column by column.

    Attributes:
        columns: the cells; each column of any type that has a text (docs/guides/give-tables.md lists them). Null is a missing
            value. In columns of text the spellings of a missing value count too, and white space at the ends of a cell does not
            count: the reader removes it, and no cell has a NUL character.
        lines: the line of a file where each row begins, from 1, for errors; None for an input without lines, whose
            rows are counted from 1.
        source: party and part file that all these rows are from, for errors, where an input has several; then ``lines`` are
            those of this part, or its rows. Empty: the reader's.
    """

    columns: pa.RecordBatch
    lines: Sequence[int] | None = None
    source: str = ""


class Reader(Protocol):
    """Reads an input. A class that names it as its base inherits what is given here.

    Attributes:
        source: party and input, as errors name them.
        names: columns in the order of the input, distinct and not empty; known before any row is read.
        repeatable: whether :meth:`batches` may be called again, for the same rows in the same order.
        decimal: how cells of text write decimals, ``.`` or ``,``.
        decimal_known: whether that is sure, because it was said or nothing else is possible; else it is a guess.
        format: what is read, in a few words for its owner.
        unit: what :attr:`RowBatch.lines` counts, where there are any.
        merged: how many rows became the records; None: each row is one.
    """

    source: str
    names: tuple[str, ...]
    repeatable: bool = False
    decimal: DecimalSign = "."
    decimal_known: bool = False
    format: str = ""
    unit: Literal["line", "row"] = "line"
    merged: MergedRows | None = None

    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        """All rows in their order, at least one. No batch is empty.

        Args:
            columns: those that are needed; None: all. A batch may have more columns than these.

        Raises:
            DataError: the input is not what its format requires (``E_CSV`` for CSV), or has no rows (``E_EMPTY``).
                The text names the place, and never contains a cell.
            StateError: the machine has a problem, not the input (:func:`vfl_node.process.files.fault`).
        """
        ...

    def close(self) -> None:
        """Close the input. Idempotent."""


class OpenReader(Protocol):
    """Opens an input and reads the names of its columns."""

    def __call__(self, path: Path, *, party: str) -> Reader:
        """A reader of ``path``; ``party`` is this party's name, for errors.

        Raises:
            DataError: it cannot be read (``E_FILE``), or its columns are wrong, as for :meth:`Reader.batches`.
            StateError: as :meth:`Reader.batches`.
        """
