"""What is measured in an epoch, at the end of a repeat, and over all repeats.

Population ``owned``: held-out shared rows that the active party owns, since only those have
a real label. A share of them, |I|/n_a, carries real features of the passive party; the
active party does not know which, so a row's score is the calibration's expectation, not P
(see missing/calibration.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node import metrics
from vfl_node.alignment.alignment import Alignment

Values = dict[str, float | None]
"""Metric → value; None where it is not defined (no rows, or one class only)."""

Curve = list[tuple[float, float, int]]


@dataclass(frozen=True)
class Figures:
    """What one epoch shows while it trains; None where it is not known, not asked for or not defined.

    Attributes:
        loss: mean over its rows, with the synthetic labels taken as true.
        auc: of the federated model on the training rows that the active party owns, each
            scored as it was met, by the weights of that moment.
    """

    loss: float | None = None
    auc: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """One repeat's results at the active party; JSON-serialisable by ``dataclasses.asdict``.

    Attributes:
        metrics: of the federated model.
        local_metrics: of the active party's own model on the same rows; None if it has no features.
        rows: number of test rows it owns.
        curve: points of the federated model's calibration plot: (confidence, frequency, rows) of each range;
            empty with more than two classes.
        local_curve: the same of its own model; empty if it has no features.
        matched: metrics on the rows that both parties own; None where the job does not ask for them or they are too few.
        matched_rows: how many they are; likewise.
    """

    metrics: Values
    local_metrics: Values | None
    rows: int
    curve: Curve
    local_curve: Curve
    matched: Values | None = None
    matched_rows: int | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """What ``dataclasses.asdict`` and JSON made of an evaluation, back again."""
        curves = {name: [tuple(point) for point in values[name]] for name in ("curve", "local_curve")}
        return cls(**{**values, **curves})


def measure(names: Sequence[str], labels: NDArray[np.float32], scores: NDArray[np.float64]) -> Values:
    """The metrics ``names`` of probabilities, [N] or [N, K], that may leave 0 … 1: ranked as they are, else clipped."""
    return metrics.compute(names, labels, scores, np.clip(scores, 0, 1))


def plotted(labels: NDArray[np.float32], scores: NDArray[np.float64]) -> Curve:
    """Points of the calibration plot; none with more than two classes."""
    return [] if scores.ndim > 1 else metrics.calibration_curve(labels, np.clip(scores, 0, 1))


@dataclass(frozen=True)
class Summary:
    """All repeats together: the mean of each metric, and intervals where there are several.

    Attributes:
        metrics: federated model.
        local_metrics: the active party alone, same rows; None if it has no features.
        intervals: metric → {mean, sd, low, high} over repeats; empty for a single one.
        local_intervals: the same for the local model.
        gains: the same for the difference federated − local, repeat by repeat.
    """

    metrics: Values
    local_metrics: Values | None
    intervals: dict[str, dict[str, float]]
    local_intervals: dict[str, dict[str, float]]
    gains: dict[str, dict[str, float]]


def summarise(evaluations: Sequence[Evaluation], train_rows: int, test_rows: int) -> Summary:
    """Mean and interval of each metric over ``evaluations``.

    Args:
        evaluations: one a repeat.
        train_rows: shared rows trained on in each repeat; splits overlap, and the
            interval is widened by the ratio of test to training rows accordingly.
        test_rows: shared rows held out in each.
    """
    ours = [evaluation.metrics for evaluation in evaluations]
    alone = [evaluation.local_metrics for evaluation in evaluations if evaluation.local_metrics is not None]
    gains = [
        {name: _difference(value, local[name]) for name, value in joint.items()}
        for joint, local in zip(ours, alone, strict=False)
    ]

    def intervals(values: Sequence[Values]) -> dict[str, dict[str, float]]:
        by_metric = {name: _defined(values, name) for name in (values[0] if values else ())}
        return {name: metrics.interval(of, train_rows, test_rows) for name, of in by_metric.items() if len(of) > 1}

    return Summary(_mean(ours), _mean(alone) if alone else None, intervals(ours), intervals(alone), intervals(gains))


def real_share(alignment: Alignment) -> float | None:
    """Share of the active party's shared rows that carry real features of the passive one; a ratio of counts.

    None where the alignment hides the size of the intersection.
    """
    owned = int(np.count_nonzero(alignment.owned))
    shared = alignment.peer.intersection
    return None if shared is None or owned == 0 else shared / owned


def _defined(values: Sequence[Values], name: str) -> list[float]:
    return [value for of in values if (value := of[name]) is not None]


def _difference(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def _mean(values: Sequence[Values]) -> Values:
    defined = {name: _defined(values, name) for name in values[0]}
    return {name: sum(of) / len(of) if of else None for name, of in defined.items()}
