"""What a workbook would take is known before it does: an Excel file is a ZIP archive, and a small one may unpack to anything.

Two things take memory: what the archive unpacks to, and the rectangle from the first to the last cell of a sheet, which the
library allocates as a whole. All members are unpacked here in pieces, whatever sizes the archive claims, and the places of
their cells are looked at.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from typing import IO

from vfl_node.data.readers.input_file import InputFile, damage_of
from vfl_node.errors import DataError

MOST_PACKED_BYTES = 1 << 28
MOST_BYTES = 1 << 30
"""So much may a workbook unpack to: a million rows of twenty columns have about half."""

MOST_CELLS = 1 << 25
"""So many cells may a sheet have from its first to its last row and column, empty ones included; each takes 32 bytes."""

_MEMBERS = 10_000
_PIECE_BYTES = 1 << 20
_LONGEST_CELL = 1 << 22

_PLAIN_PLACE = re.compile(rb'<c r="([A-Z]+)([0-9]+)"')
"""As most programs write it, which is quicker to find."""

_PLACE = re.compile(rb"<(?:\w+:)?c\s[^>]*?\br=[\"']([A-Za-z]+)([0-9]+)[\"']")
_CELL = re.compile(rb"<(?:\w+:)?c[\s/>]")
_NO_RESULT = re.compile(
    rb"<(?:\w+:)?c(?![^>]*\bt=[\"']str[\"'])(?:\s[^>]*)?>\s*<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:</(?:\w+:)?c>|<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</)"
)
"""A formula whose result the file does not have; an empty text is a result."""

_OR_EXPORT = "or export the table as CSV in UTF-8, or as Parquet"


def read_workbook(file: InputFile) -> bytes:
    """The bytes of an Excel workbook that is small enough.

    Raises:
        DataError: it is damaged or cut off (``E_CSV``), too large, in the binary form, or has a formula without a result or a
            cell without its place (``E_FORMAT``).
        StateError: the machine has a problem, not the file.
    """
    file.rewind()
    pieces, size = [], 0
    while size <= MOST_PACKED_BYTES and (piece := file.read(_PIECE_BYTES)):  # at its end, the file looks whether it has changed
        pieces.append(piece)
        size += len(piece)
    content = b"".join(pieces)
    if len(content) > MOST_PACKED_BYTES or content.count(b"PK\x01\x02") > _MEMBERS:
        raise _too_large(file.source)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if "xl/workbook.xml" not in archive.namelist():
                raise _refusal(file.source, "is a document of Office, or an Excel workbook in binary form", "save it as xlsx")
            left = MOST_BYTES
            for member in archive.infolist():
                member.file_size = MOST_BYTES + 1  # what the archive claims is not believed
                with archive.open(member) as stream:
                    left = _look_through(stream, left, file.source)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError):
        raise damage_of(file.source) from None
    return content


def _look_through(stream: IO[bytes], left: int, source: str) -> int:
    """How many bytes may still be unpacked after a member; ``left`` may before. Raises: as :func:`read_workbook`."""
    begun = b""  # a cell of which the end was not read yet
    rows, widths = 0, {b""}
    while piece := stream.read(_PIECE_BYTES):
        if (left := left - len(piece)) < 0:
            raise _too_large(source)
        text = begun + piece
        end = max(text.rfind(b"<c"), text.rfind(b"<", len(text) - _PIECE_BYTES // 2) if len(text) > _LONGEST_CELL else 0)
        whole, begun = (text[:end], text[end:]) if end > 0 else (b"", text)
        rows = _look_at(whole, rows, widths, source)
        if len(begun) > 2 * _LONGEST_CELL:
            rows, begun = _look_at(begun, rows, widths, source), b""
    rows = _look_at(begun, rows, widths, source)
    if rows * max(map(_number, widths)) > MOST_CELLS:
        what = f"has a cell in row {rows:,} and one in column {max(map(_number, widths)):,}, so more than {MOST_CELLS:,} cells"
        raise _refusal(source, what, f"delete what is far from the table, {_OR_EXPORT}")
    return left


def _look_at(text: bytes, rows: int, widths: set[bytes], source: str) -> int:
    """The last row of the cells in ``text`` and before; their columns are added to ``widths``."""
    places, cells = _PLAIN_PLACE.findall(text), len(_CELL.findall(text))
    if len(places) < cells and len(places := _PLACE.findall(text)) < cells:
        raise _refusal(source, "has cells without a place (r)", f"save it by Excel or LibreOffice, {_OR_EXPORT}")
    if (b"<f" in text or b":f" in text) and _NO_RESULT.search(text):  # most tables have no formulas, which is quick to see
        raise _refusal(source, "has formulas without their results", "open it in Excel or LibreOffice, and save it")
    widths.update(letters for letters, _ in places)
    return max(rows, max(map(int, {row for _, row in places}), default=0))


def _number(letters: bytes) -> int:
    """A column's number, from 1; more than any has for long ``letters``."""
    return sum((letter - ord("A") + 1) * 26**place for place, letter in enumerate(reversed(letters.upper()[-9:])))


def _too_large(source: str) -> DataError:
    most = f"{MOST_PACKED_BYTES >> 20} MiB, or {MOST_BYTES >> 20} MiB when it is unpacked"
    return _refusal(source, f"is an Excel workbook of more than {most}", "export the table as CSV in UTF-8, or as Parquet")


def _refusal(source: str, what: str, hint: str) -> DataError:
    return DataError(f"{source}: {what}", code="E_FORMAT", hint=hint)
