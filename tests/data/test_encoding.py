"""A table in a declared encoding is the same table as in UTF-8, and a byte that does not fit is refused at its line."""

from __future__ import annotations

import codecs
import gzip
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.thorough import examples
from vfl_node.data.readers import csv as csv_reader
from vfl_node.data.readers.opening import open_csv
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.settings.declared import ENCODINGS
from vfl_node.settings.node import Data

OTHERS = [encoding for encoding in ENCODINGS if encoding != "utf-8"]
LETTERS = {
    "gbk": 'abz,;|"\n\\ 张伟李娜上海模型联通丂丄',  # of the last ones the second byte is a letter of ASCII
    "gb18030": 'abz,;|"\n\\ 张伟éß€\U00020000\U0001f600',
    "latin-1": 'abz,;|"\n\\ éßñÿþ\u00a0',
    "cp1252": 'abz,;|"\n\\ éß€’“œ',
    "utf-16": 'abz,;|"\n\\ 张éЖ\u0a0d\u0d0a\u2c22\U0001f600',  # bytes of line ends, commas and quotes within characters
}
MANY = settings(deadline=None, derandomize=True, max_examples=examples(300, fewer=25))


def read(path: Path, **said: Any) -> Table:
    return read_table(Data(path=path, **said), id_form="text", needs_label=False, party="lab")


def write(rows: list[list[str]], end: str) -> str:
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    return end.join(",".join(row) for row in [["id", "x", "kind"], *quoted]) + end


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str]:
    """An encoding, and a CSV that it can write."""
    encoding = draw(st.sampled_from(OTHERS))
    cells = st.text(st.sampled_from(LETTERS[encoding]), max_size=6)
    rows = draw(st.lists(st.tuples(st.floats(-1e9, 1e9), cells), min_size=1, max_size=30))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    first = "号" if encoding.startswith("gb") else "é"
    return encoding, write([[f"{first}{n}", repr(x), kind] for n, (x, kind) in enumerate(rows)], end)


@MANY
@given(drawn=tables(), block=st.sampled_from([3, 7, 50, 1 << 18]), packed=st.booleans(), marked=st.booleans())
def test_a_table_in_any_encoding_is_the_same_as_in_utf8(
    drawn: tuple[str, str], block: int, packed: bool, marked: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (encoding, text), folder = drawn, tmp_path_factory.mktemp("encoded")
    (folder / "utf8.csv").write_bytes((codecs.BOM_UTF8 if marked else b"") + text.encode())
    content = text.encode(encoding)
    if marked and encoding == "gb18030":
        content = "\ufeff".encode(encoding) + content
    if marked and encoding == "utf-16":
        content = codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    (folder / "other.csv").write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "HEAD_BYTES", max(block, 8))
        patch.setattr(csv_reader, "BLOCK_BYTES", block)
        patch.setattr(csv_reader, "FEW_BYTES", 0)
        tables_ = [read(folder / "utf8.csv"), read(folder / "other.csv", encoding=encoding)]
    assert tables_[0].digest() == tables_[1].digest()


