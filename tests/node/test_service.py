"""A node as its owner and Prometheus see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.execution.live import AT_REST
from vfl_node.node.service import Node
from vfl_node.settings.node import Settings


def test_a_token_is_what_its_file_says_however_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-owner\n")
    node = Node(Settings(name="lab", role="passive", insecure_loopback=True, http=None, state_dir=tmp_path, device="cpu"))
    node._store.close()
    assert node.token == "of-the-owner"


def test_prometheus_reads_the_audit_of_running_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(
        Settings(name="lab", role="passive", insecure_loopback=True, listen="127.0.0.1:0", state_dir=tmp_path, device="cpu")
    )
    attacks = {"longitudinal": None, "spectral": 0.51}
    labels = {"norm": 0.9, "clusters": None}
    views = [AT_REST | {"id": "running", "state": "running", "attacks": attacks, "labels": labels}]
    monkeypatch.setattr(node._jobs, "running", lambda: views)
    text = node.metrics_text().decode()
    node._store.close()
    lines = [line for line in text.splitlines() if line.startswith(("vfl_attack_auc", "vfl_label_auc"))]
    assert lines == ['vfl_attack_auc{attack="spectral",job="running"} 0.51', 'vfl_label_auc{attack="norm",job="running"} 0.9']
