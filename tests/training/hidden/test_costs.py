"""What training in shares is said to send is what it sends, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Program, Run
from vfl_node.configuration.models import parse
from vfl_node.crypto.shares.machine import SEED_BYTES, ShareMachine
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate, Job
from vfl_node.job.costs import Beside, TableShape
from vfl_node.report.envelope import Report
from vfl_node.training.hidden import costs, memory
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.costs import exchange
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.held import block, candidates
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise

ROWS, BATCH, EPOCHS = 1300, 90, 2
JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psu}
train: {algorithm: hidden, KEYS}
evaluate: {test_fraction: 0.3, metrics: [auc]}
"""


def plan_of(form: Form, tested: int, reveals: bool, told: bool, audits: bool = False, *, noised: bool = False) -> HiddenPlan:
    return HiddenPlan(
        form=form,
        rows=ROWS,
        schedule=Schedule(bytes(32), ROWS, 0),
        training=np.arange(200),
        testing=np.arange(tested),
        descent=Descent(EPOCHS, 0.9, 0.1, 1.0 if noised else None),
        batch_rows=BATCH,
        divisor=50.0,
        weight_decay=0.0,
        bins=256,
        reveals=reveals,
        metric_noise=MetricNoise(0.2, outputs=form.outputs, numbers=form.loss == "squares"),
        told=told,
        audits=audits,
        at_once=40,
    )


def program(plan: HiddenPlan) -> Program:
    async def after(epoch: int, parts: WeightShares) -> None:
        pass

    async def run(machine: ShareMachine) -> Any:
        own = start = None
        if machine.place >= 0:
            widths, ones = plan.form.widths, np.ones((ROWS, 1), np.uint64)
            own = Own(np.ones((ROWS, widths[machine.place]), np.uint64), ones, np.zeros((ROWS, plan.form.outputs), np.uint64))
            nothing = tuple(np.zeros(shape, np.uint64) for shape in plan.form.shapes)
            start = WeightShares(nothing, nothing)
        return await compute(machine, plan, own, start, 0, after)

    return run


