"""A step in shares is the step of plain numbers on the rows that all parties own, and costs what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, counted
from tests.training.hidden.plain import Step, descend, forward
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known, known_product, masked
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, decode, encode
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.hidden.network import MANTISSA_BITS, Form, SharedModel, scores, step
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
    return Rates.of(0.3, BATCH / 2, 0.9, 0.01, MANTISSA_BITS[form.loss])


def program(world: World, form: Form, steps: int = STEPS) -> Any:
    async def run(machine: ShareMachine) -> Any:
        columns, bits = [], []
        for place, (own, bit) in enumerate(zip(world.columns, world.bits, strict=True)):
            mine = machine.place == place
            columns.append(known(place, own.shape, FRACTION, encode(own) if mine else None))
            bits.append(known(place, (ROWS, 1), 0, bit[:, None].astype(np.uint64) if mine else None))
        matrices, others = await machine.run(*columns), await machine.run(*bits[1:])
        both = Shared(world.bits[0][:, None].astype(np.uint64) * np.uint64(machine.place == 0), 0)
        for of in others:
            (both,) = await machine.run(known_product(of, both, "numbers"))
        (opened,) = await machine.run(masked(both))
        parts = tuple(Shared(encode(of, WEIGHT_FRACTION), WEIGHT_FRACTION) for of in start(form, machine.place))
        if machine.place < 0:
            parts = tuple(Shared(np.zeros(of.shape, np.uint64), WEIGHT_FRACTION) for of in parts)
        still = tuple(Shared(np.zeros(of.shape, np.uint64), WEIGHT_FRACTION) for of in parts)
        model = SharedModel(form, parts, still, parts)
        y = encode(world.labels, 2 * FRACTION) if machine.place == 0 else np.zeros(world.labels.shape, np.uint64)
        for batch in world.batches[:steps]:
            rows = [matrix[batch] for matrix in matrices]
            model = await step(machine, model, rows, Shared(y[batch], 2 * FRACTION), opened[batch], rates(form))
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
    (2, (), 3, "exact", 1e-4),
    (2, (6,), 1, "exact", 2e-3),
    (3, (6, 4), 2, "exact", 2e-3),
    (2, (5, 4, 3), 1, "squares", 4e-3),
]


@pytest.mark.parametrize(("parties", "hidden", "outputs", "loss", "error"), CASES)
def test_training_in_shares_equals_plain_training_on_the_shared_rows(
    parties: int, hidden: tuple[int, ...], outputs: int, loss: Any, error: float
) -> None:
    world = World(parties, outputs, numbers=loss == "squares")
    form = Form(tuple(of.shape[1] for of in world.columns), hidden, outputs, loss)
    run = Run(program(world, form), parties)
    weights, z = plain(world, form)
    models = [model for model, _ in run.results]
    for index, expected in enumerate(weights):
        found = decode(sum((model.weights[index].part for model in models[1:]), models[0].weights[index].part), WEIGHT_FRACTION)
        np.testing.assert_allclose(found, expected, atol=error)
        assert np.abs(expected - start(form, 0)[index]).max() > 3 * error  # it has moved
    found = decode(sum((of.part for _, of in run.results[1:]), run.results[0][1].part), run.results[0][1].fraction)
    np.testing.assert_allclose(found, z, atol=20 * error)
    cost = counted(program(world, form), parties)
    assert run.table.sent == cost.opened
    assert run.queues.bytes == cost.dealt


def test_rates_have_many_significant_bits_however_small_they_are() -> None:
    for divisor in (1.0, 10.0, 512.0, 4096.0, 30_000.0):
        of = Rates.of(0.1, divisor, 0.9, 1e-4, FRACTION)
        assert of.factor == pytest.approx(0.1 / divisor, rel=1e-5)
        assert of.momentum / 2**of.velocity_bits == pytest.approx(0.9, abs=1e-8)
        assert of.decay / 2**of.velocity_bits == pytest.approx(1e-5, rel=1e-3)
