"""Excel workbooks as programs write them, for tests: cells in the text of the sheet or in a list of texts beside it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
STYLES = (
    f'{HEAD}<styleSheet xmlns="{NAMESPACE}"><cellXfs count="4"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/>'
    '<xf numFmtId="21"/></cellXfs></styleSheet>'
)
EPOCH = datetime(1899, 12, 30)


class Raw(str):
    """The XML of a cell within its element."""


def letters(column: int) -> str:
    """The name of a column, from 0."""
    return ("" if column < 26 else letters(column // 26 - 1)) + chr(ord("A") + column % 26)


def cell_of(cell: Any, place: str, texts: list[str] | None) -> str:
    if isinstance(cell, Raw):
        return f'<c r="{place}">{cell}</c>'
    if cell is None or cell == "":
        return ""
    if isinstance(cell, bool):
        return f'<c r="{place}" t="b"><v>{int(cell)}</v></c>'
    if isinstance(cell, datetime):
        return f'<c r="{place}" s="2"><v>{(cell - EPOCH).total_seconds() / 86400!r}</v></c>'
    if isinstance(cell, date):
        return f'<c r="{place}" s="1"><v>{(cell - EPOCH.date()).days}</v></c>'
    if isinstance(cell, time):
        return f'<c r="{place}" s="3"><v>{(cell.hour * 3600 + cell.minute * 60 + cell.second) / 86400!r}</v></c>'
    if isinstance(cell, int | float):
        return f'<c r="{place}"><v>{cell!r}</v></c>'
    if texts is None:
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(cell)}</t></is></c>'
    texts.append(cell)
    return f'<c r="{place}" t="s"><v>{len(texts) - 1}</v></c>'


def sheet_of(rows: Sequence[Sequence[Any]], texts: list[str] | None = None, first: int = 1) -> str:
    """The XML of a sheet whose rows begin at ``first``."""
    lines = [
        f'<row r="{number}">{"".join(cell_of(cell, f"{letters(at)}{number}", texts) for at, cell in enumerate(row))}</row>'
        for number, row in enumerate(rows, first)
    ]
    return f'{HEAD}<worksheet xmlns="{NAMESPACE}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def write_workbook(
    path: Path, sheets: Mapping[str, Sequence[Sequence[Any]] | str], *, shared: bool = False, hidden: str = "", first: int = 1
) -> Path:
    """A workbook of ``sheets``: name → its rows, or its XML."""
    texts: list[str] | None = [] if shared else None
    files = {"xl/styles.xml": STYLES}
    listed, related = "", f'<Relationship Id="rId0" Type="{OFFICE}/styles" Target="styles.xml"/>'
    for number, (name, rows) in enumerate(sheets.items(), 1):
        files[f"xl/worksheets/sheet{number}.xml"] = rows if isinstance(rows, str) else sheet_of(rows, texts, first)
        state = ' state="hidden"' if name == hidden else ""
        listed += f'<sheet name="{escape(name)}" sheetId="{number}"{state} r:id="rId{number}"/>'
        related += f'<Relationship Id="rId{number}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{number}.xml"/>'
    if texts is not None:
        items = "".join(f'<si><t xml:space="preserve">{escape(text)}</t></si>' for text in texts)
        files["xl/sharedStrings.xml"] = f'{HEAD}<sst xmlns="{NAMESPACE}">{items}</sst>'
        related += f'<Relationship Id="rIdS" Type="{OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
    files["xl/workbook.xml"] = f'{HEAD}<workbook xmlns="{NAMESPACE}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>'
    files["xl/_rels/workbook.xml.rels"] = f'{HEAD}<Relationships xmlns="{PACKAGE}">{related}</Relationships>'
    root = f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    files["_rels/.rels"] = f'{HEAD}<Relationships xmlns="{PACKAGE}">{root}</Relationships>'
    files["[Content_Types].xml"] = (
        f'{HEAD}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/></Types>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path
