"""What the owner of weights reads off a column in which few of its records differ: which of these are shared, and their labels.

Shared records alone move a weight. If weights begin at zero, that of a column of one record stays zero unless the record is
shared, and its sign is the label. The same is true of the difference of two weights whose columns differ in one record, however
many they have in common. A start that the owner does not know hides this as far as it is large beside what a record moves.

An area under the curve over n targets, half of them shared, has a standard error of 1/√(3n) at chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run
from tests.thorough import examples
from tests.training.hidden.plain import Step, descend
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import USUAL_MOMENTUM, USUAL_RATE
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.inputs import START
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.rows import FAR
from vfl_node.training.schedule import Schedule

SHARED, OWNED = 4000, 8000
ROWS = 2 * OWNED - SHARED
A_COLUMNS, B_COLUMNS = 5, 4
"""Ordinary columns; the intercept is one of the active party's."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rare:
    """A table of a passive party, half of whose records are shared, with columns in which few records differ.

    Attributes:
        records: how many of its own a column sets apart, its target among them.
        columns: how many of these there are, each with a target of its own.
        twins: beside each column stands one without the target.
        standardised: whether columns are numbers, which are scaled, and not levels of 0 and 1.
        epochs: how many.
        decay: of weights.
        seed: of everything.
    """

    records: int
    columns: int = 128
    twins: bool = False
    standardised: bool = False
    epochs: int = 10
    decay: float = 0.0
    seed: int = 0

    @cached_property
    def mine(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows each party owns."""
        place = np.random.default_rng([self.seed, 0]).permutation(ROWS)
        return place < OWNED, place >= ROWS - OWNED

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """Row of the record that the attacker asks about, of each rare column."""
        return np.random.default_rng([self.seed, 1]).permutation(np.flatnonzero(self.mine[1]))[: self.columns]

    @cached_property
    def values(self) -> tuple[Floats, Floats]:
        """Columns of both parties."""
        rng, own = np.random.default_rng([self.seed, 2]), np.flatnonzero(self.mine[1])
        rare = np.zeros((ROWS, 2 * self.columns if self.twins else self.columns))
        for number, target in enumerate(self.targets):
            others = rng.choice(own[own != target], self.records - 1, replace=False)
            at = (2 * number, 2 * number + 1) if self.twins else (number,)
            for column in at:
                rare[others, column] = 1
            rare[target, at[0]] = 1
        if self.standardised:
            rare = np.clip((rare - rare[own].mean(axis=0)) / rare[own].std(axis=0), -FAR, FAR)
        first = np.hstack([rng.normal(size=(ROWS, A_COLUMNS - 1)), np.ones((ROWS, 1))])
        each = first, np.hstack([rng.normal(size=(ROWS, B_COLUMNS)), rare])
        return each[0] * self.mine[0][:, None], each[1] * self.mine[1][:, None]

    @cached_property
    def labels(self) -> Floats:
        """Of all rows; in training those of the active party's count."""
        z = self.values[0][:, 0] + self.values[1][:, 0] - self.values[0][:, 1]
        return (np.random.default_rng([self.seed, 3]).random(ROWS) < 1 / (1 + np.exp(-z))).astype(float)

    @cached_property
    def plan(self) -> HiddenPlan:
        """Batches of 512 shared records, and the defaults of a job."""
        return HiddenPlan(
            form=Form((A_COLUMNS, self.values[1].shape[1]), (), 1, "exact"),
            rows=ROWS,
            schedule=Schedule(bytes(32), ROWS, self.seed),
            training=np.arange(ROWS),
            testing=np.arange(0),
            descent=Descent(self.epochs, USUAL_MOMENTUM, USUAL_RATE),
            batch_rows=512 * ROWS // SHARED,
            divisor=512.0,
            weight_decay=self.decay,
            bins=256,
            reveals=True,
        )

    def start(self, deviation: float) -> list[Floats]:
        """First weights: what the other party has drawn. The attacker subtracts its own part."""
        rng = np.random.default_rng([self.seed, 4])
        return [deviation * rng.normal(size=shape) for shape in self.plan.form.shapes]

    def plain(self, deviation: float) -> Floats:
        """The attacker's weights after training in ordinary numbers, on the shared records."""
        both, plan = self.mine[0] & self.mine[1], self.plan
        batches = [batch[both[batch]] for epoch in range(plan.epochs) for batch in plan.batches(epoch)]
        of = Step(plan.rates.factor, plan.descent.momentum, plan.descent.rate * plan.weight_decay)
        return descend(plan.form, self.start(deviation), np.hstack(self.values), self.labels[:, None], batches, of)[1][:, 0]

    def in_shares(self, deviation: float) -> Floats:
        """The same, as they are opened to the attacker after training in shares."""

        async def program(machine: ShareMachine) -> Any:
            async def after(*of: Any) -> None: ...

            if machine.place < 0:
                return await compute(machine, self.plan, None, None, 0, after)
            bits, columns = self.mine[machine.place], self.values[machine.place]
            targets = self.labels * bits * (machine.place == 0)
            own = Own(encode(columns), bits[:, None].astype(np.uint64), encode(targets[:, None], 2 * FRACTION))
            first = tuple(encode(of * (machine.place == 0), WEIGHT_FRACTION) for of in self.start(deviation))
            start = WeightShares(first, tuple(0 * of for of in first))
            return await compute(machine, self.plan, own, start, 0, after)

        return Run(program).results[1].weights[1][:, 0]

    def judged(self, weights: Floats) -> Found:
        """How well the weights of rare columns tell."""
        rare = weights[B_COLUMNS:]
        if self.twins:
            rare = rare[::2] - rare[1::2]
        rare = np.where(np.abs(rare) < 1e-9, 0, rare)  # of ordinary numbers, which round
        shared, labels = self.mine[0][self.targets], self.labels[self.targets]
        return Found(rare, shared, labels)


@dataclass(frozen=True)
class Found:
    """Weights or differences of weights, and the truth of each target."""

    rare: Floats
    shared: NDArray[np.bool_]
    labels: Floats

    @property
    def membership(self) -> float:
        """By how far a weight has moved."""
        return float(roc_auc_score(self.shared, np.abs(self.rare)))

    @property
    def membership_by_label(self) -> float:
        """The same by an attacker who knows the labels, as the active party does."""
        return float(roc_auc_score(self.shared, self.rare * (2 * self.labels - 1)))

    @property
    def label(self) -> float:
        """Share of shared targets whose label the sign tells."""
        return float(((self.rare > 0) == (self.labels > 0))[self.shared].mean())


def measured(deviation: float, seeds: int, records: int, **how: Any) -> Found:
    """Over several tables, in ordinary numbers."""
    found = []
    for seed in range(seeds):
        of = Rare(records, seed=seed, **how)
        found.append(of.judged(of.plain(deviation)))
    return Found(*(np.concatenate(each) for each in zip(*((of.rare, of.shared, of.labels) for of in found), strict=True)))


TABLES = examples(20, fewer=10)
CHANCE = 1 / np.sqrt(3 * TABLES * 128)
"""Standard error of an area under the curve over so many tables: .011 of 20."""


@pytest.mark.parametrize("of", [pytest.param(Rare(1), marks=pytest.mark.slow), Rare(30, twins=True)], ids=["alone", "twins"])
def test_weights_that_begin_at_zero_tell_all_of_a_record_that_is_set_apart(of: Rare) -> None:
    found = of.judged(of.in_shares(0.0))
    assert 0.4 < found.shared.mean() < 0.6
    assert (found.membership, found.membership_by_label, found.label) == (1.0, 1.0, 1.0)


@pytest.mark.slow
def test_so_do_those_of_numbers_but_for_records_that_are_predicted_too_well_to_move_anything() -> None:
    of = Rare(1, standardised=True)
    found = of.judged(of.in_shares(0.0))
    assert found.membership > 0.97
    assert found.membership_by_label > 0.97
    assert found.label == 1.0


@pytest.mark.slow
def test_the_attack_is_the_same_on_ordinary_numbers() -> None:
    of = Rare(3, columns=32)
    for deviation in (0.0, 0.1):
        np.testing.assert_allclose(of.in_shares(deviation), of.plain(deviation), atol=2e-4)


@pytest.mark.slow
def test_more_records_in_a_column_hide_each_other_from_who_knows_none_of_them() -> None:
    one, few, many = (measured(0.0, TABLES, records) for records in (1, 3, 20))
    assert one.membership == 1.0
    assert 0.6 < few.membership < 0.7
    assert abs(many.membership - 0.5) < 4 * CHANCE
    assert 0.55 < many.membership_by_label < few.membership_by_label < 0.8
    assert 0.55 < many.label < few.label < 0.85


def test_first_weights_that_nobody_knows_hide_most_of_a_record_by_itself() -> None:
    """A weight of a level moves by .006 on average, that of a number by .027."""
    level, number = (measured(START, TABLES, 1, standardised=standardised) for standardised in (False, True))
    assert abs(level.membership - 0.5) < 4 * CHANCE
    assert 0.48 < level.membership_by_label < 0.57
    assert 0.48 < level.label < 0.57
    assert 0.53 < number.membership_by_label < 0.64
    assert 0.55 < number.label < 0.67
    small = measured(0.01, TABLES, 1)
    assert small.membership_by_label > 0.6
    assert small.label > 0.68


@pytest.mark.parametrize("twins", [pytest.param(False, marks=pytest.mark.slow), True])
def test_both_together_leave_little(twins: bool) -> None:
    found = measured(START, TABLES, 20, twins=twins)
    assert abs(found.membership - 0.5) < 4 * CHANCE
    assert found.membership_by_label < 0.5 + 6 * CHANCE
    assert found.label < 0.5 + 6 * CHANCE


@pytest.mark.slow
def test_what_they_leave_of_a_column_of_numbers() -> None:
    """What its shared records say is most of such a weight, and each is about a tenth of them."""
    found = measured(START, TABLES, 20, standardised=True)
    assert abs(found.membership - 0.5) < 4 * CHANCE
    assert 0.5 < found.membership_by_label < 0.6
    assert 0.5 < found.label < 0.62


@pytest.mark.slow
def test_a_decay_of_weights_does_not_wear_off_what_they_began_with() -> None:
    """It pulls them back to that. A pull to 0 would leave what records move alone: as with weights that begin there."""
    how: dict[str, Any] = {"twins": True, "epochs": 30, "decay": 0.05, "columns": 64}
    of = Rare(30, **how | {"columns": 12, "epochs": 10})
    assert of.judged(of.in_shares(0.0)).membership_by_label == 1.0
    np.testing.assert_allclose(of.in_shares(START), of.plain(START), atol=2e-4)
    found = measured(START, 6, 30, **how)
    assert found.membership < 0.5 + 5 / np.sqrt(3 * 384)
    assert found.membership_by_label < 0.6
