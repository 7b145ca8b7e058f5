"""Reports for tests of the comparison: as far as it reads them, with figures as wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vfl_node.job import Job

LOW = {"level": "low", "value": None, "attack": None, "why": "no row is sent in the open"}
SOME = {"level": "some", "value": 0.7, "attack": "gradient_norm", "why": None}
HIGH = {"level": "high", "value": 0.99, "attack": "clusters", "why": None}

Ends = tuple[float, float]


def a_report(
    name: str = "trial",
    *,
    auc: Sequence[float] | None = (0.90, 0.92, 0.91),
    gain: Ends | None = (0.01, 0.05),
    labels: Mapping[str, Any] = HIGH,
    seeded: bool = False,
    split: str | None = None,
    reuse: str | None = None,
    sent: int = 1000,
    population: str = "owned",
    constant: float = 0.6,
    job_id: str = "",
    **train: Any,
) -> dict[str, Any]:
    """The report of a clinic whose model has these AUCs, one a split, and this interval of the gain over the clinic alone."""
    repeats = len(auc or (0,))
    job = Job.model_validate(
        {
            "name": name,
            "parties": {"active": "clinic", "passive": "lab"},
            "align": {"protocol": "psi", **({"reuse": reuse} if reuse else {})},
            "train": {"epochs": 2, **train},
            "evaluate": {"repeats": repeats, "metrics": ["auc", "nll"]},
        }
    )
    measured: dict[str, Any] = {"rows": 40, "population": population, "held_out": True, "real_share": 0.9, "confusion": None}
    if auc:
        mean = sum(auc) / repeats
        interval = {"auc": {"low": mean - 0.02, "high": mean + 0.02}} if repeats > 1 else None
        measured |= {"auc": mean, "repeats": {"auc": list(auc)}, "intervals": interval, "constant_nll": constant}
    sizes = dict.fromkeys(("records", "ours", "theirs", "rows", "union", "intersection"), 200)
    epochs = [{"loss": 0.5}, {"loss": None}, {"loss": 0.25}]
    counts = {"epochs": epochs, "rows": {"training": 160, "test": 40}, "steps": 30, "repeats": repeats, "split_digest": split}
    return {
        "format": 6,
        "job": {"id": job_id or f"{name}-1", "name": name, "spec": job.lasting_fields()},
        "party": "clinic",
        "parties": {"active": "clinic", "passive": ["lab"]},
        "started": "2026-03-01T10:00:00+00:00",
        "finished": "2026-03-01T10:01:30+00:00",
        "seeded": seeded,
        "versions": {"vfl_node": "0"},
        "alignment": sizes,
        "training": {"algorithm": "split", "split": {"defences": []}, **counts},
        "metrics": measured if auc else None,
        "local_metrics": {**measured, "auc": 0.85} if auc else None,
        "gains": {"auc": {"mean": sum(gain) / 2, "low": gain[0], "high": gain[1]}} if gain else None,
        "boosted_tree_metrics": None,
        "meters": {"labels": dict(labels), "membership": None, "columns": None},
        "phases": {"train": {"bytes_sent": sent, "bytes_received": sent}},
    }


def store(folder: Path, report: Mapping[str, Any]) -> Path:
    """``folder`` with ``report`` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report))
    return folder
