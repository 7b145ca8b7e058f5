"""The census table end to end: 32,561 people, each party holds 80 % of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vfl_node.execution.simulation import simulate
from vfl_node.job import load_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "adult"


@pytest.mark.slow
@pytest.mark.data
def test_census_income(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "adult" / "adult.data.gz"
    if not source.exists():
        pytest.skip(f"no {source.name}")
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", source, tmp_path], check=True, capture_output=True)
    job = load_job(EXAMPLE / "job.yaml")
    files = {name: tmp_path / f"{name}.csv" for name in job.parties.all}
    simulate(job, files, tmp_path / "out", threads=2)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    sizes = report["alignment"]
    assert sizes["ours"] + sizes["theirs"] - sizes["union"] == sizes["intersection"]
    assert sizes["ours"] == pytest.approx(0.8 * 32_561, abs=400)
    assert report["metrics"]["rows"] > 3000
    assert report["metrics"]["auc"] > 0.875
    assert report["metrics"]["auc"] > report["local_metrics"]["auc"] + 0.01