@pytest.fixture(name="small_pieces")
def small_pieces_fixture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows of a step come in pieces of 40, as :func:`plan_of` says."""
    monkeypatch.setattr(costs, "ROWS_AT_ONCE", 40)
    costs.parts.cache_clear()
    yield
    costs.parts.cache_clear()


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(
    ("form", "tested", "reveals"),
    [
        (Form((4, 3), (), 1, "exact"), 1030, True),  # two pieces of the histogram
        (Form((4, 3), (), 1, "taylor"), 0, False),
        (Form((3, 2, 5), (), 1, "squares"), 1030, True),
        (Form((4, 3), (5, 3), 1, "exact"), 60, True),
        (Form((3, 2, 2), (4,), 3, "exact"), 60, True),
    ],
    ids=str,
)
@pytest.mark.usefixtures("small_pieces")
def test_rounds_and_bytes_are_those_of_a_run(form: Form, tested: int, reveals: bool, told: bool) -> None:
    """Rows of a step come in three pieces."""
    noised = not form.hidden
    run = Run(program(plan_of(form, tested, reveals, told, noised=noised)), len(form.widths))
    said = exchange(form, 256, reveals, told, False, noised, rows=ROWS, batch=BATCH, steps=EPOCHS * 2, tested=tested)
    active, *others = run.table.sent.values()
    assert (said.active, said.passive) == (active, sum(others))
    assert said.dealt == sum(run.queues.bytes.values())
    assert said.rounds == run.table.rounds


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.usefixtures("small_pieces")
def test_what_is_checked_is_counted(hidden: tuple[int, ...]) -> None:
    noised = not hidden
    plan = plan_of(Form((4, 3), hidden, 1, "exact"), 60, True, False, audits=True, noised=noised)
    shown = [*candidates(audits=True)[:5], *candidates(audits=True)[6:], block(0, 1), block(1, 1)]
    run = Run(program(plan), shows=shown.__contains__)
    said = exchange(plan.form, 256, True, False, True, noised, rows=ROWS, batch=BATCH, steps=2, tested=60, checks=2)
    opened = run.table.sent
    seeds = SEED_BYTES * len(shown)
    assert (said.active, said.passive) == (opened[0] + seeds, opened[1] + seeds)
    assert said.dealt == sum(run.queues.bytes.values())
    assert said.rounds == run.table.rounds + len(shown)


def test_the_estimate_takes_the_mean_of_what_is_checked() -> None:
    train = Hidden(algorithm="hidden", epsilon=None, epochs=10, batch_size=100, metrics_by="none", reveal="none")
    none, some = (
        train.model_copy(update={"dealer_audit": share}).make_plan().cost(Evaluate(), 1250, "psi") for share in (0.0, 0.1)
    )
    assert none is not None
    assert some is not None
    assert none.batches == some.batches == 10
    assert none.steps - some.steps == 17  # pairs of rounds: 5 less for each of ten steps, 1 more for 15 products of bits
    assert some.coordinator_bytes - none.coordinator_bytes == 15 * 8 * 1250


@pytest.mark.parametrize("keys", ["epsilon: null, layers: [4], epochs: 2, batch_size: 40, reveal: owners", "columns: plain"])
def test_the_estimate_is_a_job_but_for_frames(trial: Any, tmp_path: Path, keys: str) -> None:
    job = parse(JOB.replace("KEYS", keys), Job, source="job")
    simulate(job, trial.files, tmp_path)
    reports = {
        name: Report.model_validate_json((tmp_path / folder / "report.json").read_text())
        for name, folder in (("clinic", "."), ("lab", "lab"), ("notary", "notary"))
    }
    report = reports["clinic"]
    sections = {name: each.training.section for name, each in reports.items()}
    widths = sections["clinic"].columns
    beside = Beside(common=report.alignment.intersection, columns=(widths["clinic"] - 1, widths["lab"]))
    said = job.train.make_plan(1, beside).cost(job.evaluate, report.alignment.rows, "psu")
    assert said.steps == -(-sections["clinic"].rounds // 2)
    assert (said.active_bytes, said.passive_bytes) == (sections["clinic"].bytes, sections["lab"].bytes)
    assert said.coordinator_bytes == sections["notary"].dealer_bytes
    assert said.batches * len(report.training.epochs) == report.training.steps
    moved = report.phases["train"]
    assert 0 <= moved.bytes_sent - said.active_bytes < 100 * moved.messages_sent
    assert 0 <= moved.bytes_received - said.passive_bytes < 100 * moved.messages_received
    assert not said.counted_with
    for folder in (".", "lab", "notary"):
        page = (tmp_path / folder / "report.html").read_text()
        assert ("opened no number of a row" in page, "leaks more" in page) == (True, False)


def test_rows_batches_and_columns() -> None:
    train = Hidden(algorithm="hidden", epsilon=None, epochs=3, batch_size=100, reveal="owners")
    psi = train.make_plan().cost(Evaluate(test_fraction=0.2), 1000, "psi")
    assert (psi.rows, psi.batches) == (800, 8)
    union = train.make_plan(1, Beside(common=250)).cost(Evaluate(test_fraction=0.2), 1000, "psu")
    assert (union.rows, union.batches) == (800, 2)  # as many shared rows a batch, so fewer batches
    assert union.steps < psi.steps
    assert (psi.counted_with, union.bytes) == ("16 encoded columns a party", union.active_bytes + union.passive_bytes)
    wide = train.make_plan(1, Beside(columns=(26, 16))).cost(Evaluate(test_fraction=0.2), 1000, "psi")
    assert wide.active_bytes - psi.active_bytes == 10 * 8 * (1000 + 3 * 8)  # columns go over once, shares of weights each step
    assert not wide.counted_with
    unmeasured = train.model_copy(update={"metrics_by": "none"}).make_plan().cost(Evaluate(test_fraction=0.2), 1000, "psi")
    assert psi.coordinator_bytes - unmeasured.coordinator_bytes > 200 * 256 * 24
    assert train.make_plan().cost(Evaluate(), 0, "psi").bytes == 0
    assert train.make_plan().cost(Evaluate(), 1000, "linkage") is None


def test_memory_grows_with_columns_of_all_and_the_model_is_everywhere() -> None:
    train = Hidden(algorithm="hidden", epsilon=None, layers=(8,))
    table = TableShape(1000, numeric=6, cardinalities=(5,))  # three numbers, three levels
    both = train.make_plan().parameters("active", table), train.make_plan().parameters("passive", table)
    assert both == ((6 + 1 + 16) * 8 + 9, (16 + 1 + 6) * 8 + 9)
    more = train.make_plan().batch_bytes("active", TableShape(2000, numeric=6, cardinalities=(5,)))
    assert more - train.make_plan().batch_bytes("active", table) >= 1000 * 23 * 8 * memory.COLUMN_COPIES
    small, large = (train.make_plan().cost(Evaluate(), rows, "psi").coordinator_memory for rows in (10_000, 20_000))
    assert large - small >= 2 * 10_000 * 33 * 8 * memory.DEALT_COPIES
