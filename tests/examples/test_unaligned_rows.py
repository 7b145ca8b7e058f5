"""From outside: what rows without a partner are worth, by documented commands and the reports of the jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_hidden_labels import make_data
from tests.examples.test_rebuilt_column import vfl_node

RECORDS, SHARED = 8300, 2500

JOB = """\
name: unaligned
parties: {{active: a, passive: b}}
align: {{protocol: psi}}
train:
  bottom: [32, 16]
  active_bottom: [64, 32]
  top: []
  epochs: 30
  batch_size: 128
  learning_rate: 0.003
  unaligned: {{{unaligned}}}
evaluate: {{test_fraction: 0.9, metrics: [auc]}}
"""


def report(folder: Path, name: str, unaligned: str) -> Any:
    """The active party's, of a job that two processes ran, each with the files of its own party."""
    (folder / f"{name}.yaml").write_text(JOB.format(unaligned=unaligned))
    done = vfl_node(folder, "run", f"{name}.yaml", "--data", "active=a.csv", "--data", "passive=b.csv", "--out", name)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / name / "report.json").read_text())


@pytest.mark.slow
def test_rows_without_a_partner_beat_the_shared_rows_and_the_active_party_alone(tmp_path: Path) -> None:
    """250 rows with a partner are learnt from, and 5,800 without; no seed, as in a job between two parties."""
    make_data(tmp_path, RECORDS, at_b=SHARED)
    plain = report(tmp_path, "none", "method: none")
    filled = report(tmp_path, "diffusion", "method: diffusion, steps: 200")
    outside = filled["training"]["split"]["unaligned"]
    assert (outside["method"], outside["rows"], outside["generated"]) == ("diffusion", RECORDS - SHARED, RECORDS - SHARED)
    assert plain["training"]["split"]["unaligned"] is None
    alone = max(of["local_metrics"]["auc"] for of in (plain, filled))
    assert filled["metrics"]["auc"] >= plain["metrics"]["auc"] + 0.05
    assert filled["metrics"]["auc"] >= alone + 0.02
