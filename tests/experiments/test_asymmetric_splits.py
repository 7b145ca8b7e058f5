"""Regressions over the lender's and FATE's splits: on small tables in the shape of the real ones, and on these if here."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def ran(*arguments: str | Path) -> str:
    command: list[str | Path] = [sys.executable, *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


def split_table(guest: Path, host: Path, rows: int, at_guest: int, at_host: int, classes: int) -> None:
    """A table as FATE splits them: labels in `y` depend on columns of both sides."""
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, at_guest + at_host))
    y = np.digitize(x[:, 0] + x[:, -1] + 0.3 * random.normal(size=rows), np.linspace(-1, 1, classes + 1)[1:-1])
    tables = ((guest, ["y"], np.column_stack([y, x[:, :at_guest]])), (host, [], x[:, at_guest:]))
    for path, extra, values in tables:
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *extra, *(f"x{column}" for column in range(values.shape[1] - len(extra)))])
            writer.writerows(
                [row, *(int(v) for v in of[: len(extra)]), *of[len(extra) :]] for row, of in enumerate(values.tolist())
            )


def check_lines(lines: list[dict[str, Any]], runs: list[str]) -> None:
    """Every run of the product equals plaintext, and the references come after."""
    equal = [line for line in lines if line["difference"] is not None]
    assert [line["run"].rsplit(",", 1)[0] for line in equal] == runs
    assert all(line["difference"] < 1e-6 for line in equal)
    assert all(line["seconds"] > 0 < line["bytes"] for line in equal)


@pytest.fixture(scope="module")
def credit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("credit")
    source = folder / "source"
    split_table(source / "default_credit_hetero_guest.csv.gz", source / "default_credit_hetero_host.csv.gz", 600, 13, 10, 2)
    ran("examples/credit_scoring/make_data.py", source, folder)
    return folder


def test_one_person_in_ten_is_a_customer(credit: Path) -> None:
    people = {}
    for name in ("lender", "bureau", "others"):
        with (credit / f"{name}.csv").open(newline="") as file:
            people[name] = {row["id"]: row for row in csv.DictReader(file)}
    assert [len(of) for of in people.values()] == [60, 600, 540]
    assert people["lender"].keys() | people["others"].keys() == people["bureau"].keys()
    assert people["lender"].keys() & people["others"].keys() == set()
    assert {row["label"] for row in people["lender"].values()} == {"0", "1"}
    assert set(next(iter(people["lender"].values()))) & set(people["bureau"]["0"]) == {"id"}


@pytest.mark.slow
def test_credit_scoring_equals_plaintext_and_hides_the_customers(credit: Path, tmp_path: Path) -> None:
    said = ran(
        "-m", "experiments.credit_scoring.run", "--data", credit, "--out", tmp_path, "--iterations", "2", "--threads", "1"
    )
    lines = json.loads((tmp_path / "results.json").read_text())
    check_lines(lines, ["two-party, exact", "two-party, taylor"])
    assert len(said.splitlines()) == 2 + 6 + 1
    product, plaintext, alone = lines[:3]
    assert product["trained"]["loss"] > plaintext["trained"]["loss"]  # two iterations are not three thousand
    assert plaintext["held_out"]["auc"] > alone["held_out"]["auc"] + 0.05  # labels depend on a column of the bureau
    lender, bureau = (
        json.loads((tmp_path / path / "report.json").read_text())["alignment"] for path in ("exact", "exact/bureau")
    )
    assert lender["rows"] == bureau["rows"] == 600
    assert (lender["intersection"], bureau["intersection"]) == (60, None)


FLOWS = ["two-party, exact", "two-party, taylor", "coordinator, taylor"]


def fate(source: Path, out: Path, name: str) -> list[dict[str, Any]]:
    ran("experiments/fate_splits/make_data.py", source, out)
    ran(
        *("-m", "experiments.fate_splits.run", "--data", out, "--out", out / "runs", "--names", name),
        *("--iterations", "2", "--threads", "1"),
    )
    lines: list[dict[str, Any]] = json.loads((out / "runs" / "results.json").read_text())[name]
    return lines


@pytest.mark.slow
def test_flows_over_four_classes_equal_plaintext(tmp_path: Path) -> None:
    source = tmp_path / "source"
    small, large = source / "fate_small", source / "epsilon_5k"
    split_table(small / "breast_hetero_guest.csv.gz", small / "breast_hetero_host.csv.gz", 50, 2, 3, 2)
    split_table(small / "vehicle_scale_hetero_guest.csv.gz", small / "vehicle_scale_hetero_host.csv.gz", 100, 4, 5, 4)
    split_table(large / "epsilon_5k_hetero_guest.csv.gz", large / "epsilon_5k_hetero_host.rebuilt.csv.gz", 60, 3, 5, 2)
    lines = fate(source, tmp_path, "vehicle")
    check_lines(lines, FLOWS)
    two_party, coordinator = lines[1:3]
    assert two_party["trained"] == pytest.approx(coordinator["trained"], abs=1e-9)  # who decrypts changes nothing
    assert lines[0]["trained"]["loss"] != pytest.approx(two_party["trained"]["loss"], abs=1e-3)  # another loss does


@pytest.mark.data
@pytest.mark.slow  # as over four classes
def test_flows_over_breast_equal_plaintext(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "fate_small").is_dir():
        pytest.skip("no fate_small")
    lines = fate(shared_data, tmp_path, "breast")
    check_lines(lines, FLOWS)
    assert all(line["held_out"]["auc"] > 0.9 for line in lines)
