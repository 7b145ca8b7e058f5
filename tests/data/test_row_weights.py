"""``data.weight``: how much each row counts, read from a table, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.data.marks import Marks
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Job
from vfl_node.settings.node import Data, Settings
from vfl_node.training.split.config import Train
from vfl_node.training.table_use import check_row_numbers, table_use_of

ROWS = (("a", "1.5", "1", "0"), ("b", "2.5", "0", "1"), ("c", "0.5", "2.5", "0"), ("d", "0.25", "1e0", "1"))


def read(folder: Path, weights: list[str] | None = None, *, label: bool = True, **data: Any) -> Table:
    path = folder / "table.csv"
    cells = weights or [row[2] for row in ROWS]
    path.write_text("id,x,n,label\n" + "".join(f"{i},{x},{w},{y}\n" for (i, x, _, y), w in zip(ROWS, cells, strict=True)))
    return read_table(Data(path=path, **{"weight": "n"} | data), id_form="text", needs_label=label, party="clinic")


def test_weights_are_read_and_are_no_feature(tmp_path: Path) -> None:
    """Control: without the setting the column is a feature."""
    table = read(tmp_path)
    assert table.weights is not None
    assert table.weights.tolist() == [1, 0, 2.5, 1]
    assert list(table.columns) == ["x"]
    assert list(read(tmp_path, weight=None).columns) == ["x", "n"]
    assert list(read(tmp_path, label=False).columns) == ["x"]
    assert read(tmp_path, label=False).weights is None  # where no label is needed, nothing is weighed


def test_equal_weights_weigh_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, ["3"] * 4).weights is None


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", "no weight"),
        ("NA", "no weight"),
        ("heavy", "no finite number"),
        ("inf", "no finite number"),
        ("-0.5", "a weight below 0"),
    ],
)
def test_a_cell_that_is_no_weight_is_refused_with_its_place(tmp_path: Path, cell: str, said: str) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, ["1", "1", cell, "2"])
    assert refused.value.code == "E_WEIGHT"
    assert f"table.csv:4:n: {said}" in refused.value.message
    assert "(1 such cell of 4)" in refused.value.message
    assert "heavy" not in refused.value.message


def test_weights_that_are_all_0_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the weights in column 'n' are all 0"):
        read(tmp_path, ["0"] * 4)


def test_a_weight_of_more_than_a_hundred_times_the_mean_is_refused(tmp_path: Path) -> None:
    """Control: up to it, it is read."""
    path = tmp_path / "table.csv"

    def many(heavy: float) -> Table:
        path.write_text("id,n,label\n" + "".join(f"r{row},{heavy if row == 7 else 1},{row % 2}\n" for row in range(1000)))
        return read_table(Data(path=path, weight="n"), id_form="text", needs_label=True, party="clinic")

    assert many(110).weights is not None
    with pytest.raises(DataError, match=r"table\.csv:9:n: a weight of more than 100 times their mean"):
        many(112)


def test_a_column_of_weights_is_declared_as_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is the weight column and cannot be a numeric one"):
        read(tmp_path, columns={"n": "numeric"})
    with pytest.raises(DataError, match=r"there is no column 'm' \(data.weight\)"):
        read(tmp_path, weight="m")


def test_a_table_with_other_weights_is_another_table(tmp_path: Path) -> None:
    """Control: a table without weights has the digest that it had before there were any."""
    one, other, none = read(tmp_path), read(tmp_path, ["1", "0", "2.5", "1.5"]), read(tmp_path, ["1"] * 4)
    assert one.digest() != other.digest()
    assert none.digest() == read(tmp_path, weight=None, columns={"n": "ignore"}).digest()
    growth = Marks.from_table(one, bytes(32)).compare(Marks.from_table(other, bytes(32)))
    assert (growth.common, growth.changed) == (4, 1)


def test_several_rows_of_a_record_have_one_weight(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,x,n,label\na,1,2,0\na,3,2,0\nb,5,1,1\n")
    data = Data.model_validate({"path": path, "weight": "n", "aggregate": {"columns": {"x": ["sum"]}}})
    table = read_table(data, id_form="text", needs_label=True, party="clinic")
    assert table.weights is not None
    assert {bytes(id_)[-1:]: weight for id_, weight in zip(table.ids, table.weights, strict=True)} == {b"a": 2, b"b": 1}
    path.write_text("id,x,n,label\na,1,2,0\na,3,4,0\nb,5,1,1\n")
    with pytest.raises(DataError, match="have different values in the weight column 'n'"):
        read_table(data, id_form="text", needs_label=True, party="clinic")


def settings(role: str, rest: str = "") -> Settings:
    text = f"name: a\nrole: {role}\ninsecure_loopback: true\ndata: {{path: t.csv, weight: n}}\n{rest}"
    return parse(text, Settings, source="node.yaml")


def test_weights_are_for_an_active_node_and_not_beside_randomised_labels() -> None:
    assert settings("active").tables["default"].weight == "n"
    with pytest.raises(UsageError, match=r"data\.weight is for an active node"):
        settings("passive")
    with pytest.raises(UsageError, match="randomised-labels"):
        settings("active", "defences: [{name: randomised-labels, epsilon: 1}]")


def test_a_column_has_one_use_alone() -> None:
    with pytest.raises(UsageError, match=r"data\.weight names column 'n', which is already that of data.order"):
        parse(
            "name: a\nrole: active\ninsecure_loopback: true\ndata: {path: t.csv, weight: n, order: n}\n",
            Settings,
            source="node.yaml",
        )


def job(train: str, parties: str = "active: clinic, passive: lab", rest: str = "") -> Job:
    return parse(f"name: trial\nparties: {{{parties}}}\ntrain: {{{train}}}\n{rest}", Job, source="job.yaml")


@pytest.mark.parametrize("algorithm", ["hidden", "logistic", "linear"])
def test_a_trainer_that_would_not_read_them_refuses_them(tmp_path: Path, algorithm: str) -> None:
    """Control: split training takes them, and every trainer a table without weights."""
    coordinator = ", coordinator: helper" if algorithm == "hidden" else ""
    asked = job(f"algorithm: {algorithm}", f"active: clinic, passive: lab{coordinator}", "align: {protocol: psi}\n")
    assert asked.train is not None
    with pytest.raises(UsageError, match=r"data\.weight is for train\.algorithm: split") as refused:
        check_row_numbers(asked.train, read(tmp_path))
    assert refused.value.code == "E_CONFIG"
    check_row_numbers(asked.train, read(tmp_path, ["1"] * 4))
    check_row_numbers(Train(), read(tmp_path))


def test_calibration_does_not_go_with_weights(tmp_path: Path) -> None:
    calibrated = Train.model_validate({"missing": {"labels": "majority", "features": "sampling", "calibration": "test"}})
    with pytest.raises(UsageError, match=r"train\.missing\.calibration"):
        table_use_of(calibrated, {}).check("active", read(tmp_path))
    table_use_of(calibrated, {}).check("active", read(tmp_path, ["1"] * 4))
    table_use_of(Train(), {}).check("active", read(tmp_path))
