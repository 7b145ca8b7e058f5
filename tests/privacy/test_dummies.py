"""The benchmark of what dummies hide runs, and its tables and JSON hold the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_table_and_json_of_the_same_rows(tmp_path: Path) -> None:
    out = tmp_path / "dummies.json"
    command = [sys.executable, "benchmarks/dummies.py", "--seeds", "1", "--only", "scores", "--out", str(out)]
    text = subprocess.run(command, check=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout
    made = json.loads(out.read_text())
    assert list(made) == ["scores"]
    assert "| rounds | columns | inner products |" in text
    errors = {row["rounds"]: row["columns"][0] for row in made["scores"]}
    assert all(f"| {rounds} | " in text for rounds in errors)
    assert all((error > 0.5) == (rounds < 15) for rounds, error in errors.items())
    distances = [row["inner products"][0] for row in made["scores"]]
    assert distances[-1] < 1e-2 < distances[0]
