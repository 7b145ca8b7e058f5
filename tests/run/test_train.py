"""What a run adds to what a trainer reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.registry import read_params
from vfl_node.run.train import idle_defences
from vfl_node.session.session import Session
from vfl_node.settings import Protection

LOGISTIC = "align: {protocol: psi}\ntrain: {algorithm: logistic}"


@pytest.mark.parametrize(
    ("text", "name", "defences", "idle"),
    [
        ("train: {}", "lab", [{"name": "noise", "sigma": 1}], ""),
        ("train: {}", "clinic", [{"name": "noise", "sigma": 1}], ""),
        ("train: {}", "clinic", [], ""),
        (LOGISTIC, "lab", [{"name": "noise", "sigma": 1}], "noise"),
        (LOGISTIC, "clinic", [{"name": "noise", "sigma": 1}, {"name": "noise", "sigma": 2}], "noise, noise"),
        (LOGISTIC, "lab", [], ""),
    ],
)
def test_a_defence_that_changed_nothing_is_a_warning(
    trial: Any, tmp_path: Path, text: str, name: str, defences: list[dict[str, Any]], idle: str
) -> None:
    protection = Protection(defences=tuple(read_params(entry) for entry in defences))
    job = trial.job(text)
    session = Session(job=job, name=name, peers={}, randomness=Randomness(bytes(32)), folder=tmp_path, protection=protection)
    warnings = idle_defences(session)
    assert len(warnings) == bool(idle)
    assert all(warning.endswith(f"in training: {idle}.") for warning in warnings)
