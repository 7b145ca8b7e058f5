"""What opens a party's input: by the settings, or by the first bytes of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vfl_node.data.readers.contract import OpenReader, Reader
from vfl_node.data.readers.csv import CsvReader
from vfl_node.data.readers.folder import FolderReader
from vfl_node.data.readers.input_file import GivenFile, InputFile, LocalFile, unreadable
from vfl_node.data.readers.parts import Stamp, find_parts, stamps_of
from vfl_node.errors import DataError, UsageError
from vfl_node.settings.declared import DecimalSign
from vfl_node.settings.source import READERS
from vfl_node.settings.store import ObjectStore
from vfl_node.settings.table import Data


def open_input(data: Data, *, party: str) -> Reader:
    """A reader of the party's table.

    Args:
        data: where it lies.
        party: this party's name, for errors.

    Raises:
        DataError, StateError: as :class:`~vfl_node.data.readers.contract.OpenReader`.
        UsageError: the package that declares the format, or reads the database, cannot be loaded (``E_EXTENSION``).
    """
    if data.query is not None:
        from vfl_node.data.readers.sql import open_query  # loads Arrow

        return open_query(data.query, database=data.database, password=data.database_password, party=party)
    if data.url is not None:
        return _open_stored(data, party)
    assert data.path is not None
    open_file: OpenReader = READERS[data.format]
    return open_file(data.path, party=party, **_said(data))


def open_sql(path: Path, *, party: str) -> Reader:
    """Refused: a query has no path."""
    raise UsageError(f"{party}: {path} is no query", code="E_CONFIG", hint="data: {query: 'select …', database: URL}")


def open_auto(path: Path, *, party: str, **said: Any) -> Reader:
    """A reader of a file, or of the parts that ``path`` means, by its first bytes; ``said`` is for CSV or Excel."""
    return _open(path, party, None, said)


def open_given(content: bytes, source: str) -> Reader:
    """A reader of a file that came as bytes, by the first of them; errors call it ``source``. No workbook is read."""
    file = GivenFile(content, source)
    if file.format() == "excel":
        hint = "export it as CSV in UTF-8, or as Parquet"
        raise DataError(f"{source}: is an Excel workbook", code="E_FORMAT", hint=hint)
    return _read(file, None, {})


def open_csv(path: Path, *, party: str, **dialect: Any) -> Reader:
    """A reader of a CSV file; the dialect is as of :class:`~vfl_node.data.readers.csv.CsvReader`."""
    return _open(path, party, "csv", dialect)


def open_parquet(path: Path, *, party: str) -> Reader:
    """A reader of a Parquet file."""
    return _open(path, party, "parquet", {})


def open_arrow(path: Path, *, party: str) -> Reader:
    """A reader of an Arrow file (Feather) or an Arrow stream."""
    return _open(path, party, "arrow", {})


def open_excel(path: Path, *, party: str, **said: Any) -> Reader:
    """A reader of an Excel workbook; what is said is as of :class:`~vfl_node.data.readers.excel.ExcelReader`."""
    return _open(path, party, "excel", said)


def _said(data: Data) -> dict[str, Any]:
    """What the settings say of how the table is written, for what reads it."""
    ids = (data.id,) if isinstance(data.id, str) else data.id
    return data.dialect | ({"sheet": data.sheet, "ids": ids} if data.format in ("auto", "excel") else {})


def _open(path: Path, party: str, expected: str | None, said: Mapping[str, Any]) -> Reader:
    def open_part(part: Path, **known: DecimalSign) -> Reader:
        return _read(LocalFile(part, party=party), expected, {**said, **known})

    source = f"{party}: {path}"
    if (parts := find_parts(path, source)) is None:
        return open_part(path)

    def watch() -> dict[str, Stamp]:
        try:
            return stamps_of(path)
        except OSError as error:
            raise unreadable(error, source) from None

    return FolderReader(source, parts, open_part=open_part, watch=watch)


def _open_stored(data: Data, party: str) -> Reader:
    """A reader of an object, or of the objects below a prefix."""
    from vfl_node.data.readers.objects import StoredObject, StoredTable  # loads Arrow's client

    assert data.url is not None
    expected = None if data.format == "auto" else data.format
    if expected not in (None, "csv", "parquet", "arrow", "excel"):
        text = f"{party}: {data.url} is read as CSV, Parquet, Arrow or Excel, not as {data.format}"
        raise UsageError(text, code="E_CONFIG", hint="leave data.format out")
    table = StoredTable(data.url, data.store or ObjectStore(), party=party)

    def open_part(part: StoredObject, **known: DecimalSign) -> Reader:
        return _read(part.open(), expected, {**_said(data), **known})

    parts = table.parts()
    return open_part(table.whole()) if parts is None else FolderReader(table.source, parts, open_part=open_part)


def _read(file: InputFile, expected: str | None, said: Mapping[str, Any]) -> Reader:
    try:
        format = file.format(expected, said.get("encoding", "utf-8"))
        if format == "csv":
            return CsvReader(file, **{key: value for key, value in said.items() if key not in ("sheet", "ids")})
        if format == "excel":
            from vfl_node.data.readers.excel import ExcelReader  # loads Arrow

            return ExcelReader(file, sheet=said.get("sheet"), ids=said.get("ids", ()))
        from vfl_node.data.readers.columnar import IpcReader, ParquetReader  # loads Arrow

        return ParquetReader(file) if format == "parquet" else IpcReader(file)
    except BaseException:
        file.close()
        raise
