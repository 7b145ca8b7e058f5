from __future__ import annotations

import codecs
import csv
import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers, composite
from vfl_node.data.missing_words import MISSING
from vfl_node.data.readers import csv as csv_reader
from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn, Table
from vfl_node.errors import UNUSABLE_DATA, DataError, PolicyError
from vfl_node.job import IdForm
from vfl_node.settings.node import Data

STEADY = settings(deadline=None, derandomize=True)

Write = Any


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def read(
    path: Path,
    content: str | bytes | None = None,
    *,
    id_form: IdForm | tuple[IdForm, ...] = "text",
    needs_label: bool = False,
    classes: int = 2,
    at_least: int = 0,
    **settings: Any,
) -> Table:
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    data = Data(path=path, **settings)
    return read_table(data, id_form=id_form, needs_label=needs_label, party="lab", classes=classes, at_least=at_least)


def numbers(table: Table, name: str) -> list[float]:
    column = table.columns[name]
    assert isinstance(column, NumericColumn)
    return column.values.tolist()


def categories(table: Table, name: str) -> list[str | None]:
    column = table.columns[name]
    assert isinstance(column, CategoricalColumn)
    return [None if code < 0 else column.levels[code] for code in column.codes]


def test_a_plain_table(file: Path) -> None:
    table = read(file, "id,age,colour,label\nb,41,red,0\na,38.5,blue,1\n", needs_label=True)
    assert list(table.ids) == [b"text:b", b"text:a"]
    assert list(table.columns) == ["age", "colour"]
    assert numbers(table, "age") == [41, 38.5]
    assert categories(table, "colour") == ["red", "blue"]
    assert table.labels is not None
    assert table.labels.dtype == np.float32
    assert table.labels.tolist() == [0, 1]
    assert len(table) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_line_ends_and_a_byte_order_mark_do_not_count(file: Path, end: str, mark: bytes) -> None:
    table = read(file, mark + end.join(["id,age", "a,1", "", 'b,"2"', ""]).encode())
    assert list(table.ids) == [b"text:a", b"text:b"]
    assert numbers(table, "age") == [1, 2]


def test_quoted_cells_hold_commas_quotes_and_lines(file: Path) -> None:
    table = read(file, 'id, note\na, "x, ""y"""\nb,"two\nlines"\n')
    assert categories(table, "note") == ['x, "y"', "two\nlines"]


def test_space_around_cells_and_names_does_not_count(file: Path) -> None:
    table = read(file, " id , age , colour \n a , 1 , red \nb,2,red\n")
    assert list(table.ids) == [b"text:a", b"text:b"]
    assert numbers(table, "age") == [1, 2]
    assert categories(table, "colour") == ["red", "red"]


@pytest.mark.parametrize("missing", sorted(MISSING))
def test_missing_values(file: Path, missing: str) -> None:
    table = read(file, f"id,age,colour\na,{missing},{missing}\nb,2,red\n")
    assert math.isnan(numbers(table, "age")[0])
    assert categories(table, "colour") == [None, "red"]


def test_a_column_without_any_value_is_numeric(file: Path) -> None:
    assert np.isnan(numbers(read(file, "id,age\na,\nb,?\n"), "age")).all()


@pytest.mark.parametrize(("texts", "kind"), [(0, NumericColumn), (6, CategoricalColumn), (100, CategoricalColumn)])
def test_an_undeclared_column_is_numeric_from_95_percent_on(file: Path, texts: int, kind: type) -> None:
    rows = [f"{i},{'text' if i < texts else i}" for i in range(100)]
    assert isinstance(read(file, "\n".join(["id,x", *rows])).columns["x"], kind)


