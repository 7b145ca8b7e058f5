"""Excel workbooks (xlsx, xlsm): one sheet is the table. Cells have the types that Excel gives them."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from vfl_node.data.cells import text_of
from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.input_file import InputFile, damage_of
from vfl_node.data.readers.names import column_names
from vfl_node.data.readers.typed import typed_batches
from vfl_node.data.readers.workbook import read_workbook
from vfl_node.errors import DataError, UsageError

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

T = TypeVar("T")

_ROWS = 1 << 14
"""So many rows are Python's objects at a time."""

_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    float: pa.float64(),
    bool: pa.bool_(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
    time: pa.time64("us"),
}
_INEXACT = 2**53
"""A larger whole number is no longer told from the next one."""

_DAY = timedelta(days=1)


class ExcelReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a sheet, whose first row that is not empty names the columns.

    A column of one type of cells has this type; a column of several is text. Empty rows are skipped.

    Args:
        file: closed here, as all of it is read.
        sheet: its name; None: the first one that is not hidden.
        ids: columns that identify records.

    Raises:
        DataError: as :func:`~vfl_node.data.readers.workbook.read_workbook`; there is no such sheet (``E_FORMAT``), it is empty
            (``E_EMPTY``), a column has no name of its own (``E_CSV``), or an id is a number of too many digits (``E_ID``).
        StateError: the machine has a problem, not the file.
        UsageError: the package that reads workbooks is not installed (``E_EXTENSION``).
    """

    repeatable = True
    unit = "row"

    def __init__(self, file: InputFile, *, sheet: str | None = None, ids: Collection[str] = ()) -> None:
        self.source = file.source
        try:
            from python_calamine import CalamineWorkbook
        except ImportError:
            raise UsageError(
                f"{self.source}: is an Excel workbook, and python-calamine, which reads it, is not installed",
                code="E_EXTENSION",
                hint="pip install 'vfl-node[excel]', or export the table as CSV in UTF-8 or as Parquet",
            ) from None
        content = read_workbook(file)
        file.close()
        with self._usable(lambda: CalamineWorkbook.from_filelike(io.BytesIO(content))) as workbook:
            name = self._choose(workbook, sheet)
            cells = self._usable(lambda: workbook.get_sheet_by_name(name))
            rows = ((number, row) for number, row in enumerate(cells.iter_rows(), 1) if any(cell != "" for cell in row))
            header = next(rows, None)
            if header is None:
                raise DataError(f"{self.source}: sheet {name!r} is empty", code="E_EMPTY")
            columns: list[list[dict[type, pa.Array]]] = [[] for _ in header[1]]
            self._lines: list[list[int]] = []
            while some := list(islice(rows, _ROWS)):
                self._lines.append([number for number, _ in some])
                for parts, column in zip(columns, zip(*(row for _, row in some), strict=True), strict=True):
                    parts.append(_sort_by_type(column))
        used = [place for place, title in enumerate(header[1]) if title != "" or any(columns[place])]
        self.names = column_names([_title(header[1][place]) for place in used], f"{self.source}:{header[0]}")
        for name, place in zip(self.names, used, strict=True):
            if name in ids:
                self._check_id(name, columns[place])
        sizes = list(map(len, self._lines))
        self._columns = [_unify(columns[place], sizes) for place in used]

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        chosen = [place for place, name in enumerate(self.names) if columns is None or name in columns]
        names = [self.names[place] for place in chosen]
        batches = (
            pa.RecordBatch.from_arrays([self._columns[place][number] for place in chosen], names)
            for number in range(len(self._lines))
        )
        for batch, lines in zip(typed_batches(batches, names, None, self.source), self._lines, strict=True):
            yield replace(batch, lines=lines)

    def close(self) -> None:
        """Nothing to do: the sheet is in memory."""

    def _choose(self, workbook: CalamineWorkbook, wanted: str | None) -> str:
        from python_calamine import SheetTypeEnum, SheetVisibleEnum

        sheets = [sheet for sheet in workbook.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        seen = [sheet.name for sheet in sheets if sheet.visible == SheetVisibleEnum.Visible]
        names = [sheet.name for sheet in sheets]
        chosen = wanted if wanted in names else None if wanted else next(iter(seen or names), None)
        if chosen is None:
            raise DataError(
                f"{self.source}: has no sheet {wanted!r} (data.sheet)" if wanted else f"{self.source}: has no sheet of cells",
                code="E_FORMAT",
                hint=f"its sheets: {', '.join(names)}" if names else "set data.path to the table",
            )
        self.format = f"excel, sheet {chosen!r}" + (f" of {len(names)}" if len(names) > 1 else "")
        return chosen

    def _usable(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except BaseException as error:  # a defect in Rust is no Exception
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise damage_of(self.source) from None
            raise

    def _check_id(self, name: str, parts: Sequence[dict[type, pa.Array]]) -> None:
        for part, lines in zip(parts, self._lines, strict=True):
            if float in part and (large := pc.greater_equal(pc.abs(part[float]), float(_INEXACT))).true_count:
                line = lines[pc.index(large, True).as_py()]
                raise DataError(
                    f"{self.source}:row {line}:{name}: the identifier is a number of 2^53 or more, and Excel has rounded it",
                    code="E_ID",
                    hint="export the ids again from where they come, into cells that are formatted as text",
                )


def _sort_by_type(cells: Sequence[Any]) -> dict[type, pa.Array]:
    """Type of cells → the cells of this type, and null for others; empty cells have none."""
    alike = set(map(type, cells))
    if alike == {float} or (alike == {str} and any(cells)):  # most columns, quickly
        return {kind: pa.array(cells, _TYPES[kind]) for kind in alike}
    cells = [cell / _DAY if type(cell) is timedelta else float(cell) if type(cell) is int else cell for cell in cells]
    kinds = [type(cell) if cell != "" else None for cell in cells]
    return {
        kind: pa.array(
            [cell if own is kind else None for cell, own in zip(cells, kinds, strict=True)],
            _TYPES[kind],
        )
        for kind in dict.fromkeys(kind for kind in kinds if kind is not None)
    }


def _unify(parts: Sequence[dict[type, pa.Array]], sizes: Sequence[int]) -> list[pa.Array]:
    """The pieces of a column, of ``sizes`` rows, as one type; ``parts`` as :func:`_sort_by_type` gives them."""
    kinds = {kind for part in parts for kind in part}
    if kinds == {date, datetime}:
        return [_merge(part.values(), pa.timestamp("us"), size) for part, size in zip(parts, sizes, strict=True)]
    if len(kinds) < 2:
        kind = _TYPES[next(iter(kinds), str)]
        return [_merge(part.values(), kind, size) for part, size in zip(parts, sizes, strict=True)]
    return [_merge(map(text_of, part.values()), pa.string(), size) for part, size in zip(parts, sizes, strict=True)]


def _merge(arrays: Iterable[pa.Array], kind: pa.DataType, size: int) -> pa.Array:
    """The only value of each row that is not null."""
    cast = [array.cast(kind) for array in arrays]
    return pc.coalesce(*cast) if cast else pa.nulls(size, kind)


def _title(cell: Any) -> str:
    """The text of a cell of the header."""
    return cell if isinstance(cell, str) else text_of(pa.array([cell]))[0].as_py()
