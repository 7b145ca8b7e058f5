"""Records to predict are read as the model's columns were written: another table decides nothing anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.data.design import LinearEncoder
from vfl_node.data.features import Encoder
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.execution.inputs import read_input
from vfl_node.job import Job
from vfl_node.prediction.records import read_records
from vfl_node.settings.declared import Declared
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.policy import Policy
from vfl_node.training.split.prediction.model import column_kinds

JOB = Job.model_validate(
    {"name": "written", "parties": {"active": "clinic", "passive": "lab"}, "align": {"protocol": "psi"}, "train": {}}
)
HEAD = "id;paid;since;plain;colour\n"


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    """Decimals have a comma in ``paid``, and days come first, as rows 0 and 20 say."""
    paid = ["$1.234,5", *(f"$1.{row:03}" for row in range(100, 140))]
    since = [f"{row % 28 + 1:02}/{row % 12 + 1:02}/2020" for row in range(41)]
    colours = ["red", "none", "blue"]
    rows = (f"r{row};{cell};{since[row]};{row / 8};{colours[row % 3]}\n" for row, cell in enumerate(paid))
    path = tmp_path / "own.csv"
    path.write_text(HEAD + "".join(rows))
    data = Data(path=path, missing=("none",))
    return Settings(name="lab", role="passive", data=data, insecure_loopback=True, policy=Policy(preset="trial"))


def of_split(table: Table) -> tuple[Mapping[str, Declared], Callable[[Table], bytes]]:
    encoder = Encoder.fit(table, np.arange(len(table)))
    stored = Encoder.from_json(encoder.to_json())
    return column_kinds(encoder.to_json()), lambda other: stored.transform(other).numeric.tobytes()


def of_linear(table: Table) -> tuple[Mapping[str, Declared], Callable[[Table], bytes]]:
    stored = LinearEncoder.from_json(LinearEncoder.fit(table, "standard").to_json())
    return stored.declare(stored.kinds), lambda other: stored.transform(other).integers.tobytes()


def asked(tmp_path: Path, *rows: str) -> Data:
    path = tmp_path / "new.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return Data(path=path)


@pytest.mark.parametrize("fitted", [of_split, of_linear])
def test_what_the_training_decided_holds_for_other_records(fitted: Any, own: Settings, tmp_path: Path) -> None:
    kinds, encoded = fitted(read_input(own, JOB))
    ambiguous = asked(tmp_path, "a;$1.139;03/04/2020;2;red", "b;$0;01/02/2020;-;none")
    read = read_records(own, JOB, kinds, ambiguous, all_columns=True).table
    columns: Any = read.columns
    assert columns["paid"].values.tolist() == [1139, 0]
    assert columns["since"].seconds.astype("datetime64[s]").astype("datetime64[D]").astype(str).tolist() == [
        "2020-04-03",
        "2020-02-01",
    ]
    assert np.isnan(columns["plain"].values).tolist() == [False, True]
    assert columns["colour"].codes.tolist() == [0, -1]
    plain = asked(tmp_path, "a;$1.139,00;2020-04-03;2,0;red", "b;;2020-02-01;;")  # decimals with a comma, as its rows suggest
    assert (
        encoded(read)[: len(encoded(read)) // 2]
        == encoded(read_records(own, JOB, kinds, plain, all_columns=True).table)[: len(encoded(read)) // 2]
    )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a;1139;03/04/2020;2;red", "not a number with the column's sign or unit in numeric column 'paid'"),
        ("a;€1.139;03/04/2020;2;red", "not a number with the column's sign or unit in numeric column 'paid'"),
        ("a;$1.139;03/14/2020;2;red", "not a date in date column 'since'"),
        ("a;$1.139;03/04/2020;2 %;red", "text in numeric column 'plain'"),
        ("a;$1.139;03/04/2020;1,234,567;red", "text in numeric column 'plain'"),
    ],
)
def test_records_that_are_written_otherwise_are_refused(row: str, says: str, own: Settings, tmp_path: Path) -> None:
    kinds, _ = of_split(read_input(own, JOB))
    with pytest.raises(DataError, match=says):
        read_records(own, JOB, kinds, asked(tmp_path, row), all_columns=True)
