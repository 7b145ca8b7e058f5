"""What is measured in an epoch, and at the end of a repeat.

Population ``owned``: held-out shared rows that the active party owns, since only those have a real label. A share of them,
|I|/n_a, carries real features of every passive party; the active party does not know which, so a row's score is the
calibration's expectation, not P (see missing/calibration.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Evaluate
from vfl_node.metrics import classes, numbers
from vfl_node.metrics.classes import ModelOutput
from vfl_node.training.intervals import Intervals, Output, row_intervals

Values = dict[str, float | None]
"""Metric → value; None where it is not defined (no rows, or one class only)."""

Repeats = dict[str, list[float | None]]
"""Metric → its value each time: in each repeat, for example."""

Curve = list[tuple[float, float, int]]

Confusion = list[list[int]]
"""Number of rows of each class (first index) that were predicted to be of each (second index)."""

OF_A_CONSTANT = classes.OF_A_CONSTANT + numbers.OF_A_CONSTANT


@dataclass(frozen=True)
class Figures:
    """What one epoch shows while it trains; None where it is not known, not asked for or not defined.

    Attributes:
        loss: mean over its rows, with the synthetic labels taken as true; of numbers the squared error of scaled ones.
        auc: of the federated model on the training rows that the active party owns, each
            scored as it was met, by the weights of that moment.
        validation_loss: of the federated model after the epoch on the validation rows that the active party owns: NLL, by
            class weights where the job has some, or as ``loss`` of numbers; None too where the job sets none apart.
        validation_auc: its AUC on them; likewise.
    """

    loss: float | None = None
    auc: float | None = None
    validation_loss: float | None = None
    validation_auc: float | None = None


@dataclass(frozen=True, eq=False)
class RivalOutput:
    """Another model of the active party alone, in one repeat.

    Attributes:
        output: what it says of the test rows that this party owns; None where there is no such model.
        kind: what it is, as the report says it.
        rows: number of own labelled rows that it learnt from.
        note: why there is none, a whole sentence for this party's owner; empty where there is one.
    """

    output: Output | None
    kind: str = ""
    rows: int = 0
    note: str = ""


@dataclass(frozen=True)
class Rival:
    """Another model of the active party alone beside the federated one, on the same rows; JSON-serialisable.

    Attributes:
        kind: as :attr:`RivalOutput.kind`.
        trained_rows: as :attr:`RivalOutput.rows`, in the first repeat; None: not known.
        metrics: the mean over repeats.
        repeats: metric → its value in each repeat.
        intervals: of ``metrics``, as :attr:`Evaluation.intervals`.
        gains: of the difference federated − this model; likewise.
        curve: as :attr:`Evaluation.curve`, first repeat.
        confusion: as :attr:`Evaluation.confusion`, first repeat.
    """

    kind: str
    trained_rows: int | None
    metrics: Values
    repeats: Repeats = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)
    gains: Intervals = field(default_factory=dict)
    curve: Curve = field(default_factory=list)
    confusion: Confusion | None = None


@dataclass(frozen=True)
class Evaluation:
    """One repeat's results at the active party; JSON-serialisable by ``dataclasses.asdict``.

    Attributes:
        metrics: of the federated model.
        local_metrics: of the active party's own model on the same rows; None if it has no features.
        rows: number of test rows it owns.
        curve: points of the federated model's calibration plot: (confidence, frequency, rows) of each range;
            empty with more than two classes. In a regression (mean prediction, mean target, rows).
        local_curve: the same of its own model; empty if it has no features.
        confusion: of the federated model; None in a regression.
        local_confusion: of its own model; None if it has no features.
        constant: metrics of a model that always says how frequent each class is among its training labels, or their mean:
            those of :data:`OF_A_CONSTANT` that the job asks for.
        intervals: of ``metrics``, over the rows of this split; empty where the job has several repeats, which give better ones.
        local_intervals: of ``local_metrics``; likewise.
        gains: of the difference federated − local; likewise.
        matched: metrics on the rows that both parties own; None where the job does not ask for them or they are too few.
        matched_rows: how many they are; likewise.
        local_rows: number of own labelled rows that its own model learnt from; None without one.
        rival: another model of its own on the same rows; None where there is none.
        rival_note: why there is none; empty where there is one.
        aligned: its own model by aligned rows alone, on the same rows; None where there is none.
        contributions: party → metric → how much worse it is in each permutation of the party's part; None: not asked for.
        column_contributions: column of the active party → the same of it alone; None: not asked for.
        unlike: passive party → share of its embeddings of rows trained on that are unlike those held out; None: not compared.
    """

    metrics: Values
    local_metrics: Values | None
    rows: int
    curve: Curve
    local_curve: Curve
    confusion: Confusion | None
    local_confusion: Confusion | None = None
    constant: Values = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)
    local_intervals: Intervals = field(default_factory=dict)
    gains: Intervals = field(default_factory=dict)
    matched: Values | None = None
    matched_rows: int | None = None
    local_rows: int | None = None
    rival: Rival | None = None
    rival_note: str = ""
    aligned: Rival | None = None
    contributions: dict[str, Repeats] | None = None
    column_contributions: dict[str, Repeats] | None = None
    unlike: dict[str, float] | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """What ``dataclasses.asdict`` and JSON made of an evaluation, back again."""
        curves = {name: [tuple(point) for point in values[name]] for name in ("curve", "local_curve")}
        stored = {name: values.get(name) for name in ("rival", "aligned")}  # an earlier version stored none
        rivals = {
            name: rival and Rival(**{**rival, "curve": [tuple(point) for point in rival["curve"]]})
            for name, rival in stored.items()
        }
        return cls(**{**values, **curves, **rivals})


def assess(
    asked: Evaluate,
    labels: NDArray[Any],
    joint: Output,
    alone: Output | None,
    constant: Output | None,
    randomness: Randomness,
    *,
    rival: RivalOutput | None = None,
    aligned: RivalOutput | None = None,
    undefined: Collection[str] = (),
) -> Evaluation:
    """All that the active party measures on its own test rows in one repeat, but for matched rows.

    Args:
        asked: the job's section.
        labels: of these rows, [N]; in a regression targets.
        joint: what the federated model says of them.
        alone: what its own model says of them; None if it has no features.
        constant: what a model says that knows nothing but the labels trained on; None without such labels.
        randomness: its own for this.
        rival: another model of its own.
        aligned: its own model by aligned rows alone.
        undefined: metrics that this model has none of, and which are None.
    """
    names = [name for name in asked.metrics if name not in undefined]
    others = [other for other in (rival, aligned) if other is not None and other.output is not None]
    models = [joint, *([] if alone is None else [alone]), *(other.output for other in others if other.output is not None)]

    def values(output: Output) -> Values:
        measured = output.metrics(names, labels, asked.threshold)
        return {name: measured.get(name) for name in asked.metrics}

    own: list[Intervals] = [{} for _ in models]
    gains: list[Intervals] = [{} for _ in models[1:]]
    if asked.repeats == 1:
        own, gains = row_intervals(names, labels, models, asked.threshold, randomness)

    def compare(other: RivalOutput | None) -> Rival | None:
        if other is None or other.output is None:
            return None
        place = others.index(other) - len(others)
        return Rival(
            kind=other.kind,
            trained_rows=other.rows,
            metrics=values(other.output),
            repeats={name: [value] for name, value in values(other.output).items()},
            intervals=own[place],
            gains=gains[place],
            curve=other.output.curve(labels),
            confusion=other.output.confusion(labels, asked.threshold),
        )

    return Evaluation(
        metrics=values(joint),
        local_metrics=None if alone is None else values(alone),
        rows=len(labels),
        curve=joint.curve(labels),
        local_curve=[] if alone is None else alone.curve(labels),
        confusion=joint.confusion(labels, asked.threshold),
        local_confusion=None if alone is None else alone.confusion(labels, asked.threshold),
        constant={} if constant is None else constant.metrics([name for name in names if name in OF_A_CONSTANT], labels),
        intervals=own[0],
        local_intervals={} if alone is None else own[1],
        gains={} if alone is None else gains[0],
        rival=compare(rival),
        rival_note=rival.note if rival else "",
        aligned=compare(aligned),
    )


def measure(names: Sequence[str], labels: NDArray[np.float32], scores: NDArray[np.float64], threshold: float = 0.5) -> Values:
    """The metrics ``names`` of probabilities, [N] or [N, K], that may leave 0 … 1: ranked as they are, else clipped."""
    output = ModelOutput.clip(scores)
    return classes.compute(names, labels, output.scores, output.probabilities, threshold)


def class_shares(labels: NDArray[Any], classes: int) -> NDArray[np.float64] | None:
    """How frequent each class is among ``labels``: float64[classes]; None without labels."""
    return np.bincount(labels.astype(np.int64), minlength=classes) / len(labels) if len(labels) else None


def real_share(alignment: Alignment) -> float | None:
    """Share of the active party's shared rows that carry real features of every passive party; a ratio of counts.

    None where the alignment hides the size of the intersection.
    """
    owned = int(np.count_nonzero(alignment.owned))
    shared = alignment.common
    return None if shared is None or owned == 0 else shared / owned
