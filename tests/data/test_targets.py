"""The column that a regression predicts: what is a target, and errors that name the place and never the cell."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from vfl_node.data.profile import profile
from vfl_node.data.readers.opening import open_input
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.data.targets import TargetProfile
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.node import Data
from vfl_node.settings.table import LabelSource


def columns_of(data: Data) -> TextColumns:
    with closing(open_input(data, party="agency")) as reader:
        return TextColumns(reader)


def written(tmp_path: Path, *cells: str) -> Data:
    path = tmp_path / "prices.csv"
    path.write_text("id,price,rooms\n" + "".join(f"{row},{cell},{row % 4}\n" for row, cell in enumerate(cells)))
    return Data(path=path, label="price")


def read(data: Data) -> Table:
    return read_table(data, id_form="text", needs_label=True, party="agency", task="regression")


def test_targets_keep_all_their_digits(tmp_path: Path) -> None:
    table = read(written(tmp_path, "123456789.125", "-1e-3", " 7 ", "1600000000.5"))
    assert table.labels is not None
    assert table.labels.dtype == np.float64
    assert table.labels.tolist() == [123456789.125, -0.001, 7.0, 1600000000.5]
    other = Table(table.ids, table.columns, table.labels + np.array([1e-7, 0, 0, 0]))
    assert table.digest() != other.digest()  # float32 would not tell them apart


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("", "is missing (1 such cell of 3)"),
        ("NA", "is missing"),
        ("cheap-secret", "is text"),
        ("1_000", "is text"),
        ("inf", "is an infinite number"),
        ("-1e101", "is beyond ±1e+100"),
    ],
)
def test_what_is_no_number_is_refused_with_its_place(tmp_path: Path, cell: str, what: str) -> None:
    data = written(tmp_path, "1.5", cell, "2.5")
    with pytest.raises(DataError) as caught:
        read(data)
    assert caught.value.code == "E_LABEL"
    assert f"agency: {data.path}:3:price: the target {what}" in caught.value.message
    assert "leave out rows without one" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_points_that_most_likely_separate_thousands_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'price' can be read in two ways: points before decimals, or points") as caught:
        read(written(tmp_path, "1.250", "999", "12.375"))
    assert caught.value.code == "E_LABEL"
    for cells in (("1.250", "999.0", "12.375"), ("1.251", "999", "12.375"), ("1250", "999", "12375")):
        assert read(written(tmp_path, *cells)).labels is not None


def test_a_positive_class_is_not_for_targets(tmp_path: Path) -> None:
    data = written(tmp_path, "1.5", "2.5").model_copy(update={"label": LabelSource(column="price", positive="2.5")})
    with pytest.raises(DataError, match=r"data\.label\.positive is for two classes, and the job predicts a number") as caught:
        read(data)
    assert caught.value.code == "E_CONFIG"


def test_targets_that_are_all_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, "41.5", "41.5"))
    assert caught.value.code == "E_ONE_CLASS"
    assert "41.5" not in caught.value.message


def test_a_check_shows_their_range_in_three_digits(tmp_path: Path) -> None:
    data = written(tmp_path, "1234.56", "99999", "", "5000")
    text = columns_of(data)
    for task in ("regression", None):
        seen = profile(text, data, id_form="text", needs_label=True, party="agency", task=task)  # type: ignore[arg-type]
        if task:
            assert isinstance(seen.label, TargetProfile)
            assert (seen.label.rows, seen.label.other) == (3, 1)
            assert (seen.label.lowest, seen.label.highest) == (1230.0, 100000.0)
            assert [error.code for error in seen.errors] == ["E_LABEL"]


def test_without_a_job_numbers_that_are_no_classes_are_targets(tmp_path: Path) -> None:
    def seen(*cells: str) -> tuple[bool, list[str]]:
        data = written(tmp_path, *cells)
        of = profile(columns_of(data), data, id_form="text", needs_label=True, party="agency")
        return isinstance(of.label, TargetProfile), [error.code for error in of.errors]

    assert seen("1.5", "700", "3") == (True, [])
    assert seen("0", "1", "1") == (False, [])
    assert seen("1.5", "2.5", "7") == (True, [])
    assert seen("low", "1.5", "2") == (False, [])  # names of classes