HEADER = b"id,note\r\n"
GB, WINDOWS = "set data.encoding to gb18030, or to what else the file is: utf-8", "set data.encoding to cp1252, or to what else"
WHAT, OTHER = "set data.encoding to what the file is: utf-8, gbk", "or set data.encoding to what it is: gbk, gb18030, latin-1"
REFUSED: dict[str, tuple[str, bytes, str, str]] = {
    "gbk": ("gbk", HEADER + "1,张\r\n2,".encode("gbk") + b"\x80\r\n", ":3: is not gbk text", GB),
    "gbk, cut off": ("gbk", HEADER + "1,张\n2,张".encode("gbk")[:-1], ":3: is not gbk text", GB),
    "gb18030": ("gb18030", HEADER + b"1,\xff\n", ":2: is not gb18030 text", WHAT),
    "cp1252": ("cp1252", HEADER + b"1,a\n2,b\n\n4,\x81\n", ":5: is not cp1252 text", WHAT),
    "letters of Windows": ("latin-1", HEADER + b'1,"a\nb"\n2,\x92\n', ":4: is not latin-1 text", WINDOWS),
    "half a character": ("utf-16", "id,x\n1,2\n".encode("utf-16") + b"1", ":3: is not utf-16 text", WHAT),
    "half a pair": ("utf-16", "id,x\n1,".encode("utf-16") + b"\x3d\xd8", ":2: is not utf-16 text", WHAT),
    "utf-16 without mark": ("utf-16", "id,x\n1,2\n".encode("utf-16-le"), ": has no byte order mark", "or as UTF-8"),
    "utf-8 by its mark": ("gbk", codecs.BOM_UTF8 + HEADER, ": is UTF-8 by its first bytes, not gbk", "leave data.encoding out"),
    "utf-16 by its mark": ("gbk", "id,x\n1,2\n".encode("utf-16"), ": is UTF-16 or UTF-32, not gbk", "cp1252, utf-16"),
    "nothing said": ("utf-8", HEADER + b"1,\xe9\n", ":2: is not UTF-8 text", OTHER),
    "nothing said of utf-16": ("utf-8", "id,x\n".encode("utf-16"), ": is UTF-16 or UTF-32, not UTF-8", OTHER),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_byte_that_does_not_fit_is_refused_with_its_line_and_what_to_set(case: str, tmp_path: Path) -> None:
    encoding, content, said, hint = REFUSED[case]
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(path, encoding=encoding)
    assert caught.value.code == "E_CSV"
    assert caught.value.message.startswith(f"lab: {path}{said}")
    assert hint in caught.value.hint


@pytest.mark.parametrize("block", [1 << 8, 1 << 18])
def test_a_line_is_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    path = tmp_path / "table.csv"
    rows = "".join(f"{row},张伟\n" for row in range(30_000))
    path.write_bytes(f"id,name\n{rows}".encode("gbk") + b"x,\x80\xff\n")
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    monkeypatch.setattr(csv_reader, "HEAD_BYTES", block)
    with pytest.raises(DataError, match=r"table.csv:30002: is not gbk text"):
        read(path, encoding="gbk")


def test_a_large_file_takes_no_more_memory_than_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    line = "1,张伟李娜张伟李娜张伟李娜张伟李娜\n".encode("utf-16-le")
    path.write_bytes("id,x\n".encode("utf-16") + line * 400_000)
    assert path.stat().st_size > 14 << 20
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1 << 18)
    rows = 0
    with closing(open_csv(path, party="lab", encoding="utf-16")) as reader:
        tracemalloc.start()
        for batch in reader.batches():
            rows += batch.columns.num_rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert rows == 400_000
    assert peak < 8 << 20


def test_the_check_says_the_encoding(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress("id;x\n号;1\n".encode("gbk")))
    with closing(open_csv(path, party="lab", encoding="gbk")) as reader:
        assert reader.format == "csv in gbk in gzip, cells between semicolons"


def test_an_encoding_is_for_csv_and_one_of_the_list(tmp_path: Path) -> None:
    for said in ({"format": "parquet"}, {"path": None, "query": "select 1"}):
        with pytest.raises(ValidationError, match="delimiter, decimal and encoding are for CSV"):
            Data(**{"path": tmp_path, "encoding": "gbk", **said})
    with pytest.raises(ValidationError, match="'utf-8', 'gbk', 'gb18030', 'latin-1', 'cp1252' or 'utf-16'"):
        Data(path=tmp_path, encoding="big5")
    assert "encoding" not in Data(path=tmp_path).model_dump(exclude_unset=True)
    assert Data(path=tmp_path).dialect == {}


def test_parts_are_all_in_the_declared_encoding(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_bytes(f"id,kind\n号{number},张\n".encode("gbk"))
    table = read(tmp_path, encoding="gbk")
    assert list(map(bytes.decode, table.ids)) == ["text:号0", "text:号1"]
