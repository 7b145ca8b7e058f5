"""The loss of an epoch is opened only where the job says so, and is that of plain numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, counted
from tests.training.hidden.test_network import BATCH, World, rates, start
from vfl_node.configuration import parse
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known, masked, revealed
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, decode, encode
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import Shared
from vfl_node.errors import UsageError
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.training.hidden.network import HIDDEN_TERMS, OUTPUT_TERMS, Form, SharedModel, step

JOB = """\
name: loss
parties: {active: a, passive: b, coordinator: c}
align: {protocol: psi}
train: {algorithm: hidden, epochs: 6, batch_size: 64, learning_rate: 0.3, momentum: 0.5, show_loss: SHOWN}
evaluate: {test_fraction: 0.2, metrics: [auc]}
"""


def program(world: World, form: Form) -> Any:
    async def run(machine: ShareMachine) -> Any:
        def mine(place: int, of: np.ndarray) -> np.ndarray:
            return of if machine.place == place else np.zeros_like(of)

        own = [encode(of) if machine.place == place else None for place, of in enumerate(world.columns)]
        known_to = (known(place, world.columns[place].shape, FRACTION, of) for place, of in enumerate(own))
        matrices = await machine.run(*known_to)
        (both,) = await machine.run(masked(Shared(mine(0, world.both[:, None].astype(np.uint64)), 0)))
        parts = tuple(Shared(encode(mine(0, of), WEIGHT_FRACTION), WEIGHT_FRACTION) for of in start(form, 0))
        still = tuple(Shared(np.zeros_like(of.part), WEIGHT_FRACTION) for of in parts)
        batch = world.batches[0]
        y = Shared(mine(0, encode(world.labels, 2 * FRACTION))[batch], 2 * FRACTION)
        rows = [matrix[batch] for matrix in matrices]
        _, squares = await step(machine, SharedModel(form, parts, still), rows, y, both[batch], rates(form), squares=True)
        assert squares is not None
        return (await machine.run(revealed(squares)))[0]

    return run


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_the_sum_of_squared_residuals_is_that_of_the_shared_rows(hidden: tuple[int, ...]) -> None:
    world, form = World(2, 1), Form((3, 4), hidden, 1, "exact")
    run = Run(program(world, form))
    rows = world.batches[0][world.both[world.batches[0]]]
    z, weights = np.hstack(world.columns)[rows], start(form, 0)
    z = z @ np.vstack(weights[:2])
    if hidden:
        z = 2 * SIGMOID[HIDDEN_TERMS].values(z) @ weights[2] + weights[3]
    expected = ((SIGMOID[OUTPUT_TERMS].values(z) + 0.5 - world.labels[rows]) ** 2).sum()
    mantissa = rates(form).mantissa / 2.0 ** rates(form).bits
    assert decode(run.results[0], FRACTION)[0] / mantissa**2 == pytest.approx(expected, abs=0.01)
    cost = counted(program(world, form))
    assert (run.table.sent, run.queues.bytes) == (cost.opened, cost.dealt)
    assert len(rows) < BATCH


@pytest.mark.parametrize("shown", ["true", "false"])
def test_only_the_active_party_has_the_losses_of_a_job_that_shows_them(tmp_path: Path, shown: str) -> None:
    rng, tables = np.random.default_rng(0), {}
    for name, own in (("a", "x"), ("b", "z")):
        tables[name] = tmp_path / f"{name}.csv"
        lines = [f"r{row},{rng.normal():.3f}" + (f",{rng.integers(2)}" if name == "a" else "") for row in range(300)]
        tables[name].write_text(f"id,{own}" + (",label" if name == "a" else "") + "\n" + "\n".join(lines) + "\n")
    reports = simulate(parse(JOB.replace("SHOWN", shown), Job, source="job"), tables, tmp_path / "out")
    losses = {
        name: [epoch["loss"] for epoch in json.loads((reports[name] / "report.json").read_text())["training"]["epochs"]]
        for name in ("a", "b")
    }
    assert losses["b"] == [None] * 6
    if shown == "false":
        assert losses["a"] == [None] * 6
    else:
        assert all(0.2 < loss < 0.3 for loss in losses["a"])  # labels that nothing tells: a quarter


def test_it_is_refused_where_dummies_hide_how_many_there_are() -> None:
    text = JOB.replace("SHOWN", "true, metrics_by: none").replace("protocol: psi", "protocol: psu, dummies: 9")
    with pytest.raises(UsageError, match=r"train\.show_loss must be false"):
        parse(text, Job, source="job")
