"""An input's file, opened once: what its first bytes say that it is, and its content, decompressed."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from typing_extensions import override

from vfl_node.errors import DataError, StateError
from vfl_node.process.files import fault
from vfl_node.settings.declared import ENCODINGS, Encoding

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 1 << 18
"""So many bytes are looked at to recognise a format or the dialect of a CSV."""

_EXPORT = "export it as CSV in UTF-8, or as Parquet"
_AS_XLSX = f"{_EXPORT}; a workbook also as xlsx without a password"
_QUERY = "query it: data: {{query: 'select * from TABLE', database: '{scheme}:///FILE'}}"
_UTF8 = "save the file as UTF-8"
_OR_SAY = f"{_UTF8}, or set data.encoding to what it is: {', '.join(ENCODINGS[1:])}"


@dataclass(frozen=True)
class Signature:
    """How files of a kind begin.

    Attributes:
        start: their first bytes.
        what: they are, after "is".
        hint: what helps whoever has one; empty if it can be read.
        format: what reads it, if it can be read.
        at: where ``start`` is.
    """

    start: bytes
    what: str
    hint: str = ""
    format: str = ""
    at: int = 0


SIGNATURES = (
    Signature(b"PAR1", "a Parquet file", format="parquet"),
    Signature(b"ARROW1\0\0", "an Arrow file (Feather)", format="arrow"),
    Signature(b"\xff\xff\xff\xff", "an Arrow stream", format="arrow"),
    Signature(b"FEA1", "a Feather file of version 1", "write it as Parquet, or as Feather of version 2"),
    Signature(b"PK\x03\x04", "a ZIP archive", "unpack it; or compress the table itself by gzip or zstd"),
    Signature(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an older Excel or Office, or has a password", _AS_XLSX),
    Signature(b"%PDF", "a PDF document", _EXPORT),
    Signature(b"{\\rtf", "an RTF document", _EXPORT),
    Signature(b"SQLite format 3\0", "an SQLite database", _QUERY.format(scheme="sqlite")),
    Signature(b"DUCK", "a DuckDB database", _QUERY.format(scheme="duckdb"), at=8),
    Signature(b"BZh", "compressed by bzip2", "compress it by gzip or zstd, or not at all"),
    Signature(b"\xfd7zXZ\0", "compressed by xz", "compress it by gzip or zstd, or not at all"),
    Signature(b"\x04\x22\x4d\x18", "compressed by LZ4", "compress it by gzip or zstd, or not at all"),
    Signature(b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it"),
    Signature(b"Rar!", "a RAR archive", "unpack it"),
    Signature(b"ustar", "a TAR archive", "unpack it", at=257),
    Signature(b"\x80\x02", "a pickle of Python", "write it as Parquet: pandas has DataFrame.to_parquet"),
    Signature(b"\x80\x03", "a pickle of Python", "write it as Parquet: pandas has DataFrame.to_parquet"),
    Signature(b"\x80\x04", "a pickle of Python", "write it as Parquet: pandas has DataFrame.to_parquet"),
    Signature(b"\x80\x05", "a pickle of Python", "write it as Parquet: pandas has DataFrame.to_parquet"),
    Signature(b"\x93NUMPY", "an array of NumPy", "write it as CSV or Parquet, with names of columns"),
    Signature(b"\x89HDF\r\n\x1a\n", "an HDF5 file", "write it as Parquet"),
    Signature(b"ORC", "an ORC file", "write it as Parquet"),
    Signature(b"Obj\x01", "an Avro file", "write it as Parquet"),
    Signature(b"$FL2", "an SPSS file", _EXPORT),
    Signature(b"<stata_dta>", "a Stata file", _EXPORT),
    Signature(b"\x89PNG", "a picture", "set data.path to the table"),
    Signature(b"\xff\xd8\xff", "a picture", "set data.path to the table"),
    Signature(codecs.BOM_UTF16_LE, "UTF-16 or UTF-32", _UTF8),  # the mark of UTF-32-LE begins so too
    Signature(codecs.BOM_UTF16_BE, "UTF-16 or UTF-32", _UTF8),
    Signature(codecs.BOM_UTF32_BE, "UTF-16 or UTF-32", _UTF8),
)

_EXCEL = Signature(b"", "an Excel workbook", format="excel")
_OFFICE = Signature(b"", "a document of Office", _EXPORT)
_IN_ARCHIVES = {b"xl/": _EXCEL, b"[Content_Types].xml": _OFFICE, b"opendocument.": _OFFICE}
"""What a ZIP archive of a program has at its beginning → what it is; the first that fits."""

_MARKUP = (
    (b"<!doctype html", "a web page (HTML), perhaps of a log-in", "download the table itself"),
    (b"<html", "a web page (HTML), perhaps of a log-in", "download the table itself"),
    (b"<?xml", "XML", _EXPORT),
    (b'{"', "JSON", _EXPORT),
    (b"[{", "JSON", _EXPORT),
    (b"[[", "JSON", _EXPORT),
)
_NAMES = {"csv": "CSV", "parquet": "Parquet", "arrow": "Arrow", "excel": "Excel"}


class InputFile(ABC):
    """An input's file, wherever it is.

    Args:
        source: party and place, as errors name them.

    Attributes:
        source: party and place, as errors name them.
        file: the file.
        content: its bytes, decompressed; at their beginning.
        compressed: by what; empty if it is not.
        is_remote: whether each piece that is read is asked for over a network.
        other_encoding: what helps whoever has text in another encoding than the settings say.

    Raises:
        DataError: it cannot be opened or read (``E_FILE``).
        StateError: the machine has a problem, not the file.
    """

    is_remote = False
    other_encoding = _OR_SAY

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self.file = self._open()
        except OSError as error:
            raise (self.refusal(error) or self._damage_error()) from None
        try:
            start = self.file.read(HEAD_BYTES)
            self.compressed = "gzip" if start[:2] == b"\x1f\x8b" else "zstd" if start[:4] == b"\x28\xb5\x2f\xfd" else ""
            self.content: BinaryIO = self.file
            self.rewind()
            self._head = self.read(HEAD_BYTES) if self.compressed else start
            self.rewind()
        except OSError as error:
            self.close()
            raise (self.refusal(error) or self._damage_error()) from None
        except BaseException:
            self.close()
            raise

    def format(self, expected: str | None = None, encoding: Encoding = "utf-8") -> str:
        """What reads it; ``csv`` for whatever is nothing else.

        Args:
            expected: by the settings; None: they say nothing.
            encoding: of text, by the settings.

        Raises:
            DataError: nothing reads it, or not what the settings say (``E_FORMAT``; ``E_CSV`` for another encoding of text).
        """
        signature = _signature(self._head)
        if signature is None or not signature.format:
            if signature and signature.hint == _UTF8 and encoding != "utf-16":
                what = f"{signature.what}, not {'UTF-8' if encoding == 'utf-8' else encoding}"
                raise DataError(f"{self.source}: is {what}", code="E_CSV", hint=self.other_encoding)
            if signature and signature.hint != _UTF8:
                raise DataError(f"{self.source}: is {signature.what}", code="E_FORMAT", hint=signature.hint)
            if expected not in (None, "csv"):
                raise DataError(
                    f"{self.source}: is no {_NAMES[expected]} file",
                    code="E_FORMAT",
                    hint="leave data.format out: the first bytes of a file tell what it is",
                )
            return "csv"
        if self.compressed:
            raise DataError(
                f"{self.source}: is {signature.what} compressed by {self.compressed}",
                code="E_FORMAT",
                hint="decompress it: only CSV is read compressed; other formats compress their content themselves",
            )
        if expected not in (None, signature.format):
            raise DataError(
                f"{self.source}: is {signature.what}, not {_NAMES[expected]}",
                code="E_FORMAT",
                hint=f"leave data.format out, or set it to {signature.format}",
            )
        return signature.format

    def starts_with(self, start: bytes) -> bool:
        """Whether these are the first bytes of the content."""
        return self._head.startswith(start)

    def rewind(self) -> None:
        """Go back to the beginning of the content."""
        self.check()
        self.file.seek(0)
        if self.compressed == "gzip":
            self.content = gzip.GzipFile(fileobj=self.file)  # type: ignore[assignment]
        elif self.compressed == "zstd":
            import pyarrow as pa

            self.content = io.BufferedReader(pa.CompressedInputStream(self.native(), "zstd"))
        else:
            self.content = self.file

    @abstractmethod
    def _open(self) -> BinaryIO:
        """Its bytes, at their beginning."""

    @abstractmethod
    def native(self) -> pa.NativeFile:
        """The file for Arrow, which closes what it is given."""

    @abstractmethod
    def check(self) -> None:
        """Refuse another version of the file than before (DataError, ``E_CSV``): a reading begins and ends with this."""

    @abstractmethod
    def refusal(self, error: OSError) -> DataError | StateError | None:
        """What it means that the file was not opened or read; None: its content is wrong, and not its place."""

    def read(self, size: int) -> bytes:
        """The next bytes of the content, ``size`` of them unless it ends.

        Raises:
            DataError: it is damaged or cut off (``E_CSV``), or cannot be read (``E_FILE``).
            StateError: the machine has a problem, not the file.
        """
        try:
            data = self.content.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise self._damage_error() from None
        except OSError as error:
            raise (self.refusal(error) or self._damage_error()) from None

        if not data:
            self.check()
        return data

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.file.close()

    def _damage_error(self) -> DataError:
        return damage_of(self.source, self.compressed)


def damage_of(source: str, compressed: str = "") -> DataError:
    """The error of a file whose content breaks off, or cannot be decompressed."""
    by = f" ({compressed})" if compressed else ""
    return DataError(f"{source}: is damaged or cut off{by}", code="E_CSV", hint="copy or compress the file again")


class LocalFile(InputFile):
    """A file of this machine.

    Args:
        path: of it.
        party: this party's name, for errors.
    """

    def __init__(self, path: Path, *, party: str) -> None:
        self._path = path
        super().__init__(f"{party}: {path}")

    @override
    def _open(self) -> BinaryIO:
        return self._path.open("rb")

    @override
    def native(self) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(os.fdopen(os.dup(self.file.fileno()), "rb"), "r")

    @override
    def check(self) -> None:
        """Nothing: a file that is replaced stays the same one here."""

    @override
    def refusal(self, error: OSError) -> DataError | StateError | None:
        return None if error.errno is None else unreadable(error, self.source)  # else a decompressor's


class GivenFile(InputFile):
    """A file that came as bytes.

    Args:
        content: all of them.
        source: party and what it is, for errors.
    """

    other_encoding = _UTF8

    def __init__(self, content: bytes, source: str) -> None:
        self._content = content
        super().__init__(source)

    @override
    def _open(self) -> BinaryIO:
        return io.BytesIO(self._content)

    @override
    def native(self) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self._content)

    @override
    def check(self) -> None:
        """Nothing: these bytes do not change."""

    @override
    def refusal(self, error: OSError) -> DataError | StateError | None:
        return None  # a decompressor's


def _signature(head: bytes) -> Signature | None:
    for signature in SIGNATURES:
        if head.startswith(signature.start, signature.at):
            inside = _IN_ARCHIVES if signature.start == b"PK\x03\x04" else {}
            return next((kind for mark, kind in inside.items() if mark in head), signature)
    begins = head.removeprefix(codecs.BOM_UTF8).lstrip()[:16].lower()
    for start, what, hint in _MARKUP:
        if begins.startswith(start):
            return Signature(start, what, hint)
    return None


def unreadable(error: OSError, source: str) -> DataError | StateError:
    """What it means that the system refused to open or read the file: a wrong path, or a problem of the machine."""
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        hint = "set data.path to a file this user can read"
        return DataError(f"{source}: cannot be read ({error.strerror})", code="E_FILE", hint=hint)
    return fault(error)
