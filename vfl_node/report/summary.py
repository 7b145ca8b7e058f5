"""A report in a few lines, for the terminal; and its main figures, for a list of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, get_args

from vfl_node.alignment.words import words_of
from vfl_node.job import Metric
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.evaluate import WITH_UNIT
from vfl_node.report.words import quantity

MODELS = {
    "federated": "metrics",
    "active party alone": "local_metrics",
    "active party alone, aligned rows": "local_aligned_metrics",
    "boosted tree alone": "boosted_tree_metrics",
}
"""Model → the key of the report with its metrics."""

MAIN = {"federated": "metrics", "alone": "local_metrics"}
"""As :data:`MODELS`, of those whose metrics a list of jobs has."""


def summary(report: Mapping[str, Any]) -> list[str]:
    """What was aligned, the metrics of each model, what noise bounds, and the verdict; none of what the party does not know."""
    lines = []
    if alignment := report.get("alignment"):  # a coordinator's report has none
        spec = ALIGNMENTS[alignment["protocol"]]
        names = ("ours", "theirs", "rows", *(() if spec.by_similarity else ("union", "intersection")))
        sizes = ", ".join(f"{name} {_size(alignment[name])}" for name in names)
        named = ((report.get("job") or {}).get("spec") or {}).get("align", {}).get("reuse")
        reused = alignment.get("reused", named)  # an earlier version did not report it
        done = f"alignment of job {reused} used again" if reused else f"aligned by {spec.name.upper()}"
        lines += [f"{done}: {sizes}", *words_of(spec).figures(alignment)]
    for title, key in MODELS.items():
        if metrics := report.get(key):
            rows = " ".join(str(metrics[about]) for about in ("rows", "population") if metrics[about] is not None)
            on = f" on {rows} rows" if metrics["rows"] is not None else ""
            lines.append(f"{title}: {', '.join(_metrics_text(metrics)) or 'no metric'}{on}")
    training = report.get("training") or {}
    if trials := training.get("trials"):
        number, chosen = next((number, trial) for number, trial in enumerate(trials, 1) if trial["chosen"])
        said = ", ".join(f"{key} {value}" for key, value in chosen["setting"].items())
        lines.append(f"trial {number} of {len(trials)} was chosen by validation rows: {said}. Held-out rows were measured once")
    if privacy := (training.get(training.get("algorithm")) or {}).get("privacy"):
        lines.append(privacy["text"])
    return [*lines, *_verdict_lines(report.get("verdict"))]


def _verdict_lines(verdict: Mapping[str, Any] | None) -> Iterator[str]:
    """Whether it helped, and what others can tell of each secret of this party."""
    if verdict:
        yield verdict["words"]
        for leak in (verdict["leaks"][secret] for secret in ("labels", "membership", "columns") if secret in verdict["leaks"]):
            yield f"{leak['level'].replace('_', ' ')}: {' '.join(filter(None, (leak['words'], leak['advice'])))}"


def warnings(report: Mapping[str, Any]) -> list[str]:
    """What makes the result doubtful."""
    parts = (report.get("alignment"), report.get("training"))  # a coordinator's report has neither
    return [warning for part in parts if part is not None for warning in part["warnings"]]


def main_metrics(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Model → metric → its value, of the federated model and the active party's own; empty at a party that has none."""
    return {title: dict(_measured_metrics(metrics)) for title, key in MAIN.items() if (metrics := report.get(key))}


def listed_figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a list of jobs shows of a report, perhaps of an earlier version.

    Returns:
        started and seconds (of the run), metrics (:func:`main_metrics`), metric (the first of these: name, value, low and high
        of its interval, alone, and same_rows: whether both were measured on the same held-out rows; or None), leaks (labels,
        membership, columns → level), leak_values (likewise, the figure of the strongest attack, or None) and helped (of the
        verdict, or None).
    """
    meters = {secret: meter for secret, meter in (report.get("meters") or {}).items() if meter}
    started, finished, verdict = report.get("started"), report.get("finished"), report.get("verdict") or {}
    moments = [datetime.fromisoformat(moment) for moment in (started, finished) if moment]
    return {
        "started": started,
        "seconds": (moments[1] - moments[0]).total_seconds() if len(moments) > 1 else None,
        "metrics": main_metrics(report),
        "metric": _main_metric(report),
        "leaks": {secret: meter["level"] for secret, meter in meters.items()},
        "leak_values": {secret: meter.get("value") for secret, meter in meters.items()},
        "helped": verdict.get("helped"),
    }


def _main_metric(report: Mapping[str, Any]) -> dict[str, Any] | None:
    metrics, alone = report.get("metrics") or {}, report.get("local_metrics") or {}
    for name, value in _measured_metrics(metrics):
        spread = (metrics.get("intervals") or {}).get(name) or {}
        rival = alone.get(name)
        same = all(metrics.get(about) == alone.get(about) for about in ("rows", "population", "held_out"))
        return {
            "name": name,
            "value": value,
            "low": spread.get("low"),
            "high": spread.get("high"),
            "alone": rival,
            "same_rows": None if rival is None else same,
        }
    return None


def main_text(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """The first metric of :func:`main_metrics` in words, beside that of the active party alone; empty where there is none."""
    for name, value in metrics.get("federated", {}).items():
        alone = metrics.get("alone", {}).get(name)
        return f"{name} {quantity(value)}" + ("" if alone is None else f" (alone {quantity(alone)})")
    return ""


def _measured_metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Those metrics that were measured, in the order of the job's options."""
    return ((name, metrics[name]) for name in get_args(Metric) if metrics.get(name) is not None)


def _metrics_text(metrics: Mapping[str, Any]) -> Iterator[str]:
    for name, known in _measured_metrics(metrics):
        spread = (metrics.get("intervals") or {}).get(name)
        value, *ends = (
            quantity(number) if name in WITH_UNIT else f"{number:.{places}f}"
            for number, places in ((known, 4), *((spread[end], 3) for end in ("low", "high") if spread))
        )
        yield f"{name} {value}" + (f" [{(' to ' if name in WITH_UNIT else ', ').join(ends)}]" if ends else "")


def _size(size: Any) -> str:
    """A number of records of a report, or those of several parties."""
    if isinstance(size, dict):
        return f"({', '.join(f'{party} {_size(count)}' for party, count in size.items())})"
    return "hidden" if size is None else str(size)
