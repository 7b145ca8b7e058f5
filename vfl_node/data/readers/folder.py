"""A folder of part files, as Spark, Hive and Dask write one table: the rows of all parts, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.input_file import unreadable
from vfl_node.errors import DataError
from vfl_node.settings.declared import DecimalSign

_UNSEEN = ("_", ".")
"""Names that begin so are marks and checksums, such as ``_SUCCESS``, not parts."""

_WITH_OLD_ROWS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""Folder that lists which of the files count → the program that keeps it."""

_TEXT, _TEXTS = "string", ("string", "large_string", "string_view")
"""Types of text, which differ in how long it may be: a column that repeats is read as another one than it was written as."""

_ALIKE = "all parts have the same columns, of the same types, and in CSV a first line that names them"


def files_of(path: Path, source: str) -> list[Path]:
    """The part files of a folder of this machine, in the order of their names.

    Raises:
        DataError: as :func:`check_parts`, or it cannot be read (``E_FILE``).
        StateError: the machine has a problem, not the folder.
    """
    try:
        files = {file.name: file for file in path.iterdir()}
        folders = [name for name, file in files.items() if file.is_dir()]
    except OSError as error:
        raise unreadable(error, source) from None
    return [files[name] for name in check_parts(source, files, folders)]


def check_parts(source: str, names: Collection[str], folders: Collection[str]) -> list[str]:
    """Which of the ``names`` in a folder are parts, in their order; ``folders`` are those of them that are folders.

    Raises:
        DataError: there is no part (``E_FILE``), or a folder among them (``E_FORMAT``).
    """
    for log, program in _WITH_OLD_ROWS.items():
        if log in names:
            raise DataError(
                f"{source}: is a table of {program}, whose files also have rows of older versions",
                code="E_FORMAT",
                hint="export its present rows into a folder or a file of their own",
            )
    parts = sorted(name for name in names if not name.startswith(_UNSEEN))
    if inner := [name for name in parts if name in folders]:
        raise DataError(
            f"{source}: has a folder in it, {inner[0]}, and not part files alone",
            code="E_FORMAT",
            hint="move the parts into one folder, or give their rows by a query (data.query), which DuckDB runs over files",
        )
    if not parts:
        raise DataError(
            f"{source}: is a folder without part files",
            code="E_FILE",
            hint="set data.path to a file this user can read, or to a folder whose files are the parts of one table",
        )
    return parts


class PartFile(Protocol):
    """A file of the folder, wherever it is."""

    @property
    def name(self) -> str:
        """As errors name it."""


P = TypeVar("P", bound=PartFile)
P_contra = TypeVar("P_contra", bound=PartFile, contravariant=True)


class OpenPart(Protocol[P_contra]):
    """Opens one part."""

    def __call__(self, part: P_contra, **known: DecimalSign) -> Reader:
        """A reader of ``part``; the argument ``decimal`` is how a CSV writes decimals, if that is known of all parts."""


class FolderReader(Reader, Generic[P]):
    """A :class:`~vfl_node.data.readers.contract.Reader` of all files of a folder, in the order that they are given in.

    One is open at a time. Rows are counted over all parts, and empty parts are skipped.

    Args:
        source: party and folder, as errors name them.
        parts: its files.
        open_part: opens one of them.

    Raises:
        DataError: no part has a row (``E_EMPTY``), a part has other columns than the first (``E_COLUMN``), or is wrong itself.
        StateError: the machine has a problem, not the folder.
    """

    repeatable = True

    def __init__(self, source: str, parts: Iterable[P], *, open_part: OpenPart[P]) -> None:
        self.source = source
        self._open_part = open_part
        self._parts: list[P] = []
        for part in parts:
            with _skipping_empty(), closing(open_part(part)) as reader:
                self._add(part, reader)
        if not self._parts:
            raise self._empty()

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        some, kinds = False, dict[str, Any]()
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

    def _add(self, part: P, reader: Reader) -> None:
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


def _check_kinds(batch: RowBatch, kinds: dict[str, Any], source: str) -> None:
    """Refuse a column whose type is not that of the parts before; ``kinds`` grows by those that are new."""
    for field in batch.columns.schema:
        kind = getattr(field.type, "value_type", field.type)  # of categories, whose codes may be wider in another part
        kind = _TEXT if str(kind) in _TEXTS else kind
        if kinds.setdefault(field.name, kind) != kind:
            raise DataError(
                f"{source}: column {field.name!r} is of the type {kind}, and of {kinds[field.name]} in the parts before",
                code="E_COLUMN",
                hint=f"make it so that {_ALIKE}",
            )
