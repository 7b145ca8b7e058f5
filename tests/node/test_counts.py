"""Two nodes learn counts with exposures and weights, predict known and new records, and one looks at its table again."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.conftest import Trial
from vfl_node.cli import app
from vfl_node.errors import VflError

JOB = """\
align: {protocol: psi}
train: {task: poisson, bottom: [8], active_bottom: [4], top: [8], epochs: 8, batch_size: 64, learning_rate: 0.01}
serve: {to: active}
"""
ROWS = 700


@pytest.fixture
def counts(tmp_path: Path) -> Trial:
    """Policies of a clinic, with years and weights, and a lab's columns; both have all records."""
    draws = np.random.default_rng(3)
    x, z, years = draws.normal(size=ROWS), draws.normal(size=ROWS), draws.uniform(0.2, 4, ROWS)
    events = draws.poisson(years * np.exp(0.6 * x + 0.6 * z))
    ids = tuple(f"policy-{row:04}" for row in range(ROWS))
    colours = draws.choice(["red", "green"], ROWS)
    write(tmp_path / "clinic.csv", ["id", "x", "colour", "years", "n", "label"], ids, x, colours, years, 1 + z**2 // 1, events)
    write(tmp_path / "lab.csv", ["id", "z"], ids, z)
    return Trial(tmp_path / "clinic.csv", tmp_path / "lab.csv", ROWS, ids)


def write(path: Path, names: list[str], *columns: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *zip(*columns, strict=True)])


def data(path: Path, **keys: Any) -> dict[str, Any]:
    return {"path": str(path), "exposure": "years", "weight": "n", **keys}


def test_two_nodes(federations: Any, counts: Trial, tmp_path: Path) -> None:
    federation = federations(tmp_path / "nodes", tables=counts)
    federation.configure("clinic", data=data(counts.clinic))
    federation.start_both()
    job_id = federation.submit(JOB)
    for name in ("clinic", "lab"):
        assert federation.end(name, job_id)["state"] == "done", federation.log(name)[-3000:]
    report = json.loads((federation.folder / "clinic" / "state" / "jobs" / job_id / "artefacts" / "report.json").read_text())
    found = report["metrics"]
    assert found["deviance"] < 0.8 * found["constant_deviance"]
    assert 0.1 < found["d2"] < 1
    assert found["deviance"] < report["local_metrics"]["deviance"]
    page = (federation.folder / "clinic" / "state" / "jobs" / job_id / "artefacts" / "report.html").read_text()
    assert "mean Poisson deviance" in page
    assert "the rate of the targets trained on" in page

    client = federation.client("clinic")
    some = "id\n" + "".join(f"{id_}\n" for id_ in counts.ids[:60])  # this node's minimum is 50
    asked = client.predict(job_id, some.encode(), lambda: None).decode()
    assert asked.startswith("id,prediction\n")
    known = {id_: float(said) for id_, said in list(csv.reader(asked.splitlines()))[1:]}
    with counts.clinic.open(newline="") as file:
        cells = {row["id"]: row for row in csv.DictReader(file)}
    head = "id,x,colour,years\n"
    lines = [f"{id_},{cells[id_]['x']},{cells[id_]['colour']},{2 * float(cells[id_]['years'])}\n" for id_ in known]
    new = new_records(federation, job_id, head + "".join(lines))
    assert new == pytest.approx({id_: 2 * said for id_, said in known.items()}, rel=1e-5)  # twice the time, twice as many
    with pytest.raises(VflError, match="there is no column 'years'"):
        client.predict_new(job_id, b"id,x,colour\npolicy-0003,1,red\n")
    with pytest.raises(VflError, match="no usable exposure in column 'years'"):
        client.predict_new(job_id, b"id,x,colour,years\npolicy-0003,1,red,0\n")
    look_again(federation, job_id, tmp_path, list(cells.values()))


def new_records(federation: Any, job_id: str, request: str) -> dict[str, float]:
    client = federation.client("clinic")
    asked = client.predict_new(job_id, request.encode())["id"]
    for name in ("clinic", "lab"):
        assert federation.end(name, asked)["state"] == "done", federation.log(name)[-3000:]
    answer = client.predictions(asked).decode()
    return {id_: float(said) for id_, said in list(csv.reader(answer.splitlines()))[1:]}


def look_again(federation: Any, job_id: str, tmp_path: Path, rows: list[dict[str, str]]) -> None:
    """``vfl-node check --against``: the same table is stable, and a changed one is not."""
    config = str(federation.folder / "clinic" / "node.yaml")

    def check(*words: str) -> Any:
        return CliRunner().invoke(app, ["check", *words, "--config", config, "--against", job_id])

    same = json.loads(check("--json").stdout)
    assert (same["rows"], same["rows_then"]) == (ROWS, ROWS)
    assert {column["name"]: column["word"] for column in same["columns"]} == {"x": "stable", "colour": "stable"}
    assert all(column["index"] < 0.01 and column["missing"] == 0 for column in same["columns"])
    later = tmp_path / "later.csv"
    with later.open("w", newline="") as file:  # without labels and years, as applicants come
        writer = csv.writer(file)
        writer.writerow(["id", "x", "colour"])
        for number, row in enumerate(rows):
            x = "" if number % 10 == 0 else float(row["x"]) + 1
            writer.writerow([row["id"], x, "blue" if number % 4 == 0 else row["colour"]])
    said = check(str(later)).stdout
    x, colour = (line.split() for line in said.splitlines() if line.startswith(("x ", "colour ")))
    assert (x[2], x[3], x[4]) == ("shifted", "0.0%", "10.0%")
    assert float(x[1]) > 0.5
    assert (colour[2], colour[5]) == ("shifted", "25.0%")
    refused = CliRunner().invoke(app, ["check", "--config", config, "--against", "nothing-1"])
    assert "no finished job nothing-1" in str(refused.exception)
    assert "say --config" in str(CliRunner().invoke(app, ["check", str(later), "--against", job_id]).exception)
