"""``data.offset``, ``data.exposure`` and targets of counts, read from a table; and records to predict, which have them, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.data.marks import Marks
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Job
from vfl_node.node.check import check_table
from vfl_node.prediction.records import read_records
from vfl_node.settings.node import Data, Settings
from vfl_node.training.split.config import Train
from vfl_node.training.table_use import check_row_numbers


def read(folder: Path, cells: list[str], task: Any = "poisson", labels: str = "0123", **data: Any) -> Table:
    path = folder / "table.csv"
    rows = zip("abcd", ("1.5", "2", "3", "4"), cells, labels, strict=True)
    path.write_text("id,x,t,label\n" + "".join(f"{i},{x},{t},{y}\n" for i, x, t, y in rows))
    data = data or {"exposure": "t"}
    return read_table(Data(path=path, **data), id_form="text", needs_label=True, party="clinic", task=task)


def test_an_exposure_is_its_logarithm_and_an_offset_is_itself(tmp_path: Path) -> None:
    """Neither is a feature. Control: without a setting the column is one."""
    exposed = read(tmp_path, ["1", "2", "0.5", "10"])
    assert exposed.offsets == pytest.approx(np.log([1, 2, 0.5, 10]))
    assert exposed.offset_columns == {"exposure": "t"}
    added = read(tmp_path, ["1", "-2", "0", "10"], "regression", offset="t")
    assert added.offsets is not None
    assert added.offsets.tolist() == [1, -2, 0, 10]
    assert list(exposed.columns) == list(added.columns) == ["x"]
    plain = read(tmp_path, ["1", "2", "0.5", "10"], weight=None)
    assert (plain.offsets, list(plain.columns)) == (None, ["x", "t"])
    assert exposed.digest() != read(tmp_path, ["1", "2", "0.5", "11"]).digest()
    growth = Marks.from_table(exposed, bytes(32)).compare(Marks.from_table(read(tmp_path, ["1", "2", "0.5", "11"]), bytes(32)))
    assert (growth.common, growth.changed) == (4, 1)


@pytest.mark.parametrize(
    ("cell", "key", "said"),
    [
        ("", "offset", "no offset"),
        ("", "exposure", "no exposure"),
        ("long", "offset", "no finite number"),
        ("inf", "exposure", "no finite number"),
        ("0", "exposure", "no usable exposure"),
        ("-1", "exposure", "no usable exposure"),
        ("2e100", "offset", "no usable offset"),
    ],
)
def test_a_cell_that_is_none_is_refused_with_its_place(tmp_path: Path, cell: str, key: str, said: str) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, ["1", cell, "2", "3"], **{key: "t"})
    assert refused.value.code == "E_OFFSET"
    assert f"table.csv:3:t: {said} in column 't' (1 such cell of 4)" in refused.value.message


def test_an_exposure_is_for_counts(tmp_path: Path) -> None:
    for task in ("regression", "classification"):
        with pytest.raises(DataError) as refused:
            read(tmp_path, ["1"] * 4, task, labels="0101")
        assert refused.value.code == "E_CONFIG"
        assert "data.exposure is for jobs with train.task: poisson" in refused.value.message
    with pytest.raises(UsageError, match="name one of the two columns"):
        parse(
            "name: a\nrole: active\ninsecure_loopback: true\ndata: {path: t.csv, offset: a, exposure: b}\n",
            Settings,
            source="node.yaml",
        )


def test_a_count_below_0_is_refused_with_its_line(tmp_path: Path) -> None:
    """Control: a regression takes it, and counts need not be whole."""
    path = tmp_path / "table.csv"
    path.write_text("id,x,label\na,1,0\nb,2,-1.5\nc,3,2.5\n")
    given: dict[str, Any] = {"id_form": "text", "needs_label": True, "party": "clinic"}
    with pytest.raises(DataError) as refused:
        read_table(Data(path=path), task="poisson", **given)
    assert refused.value.code == "E_LABEL"
    assert "table.csv:3:label: the target is below 0 (1 such cell of 3)" in refused.value.message
    assert "-1.5" not in refused.value.message
    assert read_table(Data(path=path), task="regression", **given).labels is not None
    path.write_text("id,x,label\na,1,0\nb,2,1.5\n")
    assert read_table(Data(path=path), task="poisson", **given).labels is not None


def test_other_trainers_refuse_an_offset(tmp_path: Path) -> None:
    parties = "{active: clinic, passive: lab}"
    text = f"name: trial\nparties: {parties}\nalign: {{protocol: psi}}\ntrain: {{algorithm: linear}}\n"
    job, table = parse(text, Job, source="job.yaml"), read(tmp_path, ["1", "2", "3", "4"], "regression", offset="t")
    assert job.train is not None
    with pytest.raises(UsageError, match=r"data\.offset is for train\.algorithm: split"):
        check_row_numbers(job.train, table)
    check_row_numbers(Train(), table)


def test_check_names_what_is_wrong(tmp_path: Path) -> None:
    read(tmp_path, ["1", "2", "3", "4"])
    data = Data(path=tmp_path / "table.csv", exposure="t", weight="x")
    settings = Settings(name="clinic", role="active", data=data, listen="127.0.0.1:0", insecure_loopback=True)
    checked = check_table(settings, data=data)
    assert [error.code for error in checked.errors] == ["E_TOO_FEW"]
    assert checked.profile is not None
    assert {column.name: column.use for column in checked.profile.columns} == {
        "id": "id",
        "x": "weight",
        "t": "exposure",
        "label": "label",
    }
    (tmp_path / "table.csv").write_text("id,x,t,label\na,-1,0,0\nb,1,1,1\n")
    assert [error.code for error in check_table(settings, data=data).errors] == [
        "E_TOO_FEW",
        "E_WEIGHT",
        "E_OFFSET",
    ]


def test_records_to_predict_have_the_column_of_training(tmp_path: Path) -> None:
    """And only where the model reads it."""
    path = tmp_path / "new.csv"
    path.write_text("id,x,years\na,1,2\nb,2,4\n")
    text = "name: trial\nparties: {active: clinic, passive: lab}\ntrain: {task: poisson}\n"
    job = parse(text, Job, source="job.yaml")
    settings = Settings(name="clinic", role="active", data=Data(path=path), listen="127.0.0.1:0", insecure_loopback=True)
    kinds: dict[str, Any] = {"x": "numeric"}
    with_it = read_records(settings, job, kinds, Data(path=path), all_columns=True, numbers={"exposure": "years"}).table
    assert with_it.offsets == pytest.approx(np.log([2, 4]))
    without = read_records(settings, job, kinds, Data(path=path, exposure="elsewhere"), all_columns=True).table
    assert (without.offsets, list(without.columns)) == (None, ["x"])
    with pytest.raises(DataError, match="there is no column 'time'"):
        read_records(settings, job, kinds, Data(path=path), all_columns=True, numbers={"offset": "time"})
