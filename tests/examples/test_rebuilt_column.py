"""From outside: a column that embeddings tell of, hidden by settings alone, and judged by whoever has what the peer received.

Data by numpy, judges by scikit-learn, everything else by documented commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from tests.node.nodes import command

ROOT = Path(__file__).parents[2]

JOB = """\
name: rebuild
parties: {active: a, passive: b}
align: {protocol: psi}
train: {bottom: [32, 16], active_bottom: [8], top: [16], epochs: 10, batch_size: 128}
evaluate: {test_fraction: 0.2}
"""
SETTINGS = {
    "off": "audit: {features: {columns: [s]}}\n",
    "on": "audit: {features: {columns: [s]}}\ndefences: [{name: fbs, columns: [s]}]\n",
}
KNOWN = 200


def make_data(folder: Path, records: int) -> None:
    """``b.csv``: a fair coin s and six columns that matter more or less; ``a.csv``: one column, and a label without s."""
    rng = np.random.default_rng(20210414)
    s, z, x = rng.integers(0, 2, records), rng.normal(size=(records, 6)), rng.normal(size=records)
    label = (z[:, 0] + z[:, 1] + x + rng.normal(size=records) > 0).astype(int)

    def write(name: str, head: str, columns: list[np.ndarray]) -> None:
        lines = [f"r{row:05d},{','.join(f'{of[row]:.6g}' for of in columns)}" for row in rng.permutation(records)]
        (folder / name).write_text("\n".join([head, *lines]) + "\n")

    write("b.csv", "id,s,z1,z2,z3,z4,z5,z6", [s, *z.T])
    write("a.csv", "id,x1,label", [x, label])


def vfl_node(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, as somebody types it in a folder of his own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vfl_node", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500
    )


@dataclass(frozen=True)
class Outcome:
    """Of one run: how well outside judges rebuild s, what the passive party's own report says of it, and the AUC."""

    judged: float
    reported: float
    auc: float


def outcome(folder: Path, name: str) -> Outcome:
    s = np.loadtxt(folder / "b.csv", delimiter=",", skiprows=1, usecols=1)
    with np.load(folder / name / "t" / "a.npz") as received:
        steps = received["step"]
        last = steps > steps.max() - (steps.max() + 1) // 10  # the last of ten epochs
        embeddings, truth = received["embeddings"][last], s[received["rows"][last]]
    assert len(truth) == len(s) * 0.8
    mixed = np.random.default_rng(0).permutation(len(truth))
    known, others = mixed[:KNOWN], mixed[KNOWN:]
    judges = LogisticRegression(max_iter=1000), MLPClassifier((128, 128), max_iter=1000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judged = max(judge.fit(embeddings[known], truth[known]).score(embeddings[others], truth[others]) for judge in judges)
    whole, own = (json.loads((folder / name / party / "report.json").read_text()) for party in ("", "b"))
    return Outcome(judged, own["training"]["feature_audit"]["s"]["worst"], whole["metrics"]["auc"])


def run(folder: Path, records: int, *words: str) -> tuple[Outcome, Outcome]:
    make_data(folder, records)
    (folder / "j.yaml").write_text(JOB)
    for name, settings in SETTINGS.items():
        (folder / f"{name}.yaml").write_text(settings)
        data = ["--data", "active=a.csv", "--data", "passive=b.csv", "--settings", f"passive={name}.yaml"]
        done = vfl_node(folder, "run", "j.yaml", *data, "--transcript", f"{name}/t", "--out", name, *words)
        assert done.returncode == 0, done.stderr[-2000:]
    return outcome(folder, "off"), outcome(folder, "on")


@pytest.mark.slow
def test_a_column_is_rebuilt_and_with_a_defence_it_is_not(tmp_path: Path) -> None:
    """A smaller form: fewer records, one process, a seed. The model loses more than with all of them, and has fewer to lose."""
    off, on = run(tmp_path, 2000, "--in-process", "--seed", "1")
    assert off.judged >= 0.85
    assert off.reported >= 0.85
    assert on.judged <= 0.7
    assert off.auc - on.auc <= 0.05
    assert abs(on.reported - on.judged) <= 0.1


def test_a_limit_stops_the_training_and_the_active_party_is_not_told_why(tmp_path: Path) -> None:
    make_data(tmp_path, 2000)
    (tmp_path / "j.yaml").write_text(JOB)
    (tmp_path / "b.yaml").write_text(SETTINGS["off"] + "policy: {everyone: {attacks: {columns: 0.2}}}\n")
    given = [("--data", "active", "a.csv"), ("--data", "passive", "b.csv"), ("--settings", "passive", "b.yaml")]
    words = [word for option, party, name in given for word in (option, f"{party}={tmp_path / name}")]
    more = ["--transcript", tmp_path / "t", "--out", tmp_path / "out", "--seed", "1"]
    done = command("run", tmp_path / "j.yaml", *words, *more)
    assert done.returncode == 1
    assert "at b: b's own attacks rebuild one of its columns from what it sends" in done.stderr
    assert "[E_LEAK]" in done.stderr
    assert "the column is 's'" in done.stderr
    log = (tmp_path / "out" / "logs" / "a.log").read_text()
    assert "E_STOPPED" in log
    assert not any(word in log for word in ("E_LEAK", "attacks.columns", "rebuild one", "'s'"))
    assert not list(tmp_path.glob("out/**/report.json"))
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.slow
def test_nothing_of_it_depends_on_the_size_or_on_one_process(tmp_path: Path) -> None:
    off, on = run(tmp_path, 4000, "--seed", "1")
    assert off.judged >= 0.9
    assert on.judged <= 0.7
    assert off.auc - on.auc <= 0.02
    assert abs(on.reported - on.judged) <= 0.1
