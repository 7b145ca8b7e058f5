"""Columns of lists: how an owner declares them, how cells are read, and how they become codes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from vfl_node.data import lists
from vfl_node.data.encoded import encoded_columns
from vfl_node.data.features import Encoder
from vfl_node.data.label_like import label_like
from vfl_node.data.lists import ListLevels, check_lists, lists_in
from vfl_node.data.profile import profile
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import columns_for, read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import ListColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.declared import DeclaredList
from vfl_node.settings.node import Data

SEEN = ["17|4|22", "", "4", "NA", "22|22|4", " 4 | 17 ", "a||b|?", "9|8|7|6|5"]
ITEMS = [["17", "4", "22"], [], ["4"], [], ["22", "22", "4"], ["4", "17"], ["a", "b"], ["9", "8", "7", "6", "5"]]


def column(cells: Sequence[str | None], **declared: Any) -> ListColumn:
    """In batches of three rows."""
    batches = (pa.array(cells[start : start + 3], pa.string()) for start in range(0, len(cells), 3))
    return lists_in(batches, DeclaredList(**declared))


def items(of: ListColumn) -> list[list[str]]:
    pairs = zip(of.starts[:-1], of.starts[1:], strict=True)
    return [[of.levels[code] for code in of.codes[start:end]] for start, end in pairs]


def every(of: ListColumn) -> np.ndarray[Any, Any]:
    return np.arange(len(of.lengths))


def test_cells_are_split_into_items_in_their_order() -> None:
    read = column([*SEEN, None])
    assert items(read) == [*ITEMS, []]
    assert read.levels == tuple(sorted({item for of in ITEMS for item in of}))
    assert (read.codes.dtype, read.starts.dtype, read.cut) == (np.int64, np.int64, 0)


@pytest.mark.parametrize(("keep", "rest"), [("last", ["6", "5"]), ("first", ["9", "8"])])
def test_a_long_cell_keeps_its_first_or_last_items(keep: str, rest: list[str]) -> None:
    read = column(SEEN, longest=2, keep=keep)
    assert items(read)[-1] == rest
    assert items(read)[0] == (["4", "22"] if keep == "last" else ["17", "4"])
    assert read.cut == 3
    assert "7" not in read.levels  # nothing of what is cut off stays


@pytest.mark.parametrize("separator", [",", ";;", ".", "\\", " "])
def test_separators_are_text_and_no_pattern(separator: str) -> None:
    assert items(column([separator.join("abc"), "axb"], separator=separator)) == [["a", "b", "c"], ["axb"]]


def test_a_column_without_any_item_is_read() -> None:
    assert (items(column(["", "NA", None])), column(["", ""]).levels) == ([[], [], []], ())
    assert ListLevels.fit("h", column(["", ""]), np.arange(2)).apply(column(["", ""])).tolist() == [[0], [0]]


def test_many_items_are_numbered_as_python_sorts_them() -> None:
    cells = ["|".join(map(str, np.random.default_rng(row).integers(0, 500, 20))) + "|é|Z|z" for row in range(300)]
    read = column(cells)
    assert items(read) == [cell.split("|") for cell in cells]
    assert list(read.levels) == sorted(read.levels)


def test_levels_that_enough_rows_have_get_codes_and_others_share_one() -> None:
    """22 occurs three times in two rows; an item counts a row once."""
    read = column(SEEN)
    fitted = ListLevels.fit("h", read, every(read), least_rows=2)
    assert (fitted.levels, fitted.other, fitted.cardinality, fitted.length) == (("17", "22", "4"), True, 5, 5)
    assert fitted.apply(read).tolist() == [
        [1, 3, 2, 0, 0],
        [0, 0, 0, 0, 0],
        [3, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [2, 2, 3, 0, 0],
        [3, 1, 0, 0, 0],
        [4, 4, 0, 0, 0],
        [4, 4, 4, 4, 4],
    ]
    twice = ListLevels.fit("h", column(["1|1", "2"]), np.arange(2), least_rows=2)
    assert (twice.levels, twice.other) == ((), True)


def test_an_unseen_item_is_left_out_where_no_rare_one_was_learnt_from() -> None:
    fitted = ListLevels.fit("h", column(["1|2", "2"]), np.arange(2))
    assert (fitted.other, fitted.cardinality) == (False, 3)
    assert fitted.apply(column(["2|7", "7", "1|2|1"])).tolist() == [[2, 0], [0, 0], [2, 1]]  # the last items of a longer list


@pytest.mark.parametrize("keep", ["first", "last"])
def test_one_long_list_takes_no_more_memory_than_the_codes_do(keep: str) -> None:
    """Numbers of 8 bytes for every place that one long list gives every row would take three times as much."""
    cells = ["|".join(map(str, range(4096))), *(str(row % 7) for row in range(2000))]
    read = column(cells, longest=4096, keep=keep)
    fitted = ListLevels.fit("h", read, every(read))
    tracemalloc.start()
    codes = fitted.apply(read)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes.shape == (2001, 4096)
    assert codes[0].tolist() == [fitted.levels.index(str(item)) + 1 for item in range(4096)]
    assert codes[1:, 0].tolist() == [fitted.levels.index(str(row % 7)) + 1 for row in range(2000)]
    assert not codes[1:, 1:].any()
    assert peak - codes.nbytes < codes.nbytes / 4


def test_items_are_encoded_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read = column(SEEN)
    fitted = ListLevels.fit("h", read, every(read)[:5])
    whole = fitted.apply(read).tolist()
    assert whole[-1] == [0, 0, 0]
    monkeypatch.setattr(lists, "_BLOCK", 2)
    assert fitted.apply(read).tolist() == whole


def test_only_fitted_rows_are_learnt_from() -> None:
    fitted = ListLevels.fit("h", column(SEEN), np.array([2, 0, 2]))
    assert (fitted.levels, fitted.length) == (("17", "22", "4"), 3)


def test_what_is_encoded_is_decoded() -> None:
    read = column(SEEN)
    fitted = ListLevels.fit("h", read, every(read))
    back = fitted.undo(fitted.apply(read))
    assert items(back) == ITEMS
    assert fitted.apply(back).tolist() == fitted.apply(read).tolist()
    rare = ListLevels.fit("h", read, every(read), least_rows=2)
    assert rare.apply(rare.undo(rare.apply(read))).tolist() == rare.apply(read).tolist()


def csv(path: Path, cells: Sequence[str] = SEEN) -> Path:
    path.write_text("id,age,history\n" + "".join(f"r{row},{row},{cell}\n" for row, cell in enumerate(cells)))
    return path


def read(data: Data, **changed: Any) -> Table:
    return read_table(data, **({"id_form": "text", "needs_label": False, "party": "shop"} | changed))


def declared(path: Path, **keys: Any) -> Data:
    return Data.model_validate({"path": path, "columns": {"history": {"kind": "list", **keys}}})


@pytest.mark.parametrize("short", [True, False])
def test_a_table_has_its_lists_from_csv_and_parquet(tmp_path: Path, short: bool) -> None:
    parquet.write_table(
        pa.table({"id": [f"r{row}" for row in range(len(SEEN))], "history": pa.array(SEEN)}), tmp_path / "t.parquet"
    )
    csv(tmp_path / "t.csv")
    found = []
    for name in ("t.csv", "t.parquet"):
        data = declared(tmp_path / name)
        if short:
            data = Data.model_validate({"path": tmp_path / name, "columns": {"history": "list"}})
        found.append(read(data).columns["history"])
    for of in found:
        assert isinstance(of, ListColumn)
        assert items(of) == ITEMS
        assert of.declared == DeclaredList()


def test_without_a_declaration_such_a_column_is_a_category(tmp_path: Path) -> None:
    assert not isinstance(read(Data(path=csv(tmp_path / "t.csv"))).columns["history"], ListColumn)


@pytest.mark.parametrize(
    "wrong", [{"separator": ""}, {"longest": 0}, {"longest": 5000}, {"keep": "newest"}, {"scaling": "log"}, {"size": 3}]
)
def test_a_wrong_declaration_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        declared(tmp_path / "t.csv", **wrong)


def test_a_list_cannot_be_an_id_a_label_or_a_pixel(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    for changed in ({"id": "history"}, {"label": "history"}, {"image": {"columns": ["history"], "shape": [1, 1]}}):
        with pytest.raises(DataError) as refused:
            read(Data.model_validate({"path": path, "columns": {"history": "list"}, **changed}))
        assert refused.value.code in ("E_COLUMN", "E_IMAGE")


def test_a_part_of_the_table_has_its_lists_and_every_change_another_digest(tmp_path: Path) -> None:
    table = read(declared(csv(tmp_path / "t.csv")))
    part = sample(table, 3, b"k" * 32)
    whole = items(table.columns["history"])
    ages = part.columns["age"].values.astype(int)
    assert items(part.columns["history"]) == [whole[age] for age in ages]
    digests = {table.digest()}
    for cells, keys in (
        (["17|4", "22", *SEEN[2:]], {}),  # the same items in other rows
        (["4|17|22", *SEEN[1:]], {}),
        (SEEN, {"longest": 4}),
    ):
        digests.add(read(declared(csv(tmp_path / "t.csv", cells), **keys)).digest())
    assert len(digests) == 4
    assert read(declared(csv(tmp_path / "t.csv"))).digest() == table.digest()


def test_an_encoder_keeps_how_lists_are_written_and_reads_them_again(tmp_path: Path) -> None:
    table = read(declared(csv(tmp_path / "t.csv"), longest=3, keep="first"))
    encoder = Encoder.fit(table, np.arange(len(table)), least_rows=2)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    features = again.transform(table)
    assert features.bags.dtype == np.int32
    assert features.bags.shape == (8, 3)
    assert features.lists == ((5, 3),)
    assert (features.width, features.numeric.shape) == (2, (8, 1))
    assert features.take(np.array([4, 0])).bags.tolist() == [[2, 2, 3], [1, 3, 2]]
    assert features.append(features.take(np.array([0]))).bags[-1].tolist() == [1, 3, 2]
    translated = encoder.translate(features, again, table)
    assert translated.bags.tolist() == features.bags.tolist()
    stored = json.loads(encoder.to_json())
    assert stored["columns"][1]["declared"] == {"kind": "list", "separator": "|", "longest": 3, "keep": "first"}


def test_a_table_in_which_the_column_is_no_list_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    encoder = Encoder.fit(read(declared(path)), np.arange(8))
    with pytest.raises(DataError, match="list column 'history'") as refused:
        encoder.transform(read(Data(path=path)))
    assert refused.value.code == "E_COLUMN"


def test_a_model_without_lists_refuses_the_table_and_says_what_to_do(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    with pytest.raises(DataError, match="column 'history' holds lists") as refused:
        check_lists(read(declared(path)), "shop", read=False)
    assert refused.value.code == "E_LIST"
    assert "youtube_dnn" in refused.value.hint
    assert "history: ignore" in refused.value.hint
    check_lists(read(declared(path)), "shop", read=True)
    check_lists(read(Data(path=path)), "shop", read=False)


def test_the_owner_is_told_how_many_items_and_cuts_there_are(tmp_path: Path) -> None:
    data = declared(csv(tmp_path / "t.csv"), longest=2)
    table = read(data)
    encoder = Encoder.fit(table, np.arange(8), least_rows=2)
    (_, said) = encoded_columns(table, encoder.columns)
    assert (said.kind, said.levels, said.merged, said.missing, said.cut) == ("list", 2, 5, 2, 3)
    assert str(said) == "list, 2 items, 5 rare or unseen ones merged, 3 cut short, 2 missing"
    text = columns_for(open_input(data, party="shop"), data, id_form="text", needs_label=False, party="shop")
    (history,) = profile(text, data, id_form="text", needs_label=False, party="shop").columns[2:]
    assert (history.use, history.missing, history.distinct, history.longest, history.cut) == ("list", 2, 7, 2, 3)


def test_a_list_whose_length_says_the_label_is_label_like(tmp_path: Path) -> None:
    rows = 400
    path = tmp_path / "t.csv"
    path.write_text(
        "id,label,history\n" + "".join(f"r{row},{row % 2},{'|'.join('ab'[: 1 + row % 2])}\n" for row in range(rows))
    )
    table = read(declared(path), needs_label=True)
    assert [found.name for found in label_like(table, 2)] == ["history"]