def test_dates_are_known_or_declared(file: Path) -> None:
    rows = [f"{i},2024-02-{1 + i % 28:02}" for i in range(100)]
    column = read(file, "\n".join(["id,x", *rows, "a,", "b,?"])).columns["x"]
    assert isinstance(column, DateColumn)
    assert column.seconds[0] == 1_706_745_600
    assert np.isnan(column.seconds).sum() == 2
    odd = "id,x\na,2024-02-29\nb,soon\nc,\n"
    assert isinstance(read(file, odd).columns["x"], CategoricalColumn)
    with pytest.raises(DataError) as caught:
        read(file, odd, columns={"x": "date"})
    assert caught.value.message == f"lab: {file}:3:x: not a date in date column 'x' (1 such cell of 3)"
    assert (caught.value.code, "YYYY-MM-DD" in caught.value.hint) == ("E_DATE", True)
    assert isinstance(read(file, "id,x\na,\nb,\n", columns={"x": "date"}).columns["x"], DateColumn)
    with pytest.raises(DataError, match="E_DATE") as caught:
        read(file, "\n".join(["id,x", *rows, "a,canary"]))
    assert "canary" not in str(caught.value)
    assert "categorical in data.columns" in caught.value.hint


def test_a_column_may_have_a_scaling_of_its_own_which_a_restart_must_find_again(file: Path) -> None:
    content = "id,income,opened\na,1,2024-02-29\nb,2,2024-03-01\n"
    wishes = {"income": {"kind": "numeric", "scaling": "log"}, "opened": {"kind": "date", "scaling": "quantile"}}
    table = read(file, content, columns=wishes)
    assert [column.scaling for column in table.columns.values()] == ["log", "quantile"]
    methods = [column.method for column in Encoder.fit(table, np.arange(2), "none").columns]
    assert methods[:2] == ["log", "quantile"]
    assert table.digest() != read(file, content).digest()
    assert sample(table, 1, b"k" * 32).columns["income"].scaling == "log"


def test_a_kind_may_be_written_in_either_form(file: Path) -> None:
    assert Data(path=file, columns={"x": {"kind": "ignore"}}) == Data(path=file, columns={"x": "ignore"})


@pytest.mark.parametrize(
    "wish", [{"kind": "categorical", "scaling": "log"}, {"scaling": "log"}, {"kind": "numeric", "scaling": "unit"}, "text"]
)
def test_a_wish_that_makes_no_sense_is_refused(file: Path, wish: Any) -> None:
    with pytest.raises(ValidationError):
        Data(path=file, columns={"x": wish})


def test_a_text_left_in_a_numeric_column_is_an_error_at_the_95_percent(file: Path) -> None:
    rows = [f"{i},{'canary' if i >= 95 else i}" for i in range(100)] + ["a,", "b,?"]  # missing values do not count
    with pytest.raises(DataError) as caught:
        read(file, "\n".join(["id,x", *rows]))
    assert caught.value.message == f"lab: {file}:97:x: text in numeric column 'x' (5 such cells of 102)"
    assert caught.value.code == "E_NUMERIC"
    assert "categorical" in caught.value.hint


def test_digits_with_underscores_are_a_code_not_a_number(file: Path) -> None:
    assert categories(read(file, "id,month\na,2024_01\nb,2024_02\n"), "month") == ["2024_01", "2024_02"]


def test_declared_kinds_win(file: Path) -> None:
    table = read(
        file, "id,zip,age,note\na,501,1,x\nb,501,2,y\n", columns={"zip": "categorical", "note": "ignore", "age": "numeric"}
    )
    assert list(table.columns) == ["zip", "age"]
    assert categories(table, "zip") == ["501", "501"]


def test_ids_take_the_form_of_the_job(file: Path) -> None:
    assert list(read(file, "id\n007\n8\n", id_form="integer").ids) == [b"integer:7", b"integer:8"]


WARD = "ward,bed,age\nA,07,40\nA,8,50\nb,7,60\n"
BY_WARD: dict[str, Any] = {"id": ("ward", "bed"), "id_form": ("nocase", "integer")}


def test_several_columns_identify_a_record_each_in_its_form(file: Path) -> None:
    table = read(file, WARD, **BY_WARD)
    expected = [("a", "7"), ("a", "8"), ("b", "7")]
    assert list(table.ids) == [composite([b"nocase:" + ward.encode(), b"integer:" + bed.encode()]) for ward, bed in expected]
    assert list(table.columns) == ["age"]


def test_parts_of_an_id_do_not_run_into_each_other(file: Path) -> None:
    table = read(file, "ward,bed\nab,c\na,bc\n", id=("ward", "bed"), id_form=("text", "text"))
    assert len(set(table.ids)) == 2


