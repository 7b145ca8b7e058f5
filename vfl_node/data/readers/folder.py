"""A folder of part files, as Spark, Hive and Dask write one table: the rows of all parts, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.input_file import unreadable
from vfl_node.errors import DataError
from vfl_node.settings.declared import DecimalSign

if TYPE_CHECKING:
    import pyarrow as pa

_UNSEEN = ("_", ".")
"""Names that begin so are marks and checksums, such as ``_SUCCESS``, not parts."""

_WITH_OLD_ROWS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""Folder that lists which of the files count → the program that keeps it."""

_ALIKE = "all parts have the same columns, of the same types, and in CSV a first line that names them"


class OpenPart(Protocol):
    """Opens one part."""

    def __call__(self, path: Path, decimal: DecimalSign | None = None) -> Reader:
        """A reader of ``path``; ``decimal`` is how a CSV writes decimals, None: as its first rows suggest."""


class FolderReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of all files of a folder, in the order of their names.

    One is open at a time. Rows are counted over all parts, and empty parts are skipped.

    Args:
        path: of the folder.
        party: this party's name, for errors.
        open_part: opens one file.

    Raises:
        DataError: the folder has no part or cannot be read (``E_FILE``), or has a folder in it (``E_FORMAT``); a part has other
            columns than the first (``E_COLUMN``), or is wrong itself.
        StateError: the machine has a problem, not the folder.
    """

    repeatable = True

    def __init__(self, path: Path, *, party: str, open_part: OpenPart) -> None:
        self.source = f"{party}: {path}"
        self._open_part = open_part
        self._parts: list[Path] = []
        for part in self._files(path):
            with _skipping_empty(), closing(open_part(part)) as reader:
                self._add(part, reader)
        if not self._parts:
            raise self._empty()

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        some, kinds = False, dict[str, "pa.DataType"]()
        for part in self._parts:
            with _skipping_empty(), closing(self._open_part(part, decimal=self.decimal)) as reader:
                for batch in reader.batches(columns):
                    _check_kinds(batch, kinds, reader.source)
                    some = True
                    yield RowBatch(batch.columns)
        if not some:
            raise self._empty()

    def close(self) -> None:
        """Nothing to do: a part is closed when it has been read."""

    def _files(self, path: Path) -> list[Path]:
        try:
            for log, program in _WITH_OLD_ROWS.items():
                if (path / log).exists():
                    raise DataError(
                        f"{self.source}: is a table of {program}, whose files also have rows of older versions",
                        code="E_FORMAT",
                        hint="export its present rows into a folder or a file of their own",
                    )
            files = sorted(file for file in path.iterdir() if not file.name.startswith(_UNSEEN))
        except OSError as error:
            raise unreadable(error, self.source) from None
        if folders := [file for file in files if file.is_dir()]:
            raise DataError(
                f"{self.source}: has a folder in it, {folders[0].name}, and not part files alone",
                code="E_FORMAT",
                hint="move the parts into one folder, or give their rows by a query (data.query), which DuckDB runs over files",
            )
        if not files:
            raise DataError(
                f"{self.source}: is a folder without part files",
                code="E_FILE",
                hint="set data.path to a file this user can read, or to a folder whose files are the parts of one table",
            )
        return files

    def _add(self, part: Path, reader: Reader) -> None:
        if not self._parts:
            self.names = reader.names
        elif set(reader.names) != set(self.names):
            raise DataError(
                f"{reader.source}: has other columns than {self._parts[0].name}",
                code="E_COLUMN",
                hint=f"make it so that {_ALIKE}",
            )
        if reader.decimal_known and self.decimal == ".":  # a part of whole numbers only does not tell
            self.decimal, self.decimal_known = reader.decimal, True
        self._parts.append(part)
        self.format = f"{reader.format} in {len(self._parts)} {'part' if len(self._parts) == 1 else 'parts'}"

    def _empty(self) -> DataError:
        return DataError(f"{self.source}: has no rows", code="E_EMPTY")


@contextmanager
def _skipping_empty() -> Iterator[None]:
    """A part may have no rows, or not even a header."""
    try:
        yield
    except DataError as error:
        if error.code != "E_EMPTY":
            raise


def _check_kinds(batch: RowBatch, kinds: dict[str, pa.DataType], source: str) -> None:
    """Refuse a column whose type is not that of the parts before; ``kinds`` grows by those that are new."""
    for field in batch.columns.schema:
        kind = getattr(field.type, "value_type", field.type)  # of categories, whose codes may be wider in another part
        if kinds.setdefault(field.name, kind) != kind:
            raise DataError(
                f"{source}: column {field.name!r} is of the type {kind}, and of {kinds[field.name]} in the parts before",
                code="E_COLUMN",
                hint=f"make it so that {_ALIKE}",
            )
