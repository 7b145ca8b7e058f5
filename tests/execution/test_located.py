"""After a linkage each data party is told how exactly the other one can locate its records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job

LINKS = """\
name: linked
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: linkage, keys: {KEY}, candidates: 10, encoding: {epsilon: 0.2}, noise: {sigma: 0.4}}
"""
NUMBER = "u: {kind: number, low: 0, high: 1, reach: 0.1}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, written = tmp_path_factory.mktemp("tables"), {}
    for seed, name in enumerate(("clinic", "lab")):
        rng = np.random.default_rng(seed)
        written[name] = folder / f"{name}.csv"
        lines = [f"{name}-{row},{rng.random():.6f},number {rng.integers(60)},{rng.normal():.3f}\n" for row in range(150)]
        written[name].write_text("id,u,called,x\n" + "".join(lines))
    return written


def warnings(job: str, files: dict[str, Path], out: Path) -> dict[str, list[str]]:
    reports = simulate(parse(job, Job, source="job"), files, out)
    alignments = {name: json.loads((path / "report.json").read_text())["alignment"] for name, path in reports.items()}
    return {name: alignment["warnings"] for name, alignment in alignments.items() if alignment}


@pytest.mark.parametrize("sigma", [0.4, 50])
def test_both_owners_are_told_with_figures_of_their_own(sigma: float, files: dict[str, Path], tmp_path: Path) -> None:
    """Noise bounds neither: who has a record as a candidate locates it, too."""
    said = warnings(LINKS.replace("KEY", NUMBER).replace("0.4", str(sigma)), files, tmp_path)
    (of_clinic,), (of_lab,) = said["clinic"], said["lab"]
    assert of_clinic.startswith("lab can locate this party's records by their candidates")
    (uses,) = re.findall(r"clinic can locate this party's records, from about (\d+) similarities of each", of_lab)
    assert 5 <= int(uses) <= 20  # 10 on average; filters are drawn anew in each job
    assert "or from which of its own records have one as a candidate; a training shows" in of_lab
    for text in (of_clinic, of_lab):
        (error,) = re.findall(r"it found 'u' to ([\d.]+), in the median", text)
        assert 0.0005 < float(error) < 0.05


@pytest.mark.parametrize("key", ["called: {kind: text}", f"called: {{kind: text}}, {NUMBER}"])
def test_nothing_is_said_of_texts(key: str, files: dict[str, Path], tmp_path: Path) -> None:
    assert warnings(LINKS.replace("KEY", key), files, tmp_path) == {"clinic": [], "lab": []}


def test_nothing_is_said_where_only_equal_keys_count(files: dict[str, Path], tmp_path: Path) -> None:
    job = LINKS.replace("KEY", "called: {kind: number, low: 0, high: 60, reach: 1}").replace("candidates: 10", "candidates: 1")
    tables = {}
    for name, path in files.items():
        tables[name] = tmp_path / path.name
        tables[name].write_text(path.read_text().replace("number ", ""))
    assert warnings(job.replace("noise", "equal_only: true, noise"), tables, tmp_path / "out") == {"clinic": [], "lab": []}