def test_both_parties_take_the_columns_in_the_order_of_the_settings(file: Path) -> None:
    expected = read(file, WARD, **BY_WARD).ids
    assert read(file, "age,bed,ward\n1,7,a\n2,8,a\n3,7,B\n", **BY_WARD).ids == expected
    assert read(file, WARD, id=("bed", "ward"), id_form=("integer", "nocase")).ids != expected


@pytest.mark.parametrize(
    ("id_", "id_form", "named"),
    [
        (("ward", "bed"), "text", "2 columns (ward, bed), and the job's align.id_form is for 1 column (text)"),
        ("ward", ("text", "integer"), "1 column (ward), and the job's align.id_form is for 2 columns (text, integer)"),
        (("a", "b", "c"), ("text", "text"), "3 columns (a, b, c), and the job's align.id_form is for 2 columns (text, text)"),
    ],
)
def test_settings_and_job_name_as_many_columns(file: Path, id_: Any, id_form: Any, named: str) -> None:
    with pytest.raises(DataError) as caught:
        read(file, id=id_, id_form=id_form)  # before the file is read: it does not exist
    assert caught.value.message == f"lab: data.id names {named}"
    assert caught.value.code == "E_CONFIG"
    assert "ward" not in caught.value.for_peer


def test_other_names_for_id_and_label(file: Path) -> None:
    table = read(file, "who,ill,age\na,1.0,3\nb,0.0,4\n", id="who", label="ill", needs_label=True)
    assert list(table.columns) == ["age"]
    assert table.labels is not None
    assert table.labels.tolist() == [1, 0]


def test_without_need_a_configured_label_is_neither_label_nor_feature(file: Path) -> None:
    table = read(file, "id,ill,age\na,unknown,3\nb,,4\n", label="ill")
    assert list(table.columns) == ["age"]
    assert table.labels is None
    assert list(read(file, label="absent").columns) == ["ill", "age"]


def digits(*labels: str) -> str:
    return "id,label\n" + "".join(f"canary-{i},{label}\n" for i, label in enumerate(labels))


def test_labels_of_several_classes(file: Path) -> None:
    table = read(file, digits("3", "0.0", " 9 ", "3.0"), needs_label=True, classes=10)
    assert table.labels is not None
    assert table.labels.dtype == np.float32
    assert table.labels.tolist() == [3, 0, 9, 3]  # most classes do not occur


@pytest.mark.parametrize("label", ["10", "10.0", "-1", "2.5", "1_0", "inf", "yes", "canary"])
def test_a_label_beyond_the_classes_is_named_and_not_shown(file: Path, label: str) -> None:
    with pytest.raises(DataError) as caught:
        read(file, digits("0", "9", label), needs_label=True, classes=10)
    assert caught.value.code == "E_LABEL"
    assert caught.value.message == f"lab: {file}:4:label: the label is no whole number from 0 to 9 (1 such cell of 3)"
    assert caught.value.hint == (
        "write every label as a whole number from 0 to 9; the column has 3 different labels: "
        "set train.classes: 3 in the job if each of them is a class"
    )


def test_too_few_records_are_refused_before_labels_and_columns_are_looked_at(file: Path) -> None:
    """Else a peer would search for the rate of labels by the parts that are of one class."""
    for content in (digits("1", "1"), digits("1", "x"), digits("0", "1")):
        with pytest.raises(PolicyError) as caught:
            read(file, content, needs_label=True, at_least=3)
        assert caught.value.code == "E_TOO_FEW"
        assert (caught.value.peer_code, caught.value.for_peer) == ("E_DATA", UNUSABLE_DATA)
    assert len(read(file, digits("0", "1", "1"), needs_label=True, at_least=3)) == 3


@pytest.mark.parametrize("form", ["nocase", "integer"])
def test_a_table_is_the_same_set_of_records_in_every_form(file: Path, form: IdForm) -> None:
    content = "id,x\n7,1\n08,2\n9,3\n"
    first, other = read(file, content), read(file, content, id_form=form)
    assert first.ids != other.ids
    assert first.ids.digest() != other.ids.digest()
    assert first.identity == other.identity == first.ids.digest()
    assert read(file, "id,x\n9,0\n7,1\n08,2\n", id_form=form).identity == first.identity
    assert read(file, "id,x\n7,1\n8,2\n9,3\n", id_form=form).identity != first.identity  # another spelling is another set
    assert numbers(sample(first, 2, b"key"), "x") == numbers(sample(other, 2, b"key"), "x")


