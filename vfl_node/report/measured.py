"""The metrics of each model in a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vfl_node.job import Job
from vfl_node.report.sections import ConfusionMatrix, Interval, Metrics
from vfl_node.training.evaluation import Confusion, Curve, Rival
from vfl_node.training.intervals import ConfidenceInterval
from vfl_node.training.trainer import Trained


def metrics_of(job: Job, result: Trained, *, local: bool) -> Metrics | None:
    """Those of the federated model, or of the active party's own one; None where this party does not know them.

    Args:
        job: the job.
        result: of its training.
        local: whether the active party's own model is meant.
    """
    values, intervals, repeats, curve, confusion = (
        (
            result.local_metrics,
            result.local_intervals,
            result.local_repeats,
            result.local_calibration_curve,
            result.local_confusion,
        )
        if local
        else (result.metrics, result.intervals, result.repeats, result.calibration_curve, result.confusion)
    )
    if values is None:
        return None
    about = (result.local_population if local else None) or result.population or {}
    known: dict[str, Any] = {**values, **{f"constant_{name}": value for name, value in result.constant.items()}}
    return Metrics(
        **known,
        model=(result.local_kind or None) if local else None,
        trained_rows=result.local_rows if local else None,
        repeats={name: tuple(of) for name, of in repeats.items()} if repeats else None,
        confusion=_confusion(job, confusion) if confusion else None,
        rows=about.get("rows"),
        population=about.get("population"),
        real_share=about.get("real_share"),
        held_out=job.evaluate.test_fraction > 0,
        intervals=intervals_of(job, intervals),
        calibration=_probabilities(job, curve),
        predicted_actual=_numbers(job, curve),
    )


def _probabilities(job: Job, curve: Curve) -> tuple[tuple[float, float, int], ...]:
    """A calibration plot; empty in a regression."""
    return () if job.task == "regression" else tuple(curve)


def _numbers(job: Job, curve: Curve) -> tuple[tuple[float, float, int], ...]:
    """Predicted numbers and actual ones; empty in a classification."""
    return tuple(curve) if job.task == "regression" else ()


def rival_metrics(job: Job, result: Trained, of: Rival | None) -> Metrics | None:
    """Those of another model of the active party alone; None where there is none."""
    federated = metrics_of(job, result, local=False)
    if of is None or federated is None:
        return None
    return federated.model_copy(
        update={
            **of.metrics,
            "model": of.kind,
            "trained_rows": of.trained_rows,
            "repeats": {name: tuple(values) for name, values in of.repeats.items()},
            "confusion": _confusion(job, of.confusion) if of.confusion else None,
            "intervals": intervals_of(job, of.intervals),
            "calibration": _probabilities(job, of.curve),
            "predicted_actual": _numbers(job, of.curve),
        }
    )


def _confusion(job: Job, counts: Confusion) -> ConfusionMatrix:
    threshold = job.evaluate.threshold if job.classes == 2 else None
    return ConfusionMatrix(threshold=threshold, counts=tuple(tuple(row) for row in counts))


def intervals_of(job: Job, intervals: Mapping[str, ConfidenceInterval]) -> dict[str, Interval] | None:
    """Metric → its interval; None without any."""
    by_metric = {metric: Interval(repeats=job.evaluate.repeats, **of) for metric, of in intervals.items()}
    return by_metric or None
