"""What a party receives in training in shares tells it neither membership nor labels; without one of the protections it does.

The attacker knows its own columns and what it received. A boosted tree is trained on half of its rows with the truth beside
them, more than any attacker has, and judged on the other half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import masked, revealed
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.hidden.computation import HiddenPlan, Own, WeightShares, compute
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule

ROWS, EPOCHS = 6000, 4
RNG = np.random.default_rng(3)
MINE, THEIRS = RNG.random(ROWS) < 0.75, RNG.random(ROWS) < 0.75
A, P = RNG.normal(size=(ROWS, 4)), RNG.normal(size=(ROWS, 3))
LABELS = (RNG.random(ROWS) < 1 / (1 + np.exp(-A[:, 0] - P[:, 0]))).astype(float)


def plan(hidden: tuple[int, ...] = ()) -> HiddenPlan:
    return HiddenPlan(
        form=Form((4, 3), hidden, 1, "exact"),
        rows=ROWS,
        schedule=Schedule(bytes(32), ROWS, 0),
        training=np.arange(ROWS),
        testing=np.arange(ROWS)[:0],
        epochs=EPOCHS,
        batch_rows=ROWS,
        divisor=ROWS / 2,
        learning_rate=1.0,
        momentum=0.5,
        weight_decay=0.0,
        bins=256,
        reveals=False,
    )


def own(place: int) -> Own:
    bits, columns = (MINE, A) if place == 0 else (THEIRS, P)
    targets = LABELS * bits if place == 0 else np.zeros(ROWS)
    return Own(encode(columns * bits[:, None]), bits[:, None].astype(np.uint64), encode(targets[:, None], 2 * FRACTION))


def training(of: HiddenPlan) -> Any:
    async def program(machine: ShareMachine) -> Any:
        async def after(*of: Any) -> None: ...

        mine = own(machine.place) if machine.place >= 0 else None
        first = [np.random.default_rng(1).normal(size=shape) * 0.5 * (machine.place == 0) for shape in of.form.shapes]
        start = WeightShares(tuple(encode(each, WEIGHT_FRACTION) for each in first), tuple(encode(0 * each) for each in first))
        return await compute(machine, of, mine, start, 0, after)

    return program


def view(run: Run, place: int, of: HiddenPlan) -> np.ndarray:
    """All that was opened to a party of each row: float64[rows, numbers]."""
    seen = [value for value in run.table.seen[place] if len(value) == ROWS]
    setup, steps = seen[:3], seen[3:]  # columns, bits and w under masks, in the shared order; then the same of each epoch
    each = len(steps) // EPOCHS
    assert len(steps) == each * EPOCHS
    for epoch in range(EPOCHS):
        (batch,) = of.batches(epoch)
        setup += [value[np.argsort(batch)] for value in steps[each * epoch : each * (epoch + 1)]]
    return np.concatenate([value.astype(np.float64) for value in setup], axis=1)


def auc(features: np.ndarray, truth: np.ndarray) -> float:
    half = len(truth) // 2
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(features[:half], truth[:half])
    return float(roc_auc_score(truth[half:], model.predict_proba(features[half:])[:, 1]))


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_nothing_received_tells_membership_or_labels(hidden: tuple[int, ...]) -> None:
    of = plan(hidden)
    run = Run(training(of))
    for place, bits, columns, truth in ((0, MINE, A, THEIRS), (1, THEIRS, P, MINE)):
        seen = view(run, place, of)
        assert seen.shape[1] > 10
        assert auc(np.concatenate([seen, columns], axis=1)[bits], truth[bits]) == pytest.approx(0.5, abs=0.04)
    assert auc(view(run, 1, of)[THEIRS], LABELS[THEIRS]) == pytest.approx(0.5, abs=0.04)


def test_the_weighting_bit_if_it_were_opened_tells_membership() -> None:
    async def program(machine: ShareMachine) -> Any:
        both = (MINE & THEIRS).astype(float)[:, None]
        return (await machine.run(revealed(Shared(encode(both, 0) * np.uint64(machine.place == 0), 0))))[0]

    opened = Run(program).results[0]
    assert auc(opened[MINE].astype(float), THEIRS[MINE]) == 1.0


def test_a_mask_used_twice_tells_membership() -> None:
    """The weighting bit under a mask, and later a public value under the same one: the difference is the bit."""

    async def program(machine: ShareMachine) -> Any:
        both = Shared((MINE & THEIRS).astype(np.uint64)[:, None] * np.uint64(machine.place == 0), 0)
        machine.begin("same")
        (first,) = await machine.run(masked(both))
        machine.begin("same")
        (second,) = await machine.run(masked(Shared(np.zeros_like(both.part), 0)))
        return first.difference - second.difference, first.difference

    difference, alone = Run(program).results[0]
    assert auc(difference[MINE].astype(float), THEIRS[MINE]) == 1.0
    assert auc(alone[MINE].astype(float), THEIRS[MINE]) == pytest.approx(0.5, abs=0.04)
