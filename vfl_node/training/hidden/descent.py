"""How a model is descended to: how many steps, how fast, by rules that see public numbers alone.

Rows are bounded, so the loss is smooth by a known number, |x|²/4 = (P + ¼)/4 at most, and a rate below 2(1 + m) over it cannot
oscillate on any data. The residual of a regression is four times as steep. What limits the rate besides is the noise that is
left in a score. With n shared records, noise of deviation σ in each number of a gradient, and momentum m, a row of length |x|
has ::

    q = |x| · σ/n · √Σ_t (η·(1 − m^t)/(1 − m))²        t = 1 … T

and the rate is the largest for which q is at most :data:`MOST_NOISE`. Where two parties draw noise of the full width each, the
rules are the same: to take fewer steps or a lower rate then was as often worse as better (docs/experiments).

Source: ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vfl_node.training.hidden import bound
from vfl_node.training.hidden.config import USUAL_EPOCHS, USUAL_MOMENTUM, USUAL_RATE, Hidden

MOST_NOISE = 0.4
"""Largest deviation of the noise in a score that a rate may leave; a score is a logit, or in a regression a deviation."""

STABLE = 0.95
"""Part of the rate from which on a step could oscillate that a rule may take."""

FAST = {"classification": 4.0, "regression": 1.5}
"""The largest rates of two data parties."""

WAYS = ((40, 0.9), (40, 0.8), (20, 0.8))
"""Steps and momentum: the first that noise allows at the full rate, or the last at a lower one; of numbers the second."""


@dataclass(frozen=True)
class Descent:
    """How a model is descended to.

    Attributes:
        steps: T, or without a bound epochs.
        momentum: m.
        rate: η.
        deviation: σ of the noise of each number of a gradient, as one draws it; None: there is none.
        noise: q, in a score, of all who draw; None likewise.
    """

    steps: int
    momentum: float
    rate: float
    deviation: float | None = None
    noise: float | None = None


def fewest_epochs(train: Hidden) -> int:
    """How many there are at least."""
    return train.epochs or (USUAL_EPOCHS if train.epsilon is None else min(WAYS)[0])


def most_epochs(train: Hidden) -> int:
    """How many there are at most."""
    return train.epochs or (USUAL_EPOCHS if train.epsilon is None else max(WAYS)[0])


def descent_of(train: Hidden, parties: int, records: float, worlds: int) -> Descent:
    """The descent over about so many shared ``records``, of as many data ``parties``; ``worlds`` as in :mod:`.bound`.

    What the job says itself, it says.
    """
    if train.epsilon is None:
        momentum = USUAL_MOMENTUM if train.momentum is None else train.momentum
        return Descent(train.epochs or USUAL_EPOCHS, momentum, train.learning_rate or USUAL_RATE)
    fastest = FAST[train.task] * bound.row_norm(2) ** 2 / bound.row_norm(parties) ** 2

    smooth = bound.row_norm(parties) ** 2 / (1 if train.task == "regression" else 4)

    def plan(steps: int, momentum: float) -> Descent:
        deviation = bound.deviation(train.epsilon or 0, steps, parties, train.outputs, worlds)
        at_one = noise_of_score(deviation, steps, momentum, 1.0, parties, records)
        stable = STABLE * 2 * (1 + momentum) / smooth
        rate = train.learning_rate or _floor(min(fastest, stable, MOST_NOISE / at_one))
        return Descent(steps, momentum, rate, deviation, rate * at_one * math.sqrt(train.draws))

    if train.epochs:
        usual = 0.9 if train.epochs >= WAYS[0][0] else 0.8
        return plan(train.epochs, usual if train.momentum is None else train.momentum)
    each = [plan(steps, momentum if train.momentum is None else train.momentum) for steps, momentum in WAYS]
    most = MOST_NOISE * math.sqrt(train.draws)
    quiet = [way for way in each if way.rate >= (train.learning_rate or _floor(fastest)) and (way.noise or 0) <= most]
    return each[1] if train.task == "regression" else [*quiet, each[-1]][0]


def noise_of_score(deviation: float, steps: int, momentum: float, rate: float, parties: int, records: float) -> float:
    """q: the deviation that noise of ``deviation`` leaves in the score of the longest row."""
    moved = sum((rate * (1 - momentum**step) / (1 - momentum)) ** 2 for step in range(1, steps + 1))
    return bound.row_norm(parties) * deviation / max(records, 1.0) * math.sqrt(moved)


def _floor(rate: float) -> float:
    """A rate rounded down to three digits: the same on all machines."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return float(f"{math.floor(rate / unit * (1 + 1e-12)) * unit:.2e}")


PAYS = {"classification": {"plain": 1_000, "bins": 1_000}, "regression": {"plain": 6_000, "bins": 4_000}}
"""Shared records times ε, by task and columns, below which noise usually takes more than the other parties' columns give. Where
two worlds differ in two records, twice as many."""


def describe_noise(train: Hidden, parties: int, records: float, worlds: int) -> tuple[str, ...]:
    """What an owner should know of the noise beforehand, in whole sentences: how far it goes, and whether it pays."""
    descent = descent_of(train, parties, records, worlds)
    if train.epsilon is None or descent.noise is None:
        return ()
    said = (
        f"ε {train.epsilon:g}: {descent.steps} steps at a rate of {descent.rate:g} and a momentum of {descent.momentum:g} "
        f"leave noise of {descent.noise:.2g} in a score, with about {records:,.0f} shared records"
    )
    least = round(PAYS[train.task][train.columns] * worlds * math.sqrt(train.draws))
    if records * train.epsilon >= least:
        return (said,)
    return (
        said,
        f"with about {records:,.0f} shared records to train on and an ε of {train.epsilon:g}, noise may take more than the "
        f"columns of others give: below a product of {least:,} hidden training is seldom better than the active party alone",
    )
