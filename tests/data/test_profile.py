"""What a table's owner is told before any job: as reading has it, every error, and no cell."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from vfl_node.data.column_profile import ColumnProfile
from vfl_node.data.profile import FormProfile, TableProfile, profile
from vfl_node.data.readers.head import HeadReader
from vfl_node.data.reading import read_table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.node import Data
from vfl_node.settings.source import READERS

TABLE = """\
id,age,ward,remark,group,label
07,40,A,x,1,0
7,,B,y,2,1
Zo e,60,A,z,red,1
zo e,61,?,,4,1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def look(path: Path, content: str = "", *, rows: int | None = None, **given: Any) -> TableProfile:
    if content:
        path.write_text(content)
    settings = {name: given.pop(name) for name in ("id", "label", "columns") if name in given}
    with closing(READERS["csv"](path, party="lab")) as reader:
        head = HeadReader(reader, rows or 10**9)
        text = TextColumns(head)
    arguments: dict[str, Any] = {"id_form": "text", "needs_label": True, "party": "lab", "whole": head.whole} | given
    return profile(text, Data(path=path, **settings), **arguments)


def test_columns_are_what_reading_takes_them_for(file: Path) -> None:
    seen = look(file, columns={"remark": "ignore", "ward": "categorical"})
    assert seen.columns == (
        ColumnProfile("id", "id", True, 0, 4),
        ColumnProfile("age", "numeric", False, 1, 3),
        ColumnProfile("ward", "categorical", True, 1, 2),
        ColumnProfile("remark", "ignored", True),
        ColumnProfile("group", "categorical", False, 0, 4, numbers=3),
        ColumnProfile("label", "label", True, 0, 2),
    )
    assert [column.name for column in seen.features] == ["age", "ward", "group"]
    assert (seen.rows, seen.whole, seen.errors) == (4, True, ())


def test_the_table_is_the_one_that_a_job_reads(file: Path) -> None:
    seen = look(file)
    read = read_table(Data(path=file), id_form="text", needs_label=True, party="lab")
    assert seen.table is not None
    assert seen.table.digest() == read.digest()


def test_a_column_of_labels_that_is_not_needed_is_no_feature_unless_it_is_declared(file: Path) -> None:
    for settings in ({}, {"label": "label"}):
        seen = look(file, needs_label=False, **settings)
        assert {column.name: column.use for column in seen.columns}["label"] == "label"
        assert seen.table is not None
        assert (seen.table.labels, seen.table.left_out) == (None, {"label": "label"})
    declared = look(file, needs_label=False, columns={"label": "numeric"})
    assert {column.name: column.use for column in declared.columns}["label"] == "numeric"


def test_ids_in_every_form(file: Path) -> None:
    ids = look(file).ids
    assert ids.forms == {"text": FormProfile(0, 0), "nocase": FormProfile(0, 1), "integer": FormProfile(2, 1)}
    assert (ids.numbers, ids.capitals, ids.leading_zeros, ids.inner_space, ids.invisible) == (2, 1, 1, 2, 0)
    hidden = look(file, "id,x\n \u200bk  ,1\nk,2\n,3\n", needs_label=False)
    assert (hidden.ids.invisible, hidden.ids.forms["text"]) == (1, FormProfile(unusable=1, repeated=1))
    assert [error.code for error in hidden.errors] == ["E_ID"]


def test_ids_of_two_columns(file: Path) -> None:
    seen = look(file, "id,of,x\na,1,1\na,01,2\nb,,3\n", id=("id", "of"), id_form=("text", "integer"), needs_label=False)
    assert seen.ids.columns == ("id", "of")
    assert seen.ids.forms == {"text": FormProfile(1, 0), "nocase": FormProfile(1, 0), "integer": FormProfile(3, 0)}
    assert [error.code for error in seen.errors] == ["E_ID"]
    with pytest.raises(DataError) as caught:
        look(file, id=("id", "group"))
    assert caught.value.code == "E_CONFIG"


