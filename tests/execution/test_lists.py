"""Tables with lists: a job whose model reads none refuses them, and records to predict are read as those of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.data.features import Encoder
from vfl_node.data.tables import ListColumn
from vfl_node.errors import DataError
from vfl_node.execution.inputs import count_input, read_input
from vfl_node.job import Job
from vfl_node.prediction.records import read_records
from vfl_node.settings.declared import DeclaredList
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.policy import Policy
from vfl_node.training.split.prediction.model import column_kinds

WRITTEN = {"kind": "list", "separator": ";", "longest": 2, "keep": "first"}


def job(**train: Any) -> Job:
    parties = {"active": "clinic", "passive": "lab"}
    return Job.model_validate({"name": "lists", "parties": parties, "align": {"protocol": "psi"}, "train": train})


def table(path: Path, *cells: str) -> Path:
    path.write_text("id,seen,age\n" + "".join(f"r{row},{cell},{row}\n" for row, cell in enumerate(cells)))
    return path


def settings(tmp_path: Path) -> Settings:
    path = table(tmp_path / "own.csv", *(f"{row % 3};{row % 2};9" for row in range(12)))
    data: Any = {"path": path, "columns": {"seen": WRITTEN}}
    return Settings(name="lab", role="passive", data=data, insecure_loopback=True, policy=Policy(preset="trial"))


@pytest.mark.parametrize("train", [{"model": "mlp"}, {"model": "cnn"}, {"algorithm": "logistic"}])
def test_a_job_whose_model_reads_no_lists_refuses_the_table(tmp_path: Path, train: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="column 'seen' holds lists") as refused:
        read_input(settings(tmp_path), job(**train))
    assert refused.value.code == "E_LIST"


def test_an_estimate_without_the_values_counts_as_many_items_as_are_read_at_the_most(tmp_path: Path) -> None:
    """Of three columns, two are counted as numbers: a value, and whether there is one."""
    shape = count_input(settings(tmp_path), job(model="youtube_dnn"))
    assert (shape.rows, shape.numeric, shape.lists) == (12, 4, ((1, 2),))


def test_other_records_are_read_as_the_training_read_its_own(tmp_path: Path) -> None:
    own, trained = settings(tmp_path), job(model="youtube_dnn")
    read = read_input(own, trained)
    assert isinstance(read.columns["seen"], ListColumn)
    encoder = Encoder.fit(read, np.arange(len(read)))
    kinds = column_kinds(encoder.to_json())
    assert kinds["seen"] == DeclaredList.model_validate(WRITTEN)
    asked = Data(path=table(tmp_path / "new.csv", "2;1;0", "", "1"))
    records = read_records(own, trained, kinds, asked, all_columns=True).table
    assert encoder.transform(records).bags.tolist() == [[3, 2], [0, 0], [2, 0]]
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("id,age\nr1,3\n")
    with pytest.raises(DataError, match="seen") as refused:
        read_records(own, trained, kinds, Data(path=lacking), all_columns=True)
    assert refused.value.code == "E_COLUMN"
