"""What further parties add: the cut of the columns, what the page asserts, and a small run of the whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.several_parties.data import ACTIVE, COLUMNS, read_people, write_tables
from experiments.several_parties.run import EVERYTHING, JOB, MODELS, ONE_TABLE, PEOPLE, SEEDS, measured, page

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "several_parties.json"
HALF = 2.262 / np.sqrt(SEEDS)
"""Half of a 95 % interval of a mean over the seeds, in standard deviations (Student's t, 9 degrees of freedom)."""


def low(values: list[float]) -> float:
    """The lower end of the interval."""
    return float(np.mean(values) - HALF * np.std(values, ddof=1))


def differences(one: str, other: str) -> list[float]:
    stored = json.loads(RESULTS.read_text())
    assert (stored["people"], len(stored["seeds"])) == (PEOPLE, SEEDS)
    return [of["auc"][one] - of["auc"][other] for of in stored["seeds"]]


def test_every_party_adds_something() -> None:
    assert low(differences("bank and employer", "bank alone")) > 0
    assert low(differences("bank and census", "bank alone")) > 0
    for two in ("bank and employer", "bank and census"):
        assert low(differences("bank, employer and census", two)) > 0


def test_three_parties_are_as_good_as_one_table() -> None:
    assert abs(np.mean(differences("bank, employer and census", "one table"))) < 0.005


def test_the_report_ranks_the_parties_as_leaving_them_out_does() -> None:
    without = {party: np.mean([of["without"][party] for of in json.loads(RESULTS.read_text())["seeds"]]) for party in COLUMNS}
    assert without["census"] > without["employer"] > 0
    left_out = {
        "census": np.mean(differences("bank, employer and census", "bank and employer")),
        "employer": np.mean(differences("bank, employer and census", "bank and census")),
    }
    assert left_out["census"] > left_out["employer"]


def test_the_page_shows_what_was_measured() -> None:
    assert RESULTS.with_suffix(".md").read_text() == page(json.loads(RESULTS.read_text())["seeds"])


def made_up(count: int) -> list[dict[str, str]]:
    """People whose label depends on one column of each party, most of all on one of the census."""
    values = np.random.default_rng(3).normal(size=(count, len(EVERYTHING))).round(3)
    people = [dict(zip(EVERYTHING, map(str, row), strict=True)) for row in values]
    weights = {"age": 1, "education_num": 2, "capital_gain": 4}
    score = sum(weight * values[:, EVERYTHING.index(name)] for name, weight in weights.items())
    return [person | {"label": str(int(of > 0))} for person, of in zip(people, score, strict=True)]


def test_a_party_that_is_left_out_has_a_constant(tmp_path: Path) -> None:
    files = write_tables(made_up(50), ONE_TABLE, tmp_path)
    tables = {party: list(csv.reader(file.open(encoding="utf-8"))) for party, file in files.items()}
    assert tables[ACTIVE][0] == ["id", *EVERYTHING, "label"]
    for party in COLUMNS.keys() - {ACTIVE}:
        assert tables[party][0] == ["id", "constant"]
        assert {row[1] for row in tables[party][1:]} == {"1"}
    assert {tuple(row[0] for row in table) for table in tables.values()} == {("id", *(f"person-{n}" for n in range(50)))}
    assert {row[-1] for row in tables[ACTIVE][1:]} == {"0", "1"}


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    train = {"bottom": [8], "active_bottom": [8], "top": [8], "epochs": 6, "batch_size": 20, "learning_rate": 0.02}
    found = measured(made_up(160), 0, tmp_path, {**JOB, "train": train})
    assert found["auc"].keys() == set(MODELS)
    assert found["without"].keys() == COLUMNS.keys()
    alone, three = found["auc"]["bank alone"], found["auc"]["bank, employer and census"]
    assert three > found["auc"]["bank and employer"]
    assert three > alone + 0.1
    assert found["without"]["census"] > found["without"]["employer"]


@pytest.mark.data
def test_all_columns_of_the_table_are_some_partys(shared_data: Path) -> None:
    people = read_people(shared_data, 50)
    assert len(people) == 50
    assert people[0].keys() == {*EVERYTHING, "label"}
    assert len(EVERYTHING) == len(set(EVERYTHING)) == 14
    assert {person["label"] for person in people} == {"0", "1"}
