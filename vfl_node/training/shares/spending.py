"""What a training in shares spends of what noise allows, and what one without noise tells; light: any command may ask.

Source: ours.
"""

from __future__ import annotations

import math

from vfl_node.gdp import auc_bound, compose, mu_of
from vfl_node.job.evaluate import Evaluate
from vfl_node.settings.limits import UnboundedModel

METRICS_EPSILON = 1.0
"""ε of metrics, where neither they nor the model have one."""

ALARMING = 0.6
"""An AUC of labels above this is said in capital letters."""

_KINDS: dict[UnboundedModel, str] = {
    "networks": "a model with hidden layers (train.layers)",
    "taylor": "a model of train.loss: taylor",
    "exact": "a regression without noise (train.epsilon: null)",
    "boosted-trees": "boosted trees (train.algorithm: trees)",
}

_ROUNDED = (
    "NO BOUND: nothing bounds what statistics without noise (statistics.epsilon: null) tell about records and labels. Small "
    "bins are taken together and figures are rounded, but two jobs whose records differ in one can tell whether that one is "
    "shared, and its label. So can two columns of one job that their owner has made to differ in one record."
)


def mu_of_job(model: float | None, metrics: float | None, *, held_out: bool) -> float:
    """μ of a job about a record.

    A record is trained on or held out, never both, so the larger of both μ counts. Where none are held out each is both.

    Args:
        model: ε of the model; None: nothing bounds it.
        metrics: ε of the metrics; None: there are none.
        held_out: whether there are rows that are not trained on.
    """
    each = [0.0 if epsilon is None else mu_of(epsilon) for epsilon in (model, metrics)]
    return max(each) if held_out else compose(each)


def labels_auc(columns: int, records: int, trainings: int = 1) -> float:
    """How well weights without noise tell labels of the records trained on, about, as an area under the curve.

    Args:
        columns: of the party that reads its weights.
        records: shared ones, trained on.
        trainings: so many, each with a model of its own.
    """
    known = min(1.0, trainings * columns / records) if records else 1.0
    return 1.0 if known == 1 else auc_bound(2 * math.sqrt(known / (1 - known)))


def alarming_columns(records: int) -> int:
    """From so many columns on weights without noise tell labels at an AUC above :data:`ALARMING`."""
    low, high = 0, records
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if labels_auc(middle, records) > ALARMING else (middle, high)
    return high


def unbounded_warning(kind: UnboundedModel, evaluate: Evaluate, shared: int | None = None) -> str:
    """What an owner should know before such a job begins, by public counts alone.

    Args:
        kind: of the model.
        evaluate: the job's section.
        shared: how many records are shared at most; None: nobody says.
    """
    if kind == "rounded-statistics":
        return _ROUNDED
    said = f"NO BOUND: nothing bounds what {_KINDS[kind]} tells about records and labels once it is opened."
    if shared is None:
        return f"{said} The fewer records are shared and the more columns a party has, the better it reads their labels."
    trained = round(shared * (1 - evaluate.test_fraction))
    return (
        f"{said} WITH {trained:,} SHARED RECORDS TRAINED ON, A PARTY WITH {alarming_columns(trained):,} COLUMNS OR MORE READS "
        f"THEIR LABELS FROM ITS WEIGHTS AT AN AUC ABOVE {ALARMING:g}, ABOUT; IN TWO TRAININGS HALF AS MANY ARE ENOUGH."
    )


def meter(columns: int, records: int, trainings: int) -> str:
    """The same once a training is over and its counts are known; in capital letters where it is alarming.

    Args:
        columns: of the party that reads its weights.
        records: as :func:`labels_auc`.
        trainings: over these records, this one included.
    """
    auc = labels_auc(columns, records, trainings)
    times = f", in {trainings} trainings," if trainings > 1 else ""
    about = f"{auc:.2f}".removeprefix("0")
    said = (
        f"NO BOUND: by {columns:,} columns and {records:,} shared records trained on{times} weights without noise tell their "
        f"labels at an AUC of about {about}."
    )
    return said.upper() if auc > ALARMING else said