@pytest.mark.parametrize(
    ("labels", "classes", "counts", "other", "rate", "codes"),
    [
        (["0", "1", "1.0", "1"], None, {0: 1, 1: 3}, 0, 0.75, []),
        (["0", "1", "2", "2"], None, {0: 1, 1: 1, 2: 2}, 0, None, []),
        (["0", "1", "2", "2"], 2, {0: 1, 1: 1, 2: 2}, 0, None, ["E_LABEL"]),
        (["0", "1", "canary", ""], None, {0: 1, 1: 1}, 2, None, ["E_LABEL"]),
        (["1", "1", "1", "1"], None, {1: 4}, 0, 1.0, ["E_ONE_CLASS"]),
        (["canary"] * 4, None, {0: 4}, 0, 0.0, ["E_ONE_CLASS"]),
        (["canary", "bird", "dog", "canary"], None, {0: 1, 1: 2, 2: 1}, 0, None, []),
        (["canary", "bird", "dog", "canary"], 2, {}, 4, None, ["E_LABEL"]),
        (["Yes", "no", "NO", "yes"], None, {0: 2, 1: 2}, 0, 0.5, []),
    ],
)
def test_labels(
    file: Path, labels: list[str], classes: int | None, counts: dict[int, int], other: int, rate: Any, codes: list[str]
) -> None:
    seen = look(file, "id,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels)), classes=classes)
    assert seen.label is not None
    assert (seen.label.counts, seen.label.other, seen.label.rate) == (counts, other, rate)
    assert [error.code for error in seen.errors] == codes


def test_all_errors_in_the_order_of_reading_and_no_cell(file: Path) -> None:
    content = "id,x,y,label\n" + "canary,1,canary,0\n" * 3
    settings: dict[str, Any] = {"columns": {"x": "numeric", "y": "numeric"}, "at_least": 9}
    seen = look(file, content, **settings)
    assert [error.code for error in seen.errors] == ["E_DUP_IDS", "E_TOO_FEW", "E_ONE_CLASS", "E_NUMERIC"]
    assert seen.table is None
    assert seen.columns[2].error is seen.errors[3]
    with pytest.raises(DataError) as caught:
        read_table(Data(path=file, columns=settings["columns"]), id_form="text", needs_label=True, party="lab", at_least=9)
    assert str(caught.value) == str(seen.errors[0])
    assert "canary" not in repr(seen) + "".join(map(str, seen.errors))


def test_of_a_first_line_that_may_be_a_record_nothing_is_told(file: Path) -> None:
    with pytest.raises(DataError) as caught:
        look(file, "canary,3\ncanary2,4\n")
    assert caught.value.code == "E_COLUMN"
    assert "canary" not in str(caught.value)


def test_the_first_rows_show_neither_that_a_table_is_too_small_nor_that_it_has_one_class(file: Path) -> None:
    content = "id,x,label\n" + "".join(f"{row},{row},{row // 50}\n" for row in range(100))
    head = look(file, content, rows=30, at_least=60)
    assert (head.rows, head.whole, head.errors) == (30, False, ())
    assert head.table is not None
    assert [error.code for error in look(file, content, rows=100, at_least=101).errors] == ["E_TOO_FEW"]


def test_the_first_rows_need_not_tell_how_a_column_is_written(file: Path) -> None:
    dates = [f"{row % 12 + 1:02}/{row % 11 + 1:02}/2020" for row in range(60)] + ["31/12/2020"]
    content = "id,at,label\n" + "".join(f"{row},{date},{row % 2}\n" for row, date in enumerate(dates))
    for rows in (60, 61):
        seen = look(file, content, rows=rows)
        assert (seen.errors, seen.columns[1].use, seen.columns[1].written) == ((), "date", "as d/m/Y")
    assert [error.code for error in look(file, content.replace("31/12", "11/12")).errors] == ["E_DATE"]
