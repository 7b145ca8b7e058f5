"""From outside: labels that the gradients of a job tell, hidden by settings alone, and judged by whoever received them.

Data by numpy, judges by numpy and scikit-learn, everything else by documented commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.examples.test_rebuilt_column import vfl_node
from tests.node.nodes import command

JOB = """\
name: labels
parties: {{active: a, passive: b}}
align: {{protocol: psi}}
train: {{bottom: [32, 16], active_bottom: [64, 32], top: {top}, epochs: 1, batch_size: 128, learning_rate: 0.003}}
evaluate: {{test_fraction: {test}, metrics: [auc]}}
"""
MARVELL = "defences: [{name: marvell, power: 4}]\n"


def make_data(folder: Path, records: int, at_b: int | None = None) -> None:
    """Two parties with the same records, or with so many ``at_b``.

    The label needs products of the active party's columns and one of the other's.
    """
    rng = np.random.default_rng(2305)
    x, z = rng.normal(size=(records, 20)), rng.normal(size=(records, 3))
    chance = 1 / (1 + np.exp(-(1.5 * (x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3]) + 1.5 * z[:, 0])))
    label = (rng.random(records) < chance).astype(int)
    heads = [f"x{column}" for column in range(1, 21)], [f"z{column}" for column in range(1, 4)]
    parties = ("a", [*heads[0], "label"], [*x.T, label], records), ("b", heads[1], list(z.T), at_b or records)
    for name, head, columns, size in parties:
        rows = rng.permutation(records)[:size]
        lines = [f"r{row:05d},{','.join(f'{of[row]:.6g}' for of in columns)}" for row in rows]
        (folder / f"{name}.csv").write_text("\n".join([f"id,{','.join(head)}", *lines]) + "\n")


def read(folder: Path, name: str) -> dict[str, float]:
    """AUC, folded, of three attacks on the gradients that b received."""
    a, b = (np.genfromtxt(folder / f"{party}.csv", delimiter=",", names=True, dtype=None, encoding="utf-8") for party in "ab")
    labels = dict(zip(a["id"], a["label"], strict=True))
    with np.load(folder / name / "t" / "b.npz") as received:
        sizes = np.bincount(received["step"])[received["step"]]
        gradients = received["gradients"].astype(np.float64) * sizes[:, None]
        truth = np.array([labels[b["id"][row]] for row in received["rows"]])
    along = np.linalg.svd(gradients, full_matrices=False)[2][0]
    reach = gradients @ along
    scores = {
        "norm": np.linalg.norm(gradients, axis=1),
        "direction": reach,
        "residual": np.linalg.norm(gradients - np.outer(reach, along), axis=1),
    }
    return {attack: max(auc, 1 - auc) for attack, of in scores.items() for auc in (float(roc_auc_score(truth, of)),)}


def run(folder: Path, name: str, settings: str, *words: str) -> Mapping[str, float]:
    """What b reads, and what a's report says of it."""
    (folder / f"{name}.yaml").write_text(settings)
    data = ["--data", "active=a.csv", "--data", "passive=b.csv", "--settings", f"active={name}.yaml"]
    done = vfl_node(folder, "run", "j.yaml", *data, "--transcript", f"{name}/t", "--out", name, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    own = json.loads((folder / name / "report.json").read_text())["training"]["label_audit"]
    found = read(folder, name)
    for attack, value in found.items():
        assert own[attack] == pytest.approx(value, abs=0.1), (attack, own, found)
    return found


def both(folder: Path, records: int, test: float, top: str, *words: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    make_data(folder, records)
    (folder / "j.yaml").write_text(JOB.format(top=top, test=test))
    return run(folder, "off", "audit: {labels: true}\n", *words), run(folder, "on", MARVELL, *words)


@pytest.mark.slow
@pytest.mark.parametrize("top", ["[]", "[16]"])
def test_labels_are_read_and_with_a_defence_they_are_not(tmp_path: Path, top: str) -> None:
    """In one process, with a seed."""
    off, on = both(tmp_path, 4000, 0.5, top, "--in-process", "--seed", "1")
    assert max(off.values()) >= 0.95
    assert max(on.values()) <= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("top", ["[]", "[16]"])
def test_in_processes_of_their_own(tmp_path: Path, top: str) -> None:
    off, on = both(tmp_path, 8300, 0.9, top)
    assert max(off.values()) >= 0.95
    assert max(on.values()) <= 0.8


def test_a_limit_stops_the_training_and_the_passive_party_is_not_told_why(tmp_path: Path) -> None:
    make_data(tmp_path, 2000)
    (tmp_path / "j.yaml").write_text(JOB.format(top="[]", test=0.5))
    (tmp_path / "a.yaml").write_text("policy: {everyone: {attacks: {labels: 0.8}}}\n")
    given = [("--data", "active", "a.csv"), ("--data", "passive", "b.csv"), ("--settings", "active", "a.yaml")]
    words = [word for option, party, name in given for word in (option, f"{party}={tmp_path / name}")]
    done = command("run", tmp_path / "j.yaml", *words, "--out", tmp_path / "out", "--seed", "1")
    assert done.returncode == 1
    assert "a's own attacks read its labels from what a passive party has" in done.stderr
    assert "[E_LEAK]" in done.stderr
    log = (tmp_path / "out" / "logs" / "b.log").read_text()
    assert "E_STOPPED" in log
    assert not any(word in log for word in ("E_LEAK", "attacks.labels", "read its labels"))
