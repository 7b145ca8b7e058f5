"""A report as tools that track experiments take it: parameters, metrics, curves, tags and files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from vfl_node.errors import UsageError
from vfl_node.job import Metric

MODELS = {
    "federated": "metrics",
    "alone": "local_metrics",
    "alone-aligned": "local_aligned_metrics",
    "boosted-tree": "boosted_tree_metrics",
}
"""Group of metrics → the model's key in the report."""

GAINS = {
    "gain": "gains",
    "gain-over-alone-aligned": "local_aligned_gains",
    "gain-over-boosted-tree": "boosted_tree_gains",
}
"""The same of differences between the federated model and another one."""

CURVES = ("loss", "auc", "validation_loss", "validation_auc", "seconds", "bytes")
"""What is logged of each epoch, where it is known."""

FILES = ("report.html", "report.json")

LONGEST = 500
"""A longer value of a parameter is cut, since stores refuse it."""


@dataclass(frozen=True)
class TrackedRun:
    """One job at one party.

    Attributes:
        name: id of the run.
        started: when it began, in ms of UTC.
        finished: when it ended.
        params: key of the job, nested ones joined by a dot → value.
        metrics: ``group/name`` → value; with ``_low`` and ``_high`` for its interval.
        curves: ``epoch/name`` → value of each epoch, from the first on; None where there is none.
        tags: names and words: party, role, verdict, and the level of what others can tell.
        files: report as a page and for programs.
    """

    name: str
    started: int
    finished: int
    params: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, list[float | None]]
    tags: dict[str, str]
    files: tuple[Path, ...]


def read_run(folder: Path) -> TrackedRun:
    """The run whose report lies in ``folder``. Raises UsageError (``E_FILE``) where there is none."""
    try:
        report = json.loads((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        hint = "name the folder with report.json and report.html of a job that has ended"
        raise UsageError(f"there is no report in {folder}", code="E_FILE", hint=hint) from None
    try:
        return track(report, tuple(folder / name for name in FILES if (folder / name).is_file()))
    except (KeyError, TypeError, ValueError, AttributeError):
        hint = "it must be a report of this version"
        raise UsageError(f"report.json in {folder} is no report", code="E_FILE", hint=hint) from None


def _checked_id(job_id: str) -> str:
    """The id, which names a folder. Raises ValueError where it is none."""
    if not re.fullmatch(r"[a-z0-9-]{1,100}", job_id):
        raise ValueError("no id of a job")
    return job_id


def track(report: Mapping[str, Any], files: tuple[Path, ...] = ()) -> TrackedRun:
    """The run of ``report``, as ``report.json`` has it."""
    return TrackedRun(
        name=_checked_id(report["job"]["id"]),
        started=_milliseconds(report["started"]),
        finished=_milliseconds(report["finished"]),
        params=dict(_flatten(report["job"]["spec"])),
        metrics=dict(_metrics(report)),
        curves=dict(_curves(report)),
        tags=dict(_tags(report)),
        files=files,
    )


def _flatten(spec: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Keys that are set, nested ones joined by a dot."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            yield from _flatten(value, f"{prefix}.{key}" if prefix else key)
    elif spec is not None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        yield prefix, text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _metrics(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for group, key in MODELS.items():
        metrics = report.get(key) or {}
        for name in (*get_args(Metric), "rows"):
            yield from _values(f"{group}/{name}", metrics.get(name), (metrics.get("intervals") or {}).get(name))
    for group, key in GAINS.items():
        for name, gain in (report.get(key) or {}).items():
            yield from _values(f"{group}/{name}", gain["mean"], gain)
    for leak, meter in (report.get("meters") or {}).items():
        yield from _values(f"leak/{leak}", (meter or {}).get("value"), None)


def _values(name: str, value: float | None, interval: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    if value is not None:
        yield name, float(value)
        for end in ("low", "high") if interval else ():
            if interval and interval.get(end) is not None:
                yield f"{name}_{end}", float(interval[end])


def _curves(report: Mapping[str, Any]) -> Iterator[tuple[str, list[float | None]]]:
    epochs = (report.get("training") or {}).get("epochs") or []
    for name in CURVES:
        values = [epoch.get(name) for epoch in epochs]
        if any(value is not None for value in values):
            yield f"epoch/{name}", [None if value is None else float(value) for value in values]


def _tags(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((key, report[key]) for key in ("party", "role"))
    yield "vfl-node", report["versions"]["vfl_node"]
    if verdict := report.get("verdict"):
        yield "verdict", verdict["words"]
    for leak, meter in (report.get("meters") or {}).items():
        if meter:
            yield f"leak.{leak}", meter["level"]


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