@pytest.mark.parametrize(("classes", "hint"), [(2, "records of both classes"), (3, "records of two classes at least")])
def test_one_class_alone_is_refused(file: Path, classes: int, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        read(file, digits("1", "1.0"), needs_label=True, classes=classes)
    assert caught.value.code == "E_ONE_CLASS"
    assert caught.value.hint.endswith(hint)


def test_a_third_class_needs_a_job_of_three(file: Path) -> None:
    content = digits("0", "1", "2")
    assert read(file, content, needs_label=True, classes=3).labels is not None
    with pytest.raises(DataError) as caught:
        read(file, content, needs_label=True)
    assert "the label is neither 0 nor 1 (1 such cell of 3)" in caught.value.message
    assert caught.value.hint == (
        "write every label as 0 or 1; the column has 3 different labels: "
        "set train.classes: 3 in the job if each of them is a class"
    )


def test_more_rows_than_a_block(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 40)
    monkeypatch.setattr(csv_reader, "FEW_BYTES", 0)
    monkeypatch.setattr(csv_reader, "HEAD_BYTES", 40)
    for rows in (3, 4, 5, 8, 9):
        table = read(file, "id,x,kind\n" + "".join(f"{i},{i / 2},k{i % 3}\n" for i in range(rows)))
        assert list(table.ids) == [f"text:{i}".encode() for i in range(rows)]
        assert numbers(table, "x") == [i / 2 for i in range(rows)]
        assert categories(table, "kind") == [f"k{i % 3}" for i in range(rows)]
    with pytest.raises(DataError, match=":8:x: an infinite number"):
        read(file, "id,x\n" + "".join(f"{i},{'inf' if i == 6 else i}\n" for i in range(40)))


HEADER = "id,age,label\n"
ROWS = "canary-1,3,0\ncanary-2,4,1\n"
AGE = {"columns": {"age": "numeric"}}
BY_NUMBER = {"id_form": "integer"}
BY_TWO = {"id": ("id", "age"), "id_form": ("text", "integer")}
NO_ID = ":1: there is no column 'id' (data.id)"

FAULTS: dict[str, tuple[bytes | str, dict[str, Any], str, str]] = {
    "empty file": ("", {}, "E_EMPTY", "table.csv: is empty"),
    "only empty lines": ("\n\n", {}, "E_EMPTY", "table.csv: is empty"),
    "no rows": (HEADER, {}, "E_EMPTY", "table.csv: has a header and no rows"),
    "UTF-16": ((HEADER + ROWS).encode("utf-16"), {}, "E_CSV", "table.csv: is UTF-16"),
    "UTF-16 without mark": ((HEADER + ROWS).encode("utf-16-le"), {}, "E_CSV", ":1: holds NUL"),
    "UTF-32": ((HEADER + ROWS).encode("utf-32"), {}, "E_CSV", "table.csv: is UTF-16 or UTF-32"),
    "Latin-1": ((HEADER + ROWS + "canary-é,3,1\n").encode("latin-1"), {}, "E_CSV", ":4: is not UTF-8 text"),
    "NUL": (HEADER + ROWS + "canary\0,1,0\n", {}, "E_CSV", ":4: holds NUL"),
    "short row": (HEADER + "canary-0,7\n" + ROWS, {}, "E_CSV", ":2: 2 cells where the header has 3"),
    "long row": (HEADER + ROWS + "\ncanary-3,5,1,canary\n", {}, "E_CSV", ":5: 4 cells where the header has 3"),
    "after a cell of two lines": (
        'id,age,label,note\ncanary-1,3,0,"canary\ncanary"\ncanary-2,4,2,x\n',
        {},
        "E_LABEL",
        ":4:label: ",
    ),
    "open quote": (HEADER + ROWS + 'canary-3,"5,1\ncanary-4,6,0\n', {}, "E_CSV", ":4: is not valid CSV"),
    "stray quote": (HEADER + ROWS + '"canary"-3,5,1\n', {}, "E_CSV", ":4: is not valid CSV"),
    "old Macintosh lines": ((HEADER + ROWS).replace("\n", "\r"), {}, "E_CSV", ":1: is not valid CSV (new-line"),
    "huge cell": (HEADER + ROWS + "canary" * 40_000 + ",1,0\n", {}, "E_CSV", ":4: is not valid CSV"),
    "nameless column": (",id,age,label\n0,canary-1,3,0\n1,canary-2,4,1\n", {}, "E_CSV", ":1: column 1 has no name"),
    "two columns of one name": ("id,age, age ,label\ncanary-1,3,4,1\n", {}, "E_CSV", ":1: columns 2 and 3 have the same name"),
    "no header": (ROWS, {}, "E_COLUMN", NO_ID),
    "no header, no numbers": ("canary-1,canary\ncanary-2,canary-red\n", {}, "E_COLUMN", NO_ID),
    "no header, equal cells": ("canary,canary\nx,y\n", {}, "E_CSV", ":1: columns 1 and 2 have the same name"),
    "no id column": ("who,age,label\n" + ROWS, {}, "E_COLUMN", NO_ID),
    "no label column": ("id,age,ill\n" + ROWS, {}, "E_COLUMN", ":1: there is no column 'label' (data.label)"),
    "no such declared column": (HEADER + ROWS, {"columns": {"agee": "numeric"}}, "E_COLUMN", ":1: there is no column 'agee'"),
    "id and label in one": (HEADER + ROWS, {"label": "id"}, "E_COLUMN", "cannot be both id and label"),
    "id as a feature": (HEADER + ROWS, {"columns": {"id": "categorical"}}, "E_COLUMN", ":1:id: is the id column"),
    "label as a feature": (HEADER + ROWS, {"columns": {"label": "numeric"}}, "E_COLUMN", ":1:label: is the label column"),
    "empty id": (HEADER + ROWS + " ,5,0\n", {}, "E_ID", ":4:id: the identifier is empty"),
    "id of zero width": (HEADER + ROWS + "\u200b,5,0\n", {}, "E_ID", ":4:id: the identifier is empty"),
    "text id for integers": (HEADER + "1,2,0\n" + ROWS, BY_NUMBER, "E_ID", ":3:id: the identifier is not an integer"),
    "duplicate ids": (HEADER + ROWS + ROWS, {}, "E_DUP_IDS", ":4:id: 2 duplicate ids (lines 2 and 4, 3 and 5)"),
    "duplicate after NFKC": (HEADER + ROWS + "canary\uff0d1,3,0\n", {}, "E_DUP_IDS", ":4:id: 1 duplicate ids (lines 2 and 4)"),
    "many duplicates": (HEADER + ROWS * 4, {}, "E_DUP_IDS", ":4:id: 6 duplicate ids (lines 2 and 4, 3 and 5, 2 and 6, …)"),
    "no second id column": (HEADER + ROWS, {**BY_TWO, "id": ("id", "bed")}, "E_COLUMN", ":1: there is no column 'bed'"),
    "label within the id": (HEADER + ROWS, {**BY_TWO, "label": "age"}, "E_COLUMN", "'age' cannot be both id and label"),
    "second id column as a feature": (HEADER + ROWS, BY_TWO | AGE, "E_COLUMN", ":1:age: is the id column"),
    "part of an id is empty": (HEADER + ROWS + "canary-3,,1\n", BY_TWO, "E_ID", ":4:age: the identifier is empty"),
    "duplicates of two columns": (
        HEADER + ROWS + "canary-1,4,1\n" + ROWS,
        BY_TWO,
        "E_DUP_IDS",
        ":5:id+age: 2 duplicate ids (lines 2 and 5, 3 and 6)",
    ),
    "unassigned character": (HEADER + ROWS + "canary\u0378,5,0\n", {}, "E_ID", ":4:id: the identifier holds a character that"),
    "other label": (HEADER + ROWS + "canary-3,5,canary\n", {}, "E_LABEL", ":4:label: the label is neither 0 nor 1 (1"),
    "no label": (HEADER + ROWS + "canary-3,5,\n", {}, "E_LABEL", ":4:label: "),
    "negative label": (HEADER + ROWS + "canary-3,5,-1\n", {}, "E_LABEL", ":4:label: "),
    "one class": (HEADER + "canary-1,3,1\ncanary-2,4,1\n", {}, "E_ONE_CLASS", "all labels in column 'label' are the same"),
    "text for a number": (HEADER + ROWS + "canary-3,canary,1\n", AGE, "E_NUMERIC", ":4:age: text in numeric column 'age' (1"),
    "infinity": (HEADER + ROWS + "canary-3,-inf,1\n", AGE, "E_NUMERIC", ":4:age: an infinite number in numeric"),
    "too large": (HEADER + ROWS + "canary-3,1e999,1\n", AGE, "E_NUMERIC", ":4:age: an infinite number in numeric"),
    "half a number": (HEADER + ROWS + "canary-3,1.5.2,1\n", AGE, "E_NUMERIC", ":4:age: text in numeric"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_place_and_shows_no_cell(file: Path, fault: str) -> None:
    content, settings, code, place = FAULTS[fault]
    with pytest.raises(DataError) as caught:
        read(file, content, needs_label=True, **settings)
    error = caught.value
    assert error.code == code
    assert error.message.startswith(f"lab: {file}")
    assert place in error.message
    assert error.hint or code == "E_EMPTY"
    assert "canary" not in str(error) + repr(error) + error.for_peer
    assert (error.peer_code, error.for_peer) == ("E_DATA", UNUSABLE_DATA)  # the same of every fault
    assert str(file) not in error.for_peer
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent.csv", "No such file"), (tmp_path, "is a folder without part files")):
        with pytest.raises(DataError, match=reason) as caught:
            read(path)
        assert caught.value.code == "E_FILE"
        assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"id": "Id"}, "did you mean 'id'? columns: id, age, label"),
        ({"id": "patient"}, "columns: id, age, label"),
        ({"label": "lable"}, "did you mean 'label'? columns: id, age, label"),
        ({"columns": {"AGE": "numeric"}}, "did you mean 'age'? columns: id, age, label"),
    ],
)
def test_the_hint_for_a_wrong_name(file: Path, settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(DataError) as caught:
        read(file, HEADER + ROWS, needs_label=True, **settings)
    assert caught.value.hint == hint


@pytest.mark.parametrize("header", ["ID;age", "Id;Age"])
def test_the_hint_names_a_column_in_capitals_above_any_cells(file: Path, header: str) -> None:
    file.write_text(f"{header}\nabc;1,5\ndef;2,5\n")
    with pytest.raises(DataError) as caught:
        read_table(Data(path=file), id_form="text", needs_label=False, party="clinic")
    assert caught.value.hint.startswith(f"did you mean {header[:2]!r}?")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("id^age\na^1\n", "say data.delimiter"),
        ("id%age\na, b%1\n", "say data.delimiter"),
        ("Report of 2020\nid,age\na,1\n", "without titles or remarks above it"),
        ("Report of 2020,\nid,age\na,1\n", "without titles above it"),
        ("id,age\n1,a,7\n2,b,8\n", "row names of R (row.names=FALSE), or a delimiter at the end"),
        ("id,age\na,1,2,3\n", "give every row one cell a column"),
        (HEADER + "NULL,1,0\nNULL,2,1\nnan,3,1\nnan,4,0\nb,5,0\nb,6,1\n", "2 of them are words for a missing value"),
        (HEADER + "".join(f"k{row},{'soon' if row == 7 else row},1\n" for row in range(60)), "name its word in data.missing"),
        (
            HEADER + "".join(f"k{row},{'soon' if row == 7 else f'2020-02-{row % 20 + 1:02}'},1\n" for row in range(60)),
            "its word in data.missing",
        ),
    ],
)
def test_the_hint_for_a_table_that_a_program_has_written_otherwise(file: Path, content: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        read(file, content)
    assert hint in caught.value.hint
    assert not hint.startswith("give") or "row names" not in caught.value.hint


def test_the_hint_lists_some_of_many_columns(file: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(file, ",".join(f"x{i}" for i in range(50)) + "\n" + ",".join("1" * 50) + "\n")
    assert caught.value.hint.endswith("x18, x19, …")


def test_a_table_shows_its_shape_only(file: Path) -> None:
    table = read(file, "id,colour,label\ncanary-1,canary,0\ncanary-2,canary,1\n", needs_label=True)
    assert repr(table) == "Table(2 records, 1 columns, labels)"
    assert "canary" not in repr(table.columns)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="one entry a record"):
        Table(Identifiers.from_items([b"a"]), {"x": NumericColumn(np.zeros(2))})
    with pytest.raises(ValueError, match="one entry a record"):
        Table(Identifiers.from_items([b"a"]), {}, np.zeros(2, dtype=np.float32))


BASE = "id,x,kind,label\na,1,u,0\nb,,v,1\nc,3,,1\n"


def test_the_digest_is_that_of_the_content_not_of_its_spelling(file: Path) -> None:
    expected = read(file, BASE, needs_label=True).digest()
    assert len(expected) == 32
    assert read(file, BASE.replace("a,1", " a, 1.0").replace("b,,v", '"b",NA,v'), needs_label=True).digest() == expected


def test_labels_are_no_column_so_their_place_does_not_count(file: Path) -> None:
    moved = "id,x,label,kind\na,1,0,u\nb,,1,v\nc,3,1,\n"
    assert read(file, moved, needs_label=True).digest() == read(file, BASE, needs_label=True).digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a,1,u,0\nb,,v,1\n", "b,,v,1\na,1,u,0\n"),
        ("a,1", "d,1"),
        ("a,1", "a,2"),
        ("b,,", "b,0,"),
        ("u,0", "v,0"),
        ("u,0", "w,0"),
        ("c,3,,1", "c,3,,0"),
        ("id,x", "id,y"),
    ],
)
def test_the_digest_covers_every_part_and_the_order(file: Path, old: str, new: str) -> None:
    assert old in BASE
    expected = read(file, BASE, needs_label=True).digest()
    assert read(file, BASE.replace(old, new), needs_label=True).digest() != expected


