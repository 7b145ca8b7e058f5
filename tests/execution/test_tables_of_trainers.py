"""A table with which the job's training would fail is refused before anything is aligned."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import DataError
from vfl_node.execution import train
from vfl_node.execution.run import Run
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job

JOB = """\
name: trial
parties: {active: clinic, passive: lab}
align: {protocol: psi}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 16, unaligned: {method: METHOD}}
evaluate: {test_fraction: 0.3}
"""


@pytest.mark.parametrize(
    ("method", "columns", "code"), [("heuristic", ["x"], "E_CONFIG"), ("jpl", [], "E_NO_FEATURES"), ("none", ["x"], "")]
)
def test_refused_before_alignment(
    method: str, columns: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned = []

    async def counted(of: Run, *, resume: bool) -> object:
        aligned.append(of.session.name)
        raise DataError("as far as alignment", code="E_ALIGNED")

    monkeypatch.setattr(train, "align_or_load", counted)
    files = {"clinic": tmp_path / "clinic.csv", "lab": tmp_path / "lab.csv"}
    for name, path in files.items():
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            own = columns if name == "clinic" else ["z"]
            writer.writerow(["id", *own, *(["label"] if name == "clinic" else [])])
            for row in range(80):
                writer.writerow([f"r{row}", *(row % 7 for _ in own), *([row % 2] if name == "clinic" else [])])
    with pytest.raises(DataError) as caught:
        simulate(parse(JOB.replace("METHOD", method), Job, source="job"), files, tmp_path / "out")
    assert caught.value.code == (code or "E_ALIGNED")
    assert ("clinic" in aligned) == (not code)
    assert "r1" not in caught.value.message
