"""The metrics of each model in a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vfl_node.job import Job
from vfl_node.report.sections import ConfusionMatrix, Interval, Metrics
from vfl_node.roles import NUMBER_TASKS
from vfl_node.training.evaluation import Confusion, Curve, Rival
from vfl_node.training.intervals import ConfidenceInterval
from vfl_node.training.summary import Summary


def metrics_of(job: Job, results: Summary | None, model: Summary | Rival | None) -> Metrics | None:
    """Those of one model; None where there is none, or this party does not know them.

    Args:
        job: the job.
        results: of its training.
        model: the ``results`` themselves, of the federated model, or one of the models of the active party alone in them.
    """
    if results is None or model is None:
        return None
    rival = model if isinstance(model, Rival) else None
    about = (results.alone_population if rival and rival is results.alone else None) or results.population
    known: dict[str, Any] = {**model.metrics, **{f"constant_{name}": value for name, value in results.constant.items()}}
    return Metrics(
        **known,
        model=(rival.kind or None) if rival else None,
        trained_rows=rival.trained_rows if rival else None,
        repeats={name: tuple(each) for name, each in model.repeats.items()} or None,
        confusion=_confusion(job, model.confusion) if model.confusion else None,
        rows=about.rows if about else None,
        population=about.population if about else None,
        real_share=about.real_share if about else None,
        held_out=job.evaluate.test_fraction > 0,
        intervals=intervals_of(job, model.intervals),
        calibration=_probabilities(job, model.curve),
        predicted_actual=_numbers(job, model.curve),
    )


def gains_of(job: Job, rival: Rival | None) -> dict[str, Interval] | None:
    """The gains of the federated model over another one; None where there is none."""
    return intervals_of(job, rival.gains) if rival else None


def _probabilities(job: Job, curve: Curve) -> tuple[tuple[float, float, int], ...]:
    """A calibration plot; empty in a regression."""
    return () if job.task in NUMBER_TASKS else tuple(curve)


def _numbers(job: Job, curve: Curve) -> tuple[tuple[float, float, int], ...]:
    """Predicted numbers and actual ones; empty in a classification."""
    return tuple(curve) if job.task in NUMBER_TASKS else ()


def _confusion(job: Job, counts: Confusion) -> ConfusionMatrix:
    threshold = job.evaluate.threshold if job.classes == 2 else None
    return ConfusionMatrix(threshold=threshold, counts=tuple(tuple(row) for row in counts))


def intervals_of(job: Job, intervals: Mapping[str, ConfidenceInterval]) -> dict[str, Interval] | None:
    """Metric → its interval; None without any."""
    by_metric = {metric: Interval(repeats=job.evaluate.repeats, **interval) for metric, interval in intervals.items()}
    return by_metric or None
