"""How good a model is over all repeats: the mean of each metric, and intervals, beside the active party's own models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vfl_node.training.evaluation import Confusion, Curve, Evaluation, Repeats, Rival, Values
from vfl_node.training.intervals import Intervals, bounds, difference, repeats_interval


@dataclass(frozen=True)
class Population:
    """The rows that metrics are about.

    Attributes:
        population: ``owned``: those of the active party; ``common``: those that all parties own.
        rows: how many, in the first repeat.
        real_share: share of them with real features of every passive party, a ratio of counts; None: not known.
    """

    population: Literal["owned", "common"]
    rows: int
    real_share: float | None


@dataclass(frozen=True)
class Summary:
    """What a party knows of how good a model is, all repeats together; where it is only told the metrics, these alone.

    Attributes:
        metrics: of the federated model: metric → the mean over repeats; None for one that is not defined.
        intervals: metric → interval, over repeats, or over the rows of a single one (:mod:`vfl_node.training.intervals`).
        repeats: metric → its value in each repeat.
        constant: as :attr:`~vfl_node.training.evaluation.Evaluation.constant`, the mean over repeats.
        population: which rows the metrics are about; None: not known.
        curve: as :attr:`~vfl_node.training.evaluation.Evaluation.curve`, first repeat.
        confusion: as :attr:`~vfl_node.training.evaluation.Evaluation.confusion`, first repeat.
        alone: the active party's own model, on the same rows; None without own features.
        alone_population: which rows those of ``alone`` are, where they are others.
        rival: another model of the active party alone; None where there is none, or not in every repeat.
        rival_note: why there is none, for this party's owner; empty where there is one, or it is not this party's matter.
        aligned: the active party alone by aligned rows; None where its own model learns from no others either.
    """

    metrics: Values
    intervals: Intervals = field(default_factory=dict)
    repeats: Repeats = field(default_factory=dict)
    constant: Values = field(default_factory=dict)
    population: Population | None = None
    curve: Curve = field(default_factory=list)
    confusion: Confusion | None = None
    alone: Rival | None = None
    alone_population: Population | None = None
    rival: Rival | None = None
    rival_note: str = ""
    aligned: Rival | None = None


def summarise(
    evaluations: Sequence[Evaluation], train_rows: int, test_rows: int, *, real_share: float | None, kind: str
) -> Summary:
    """Mean and interval of each metric over ``evaluations``.

    Args:
        evaluations: one a repeat.
        train_rows: shared rows trained on in each repeat; splits overlap, and the
            interval is widened by the ratio of test to training rows accordingly.
        test_rows: shared rows held out in each.
        real_share: as :attr:`Population.real_share`.
        kind: what the active party's own model is.
    """
    first = evaluations[0]
    ours = [evaluation.metrics for evaluation in evaluations]
    alone = [evaluation.local_metrics for evaluation in evaluations if evaluation.local_metrics is not None]

    def gains(others: Sequence[Values]) -> list[Values]:
        """The difference of the federated model to another one, a repeat each."""
        pairs = zip(ours, others, strict=False)
        return [{name: difference(value, other[name]) for name, value in joint.items()} for joint, other in pairs]

    def intervals(values: Sequence[Values], *, signed: bool = False) -> Intervals:
        """Intervals of metrics, or of differences of metrics (``signed``)."""
        by_metric = {name: _defined_values(values, name) for name in (values[0] if values else ())}
        ranges = {name: bounds(name, signed=signed) for name in by_metric}
        return {
            name: repeats_interval(repeats, train_rows, test_rows, lowest=ranges[name][0], highest=ranges[name][1])
            for name, repeats in by_metric.items()
            if len(repeats) > 1
        }

    several = len(evaluations) > 1

    def average_rivals(rivals: Sequence[Rival | None]) -> Rival | None:
        each = [rival for rival in rivals if rival]
        if len(each) < len(rivals):
            return None
        if not several:
            return each[0]
        values = [rival.metrics for rival in each]
        return replace(
            each[0],
            metrics=_mean(values),
            repeats=_group_by_metric(values),
            intervals=intervals(values),
            gains=intervals(gains(values), signed=True),
        )

    own = None
    if alone:
        own = Rival(
            kind=kind,
            trained_rows=first.local_rows,
            metrics=_mean(alone),
            repeats=_group_by_metric(alone),
            intervals=intervals(alone) if several else first.local_intervals,
            gains=intervals(gains(alone), signed=True) if several else first.gains,
            curve=first.local_curve,
            confusion=first.local_confusion,
        )
    rival = average_rivals([evaluation.rival for evaluation in evaluations])
    return Summary(
        metrics=_mean(ours),
        intervals=intervals(ours) if several else first.intervals,
        repeats=_group_by_metric(ours),
        constant=_mean([evaluation.constant for evaluation in evaluations]),
        population=Population("owned", first.rows, real_share),
        curve=first.curve,
        confusion=first.confusion,
        alone=own,
        rival=rival,
        rival_note="" if rival else next((evaluation.rival_note for evaluation in evaluations if evaluation.rival_note), ""),
        aligned=average_rivals([evaluation.aligned for evaluation in evaluations]),
    )


def _defined_values(values: Sequence[Values], name: str) -> list[float]:
    return [value for metrics in values if (value := metrics[name]) is not None]


def _mean(values: Sequence[Values]) -> Values:
    defined = {name: _defined_values(values, name) for name in values[0]}
    return {name: sum(known) / len(known) if known else None for name, known in defined.items()}


def _group_by_metric(values: Sequence[Values]) -> Repeats:
    return {name: [metrics[name] for metrics in values] for name in values[0]}