def test_the_digest_tells_kinds_and_labels_apart(file: Path) -> None:
    content = "id,x,label\na,1,0\nb,2,1\n"
    digests = {
        read(file, content).digest(),
        read(file, content, columns={"label": "numeric"}).digest(),
        read(file, content, needs_label=True).digest(),
        read(file, content, columns={"x": "categorical"}).digest(),
    }
    assert len(digests) == 4


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@STEADY
@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), cells), min_size=1, max_size=30))
def test_what_a_csv_writer_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "x", "note"), *((i, x, note) for i, (x, note) in enumerate(rows))])
    table = read(path, columns={"note": "categorical"})
    assert numbers(table, "x") == [x for x, _ in rows]
    trimmed = [note.strip() for _, note in rows]
    assert categories(table, "note") == [None if note in MISSING else note for note in trimmed]


@pytest.mark.data
def test_a_real_table(file: Path, shared_data: Path) -> None:
    with gzip.open(shared_data / "adult" / "adult.data.gz", "rt") as packed:
        header, *records = filter(None, csv.reader(packed, skipinitialspace=True))
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([["id", *header], *([i, *record] for i, record in enumerate(records))])
    table = read(file, id_form="integer")
    assert len(table) == 32_561
    kinds = [type(column) for column in table.columns.values()]
    assert kinds.count(NumericColumn) == 6
    assert kinds.count(CategoricalColumn) == 9
    occupation = table.columns[next(name for name in table.columns if "occupation" in name)]
    assert isinstance(occupation, CategoricalColumn)
    assert len(occupation.levels) == 14
    assert int((occupation.codes < 0).sum()) == 1843


def test_without_features_identifiers_and_labels_alone_are_read(file: Path) -> None:
    """As for a job that only aligns: what a column has, or is said to have, does not matter."""
    file.write_text("id,x,when,label\nb,1,2024-01-02,1\na,no number,never,0\nc,3,2024-01-04,1\n")
    data = Data(path=file, columns={"x": "numeric", "when": "date"})
    given: dict[str, Any] = {"id_form": "text", "needs_label": True, "party": "lab"}
    with pytest.raises(DataError):
        read_table(data, **given)
    table = read_table(data, **given, features=False)
    whole = read_table(Data(path=file, columns={"x": "ignore", "when": "ignore"}), **given)
    assert table.columns == {}
    assert list(table.ids) == list(whole.ids)
    assert table.labels.tolist() == whole.labels.tolist()
