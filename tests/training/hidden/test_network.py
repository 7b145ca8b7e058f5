"""A step in shares is the step of plain numbers on the rows that all parties own, and costs what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, counted
from tests.thorough import every
from tests.training.hidden.plain import Step, descend, forward
from vfl_node.crypto.shares.kits import DEALT
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, decode, encode
from vfl_node.crypto.shares.tallies import SCORE_FRACTION
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.hidden.bound import MARGIN
from vfl_node.training.hidden.network import MANTISSA_BITS, Form, SharedModel, _residual, scores, step
from vfl_node.training.hidden.rates import Rates

ROWS, STEPS, BATCH = 240, 12, 80


class World:
    """Columns, ownership and labels of several parties; rows that a party does not own are zeros."""

    def __init__(self, parties: int, outputs: int, *, numbers: bool = False) -> None:
        rng = np.random.default_rng(parties)
        self.bits = [rng.random(ROWS) < 0.7 for _ in range(parties)]
        self.columns = [rng.normal(size=(ROWS, 3 + place)) * of[:, None] for place, of in enumerate(self.bits)]
        self.columns[0][:, -1] = self.bits[0]  # the intercept
        y = rng.normal(size=(ROWS, outputs)) if numbers else (rng.random((ROWS, outputs)) < 0.5).astype(float)
        self.labels = y * self.bits[0][:, None]
        self.both = np.logical_and.reduce(self.bits)
        self.batches = [rng.permutation(ROWS)[:BATCH] for _ in range(STEPS)]


def start(form: Form, place: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    made = [rng.normal(size=shape) / np.sqrt(shape[0]) * bool(form.hidden) for shape in form.shapes]
    return made if place == 0 else [np.zeros_like(of) for of in made]


def rates(form: Form) -> Rates:
    return Rates.from_rate(0.3, BATCH / 2, 0.9, 0.01, MANTISSA_BITS[form.loss])


def program(world: World, form: Form, steps: int = STEPS, **how: Any) -> Any:
    async def run(machine: ShareMachine) -> Any:
        columns, bits = [], []
        for place, (own, bit) in enumerate(zip(world.columns, world.bits, strict=True)):
            mine = machine.place == place
            columns.append(mask_known(place, own.shape, FRACTION, encode(own) if mine else None))
            bits.append(mask_known(place, (ROWS, 1), 0, bit[:, None].astype(np.uint64) if mine else None))
        matrices, others = await machine.run(*columns), await machine.run(*bits[1:])
        both = Shared(world.bits[0][:, None].astype(np.uint64) * np.uint64(machine.place == 0), 0)
        for of in others:
            (both,) = await machine.run(known_product(of, both, "numbers"))
        (opened,) = await machine.run(mask_value(both))
        parts = tuple(Shared(encode(of, WEIGHT_FRACTION), WEIGHT_FRACTION) for of in start(form, machine.place))
        if machine.place < 0:
            parts = tuple(Shared(np.zeros(of.shape, np.uint64), WEIGHT_FRACTION) for of in parts)
        still = tuple(Shared(np.zeros(of.shape, np.uint64), WEIGHT_FRACTION) for of in parts)
        model = SharedModel(form, parts, still, parts)
        y = encode(world.labels, 2 * FRACTION) if machine.place == 0 else np.zeros(world.labels.shape, np.uint64)
        for batch in world.batches[:steps]:
            model = await step(machine, model, matrices, Shared(y, 2 * FRACTION), opened, batch, rates(form), **how)
        z = await scores(machine, model, [matrix[:20] for matrix in matrices])
        return model, z

    return run


def plain(world: World, form: Form) -> tuple[list[np.ndarray], np.ndarray]:
    """The same in float64, on the rows that all own alone."""
    x, own = np.hstack(world.columns), [batch[world.both[batch]] for batch in world.batches]
    weights = descend(form, start(form, 0), x, world.labels, own, Step(rates(form).factor, 0.9, 0.3 * 0.01))
    return weights, forward(form, weights, x[:20])[0]


CASES = [
    (2, (), 1, "exact", 1e-4),
    (2, (), 1, "taylor", 1e-4),
    (3, (), 1, "squares", 1e-4),
    (3, (), 1, "robust", 2e-4),
    (2, (), 3, "exact", 1e-4),
    (2, (6,), 1, "exact", 2e-3),
    (3, (6, 4), 2, "exact", 2e-3),
    (2, (5, 4, 3), 1, "squares", 4e-3),
]


@pytest.mark.parametrize(("parties", "hidden", "outputs", "loss", "error"), every(2, CASES))
def test_training_in_shares_equals_plain_training_on_the_shared_rows(
    parties: int, hidden: tuple[int, ...], outputs: int, loss: Any, error: float
) -> None:
    world = World(parties, outputs, numbers=loss in ("squares", "robust"))
    form = Form(tuple(of.shape[1] for of in world.columns), hidden, outputs, loss)
    at_once = 33 if parties == 2 else BATCH  # rows in pieces are the same step
    run = Run(program(world, form, at_once=at_once), parties)
    weights, z = plain(world, form)
    models = [model for model, _ in run.results]
    for index, expected in enumerate(weights):
        found = decode(sum((model.weights[index].part for model in models[1:]), models[0].weights[index].part), WEIGHT_FRACTION)
        np.testing.assert_allclose(found, expected, atol=error)
        assert np.abs(expected - start(form, 0)[index]).max() > 3 * error  # it has moved
    found = decode(sum((of.part for _, of in run.results[1:]), run.results[0][1].part), run.results[0][1].fraction)
    np.testing.assert_allclose(found, z, atol=20 * error)
    cost = counted(program(world, form, at_once=at_once), parties)
    assert run.table.sent == cost.opened
    assert run.queues.bytes == cost.dealt


@pytest.mark.parametrize(("loss", "momentum"), [("exact", 0.8), ("robust", 0.9)])
def test_noise_moves_each_weight_as_its_formula_says(loss: Any, momentum: float) -> None:
    """Of 600 weights whose rows are not shared: nothing else moves them. The standard error of a deviation is 3 % of it."""
    form, deviation, steps = Form((300, 300), (), 1, loss), 40.0, 5
    nothing = np.zeros((4, 300))
    of = Rates.from_rate(2.0, 500.0, momentum, 0.0, MANTISSA_BITS[form.loss])

    async def run(machine: ShareMachine) -> Any:
        matrices = await machine.run(
            *(
                mask_known(place, nothing.shape, FRACTION, encode(nothing) if machine.place == place else None)
                for place in (0, 1)
            )
        )
        (both,) = await machine.run(mask_value(Shared(np.zeros((4, 1), np.uint64), 0)))
        still = tuple(Shared(np.zeros(shape, np.uint64), WEIGHT_FRACTION) for shape in form.shapes)
        model, targets = SharedModel(form, still, still, still), Shared(np.zeros((4, 1), np.uint64), 2 * FRACTION)
        for number in range(steps):
            machine.begin(f"epoch {number} block 0")
            model = await step(machine, model, matrices, targets, both, np.arange(4), of, deviation)
        return np.concatenate([each.part for each in model.weights])

    first, second = Run(run).results
    found = decode(first + second, WEIGHT_FRACTION).ravel()
    moved = sum((of.factor * (1 - momentum**t) / (1 - momentum)) ** 2 for t in range(1, steps + 1)) ** 0.5
    assert abs(found.std() / (deviation * moved) - 1) < 4 / (2 * len(found)) ** 0.5
    assert abs(found.mean()) < 4 * found.std() / len(found) ** 0.5


@pytest.mark.parametrize("loss", ["exact", "robust"])
def test_a_residual_is_bounded_whatever_the_score_is(loss: Any) -> None:
    """Also where scores have left what the sines are good for, and the ring: sums of sines are periodic."""
    rng = np.random.default_rng(5)
    scores_of_rows = np.concatenate([np.linspace(-70, 70, 4001), rng.uniform(-(2.0**17), 2.0**17, 4001)])[:, None]
    form, of = Form((1, 1), (), 1, loss), Rates.from_rate(1.0, 1.0, 0.0, 0.0, FRACTION)

    async def run(machine: ShareMachine) -> Any:
        z = Shared(
            encode(scores_of_rows, SCORE_FRACTION) if machine.place == 0 else np.zeros(scores_of_rows.shape, np.uint64),
            SCORE_FRACTION,
        )
        ones = np.ones(scores_of_rows.shape, np.uint64)
        (both,) = await machine.run(mask_value(Shared(ones if machine.place == 0 else 0 * ones, 0)))
        return (await _residual(machine, DEALT, form, z, Shared(0 * ones, 2 * FRACTION), both, of))[0]

    results = Run(run).results
    found = decode(results[0].part + results[1].part, results[0].fraction)
    assert np.abs(found).max() <= MARGIN
    assert np.abs(found).max() > 0.99  # and it comes near


def test_rates_have_many_significant_bits_however_small_they_are() -> None:
    for divisor in (1.0, 10.0, 512.0, 4096.0, 30_000.0):
        of = Rates.from_rate(0.1, divisor, 0.9, 1e-4, FRACTION)
        assert of.factor == pytest.approx(0.1 / divisor, rel=1e-5)
        assert of.momentum / 2**of.velocity_bits == pytest.approx(0.9, abs=1e-8)
        assert of.decay / 2**of.velocity_bits == pytest.approx(1e-5, rel=1e-3)
