"""How much training in shares exchanges: counted before it runs, by the program of the training itself.

What an operation sends depends on shapes alone, and each of its shapes has the rows of a batch once or not at all. So the
program (:func:`~vfl_node.training.hidden.computation.compute`) is run by a
:class:`~vfl_node.crypto.shares.machine.Counter` with one row and with two, and all else follows: 10,000,000 rows are
counted as quickly as two.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vfl_node.crypto.shares.machine import Counter
from vfl_node.crypto.shares.paired.blocks import block_rows, fill
from vfl_node.crypto.shares.tallies import rows_at_once
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import Beside, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.training.hidden import memory, paired_costs
from vfl_node.training.hidden.bound import worlds
from vfl_node.training.hidden.brought import HiddenPlan, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import Descent, descent_of, describe_noise
from vfl_node.training.hidden.held import block, candidates
from vfl_node.training.hidden.memory import ROWS_AT_ONCE
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.terms import batch_of, most_measured
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise


class Exchanged(NamedTuple):
    """What a part of the program takes.

    Attributes:
        rounds: of messages between data parties.
        active: bytes that the active party sends.
        passive: bytes that all others send to data parties together.
        dealt: bytes that the coordinator sends to all together.
    """

    rounds: int = 0
    active: int = 0
    passive: int = 0
    dealt: int = 0

    def add(self, other: Exchanged, times: int = 1) -> Exchanged:
        """Both, the ``other`` so often."""
        return Exchanged(*(own + times * more for own, more in zip(self, other, strict=True)))


class PartCosts(NamedTuple):
    """What each part of a training takes.

    Attributes:
        once: columns without rows, and weights that are revealed.
        row: of a row of the shared order, once.
        step: of a step without rows.
        piece: of each :data:`~vfl_node.training.hidden.memory.ROWS_AT_ONCE` rows of it.
        step_row: of a row in a step.
        check: of a step that is checked instead, without rows.
        check_piece: of each so many rows of that.
        check_row: of a row in that.
        measured: of measuring without rows.
        chunk: of each :func:`rows_per_round` rows that are measured on.
        measured_row: of a row that is measured on.
    """

    once: Exchanged
    row: Exchanged
    step: Exchanged
    piece: Exchanged
    step_row: Exchanged
    check: Exchanged
    check_piece: Exchanged
    check_row: Exchanged
    measured: Exchanged
    chunk: Exchanged
    measured_row: Exchanged


@lru_cache(maxsize=16)
def parts(form: Form, bins: int, reveals: bool, told: bool, audits: bool = False, noised: bool = True) -> PartCosts:
    """The costs for a model of this form; what its weights and metrics are opened to: as in :class:`HiddenPlan`."""

    def run(rows: int, batch: int = 0, tested: int = 0, *, checked: bool = False, at_once: int = ROWS_AT_ONCE) -> Exchanged:
        what = bins, reveals, told, audits, noised
        return _count_program(form, *what, rows=rows, batch=batch, tested=tested, checked=checked, at_once=at_once)

    def step_costs(*, checked: bool) -> tuple[Exchanged, Exchanged, Exchanged]:
        one = run(2, batch=1, checked=checked).add(run(2), -1)
        two = run(2, batch=2, checked=checked).add(run(2), -1)
        apart = run(2, batch=2, checked=checked, at_once=1).add(run(2), -1)
        piece, row = apart.add(two, -1), two.add(one, -1)
        return one.add(piece, -1).add(row, -1), piece, row

    once = run(1)
    row = run(2).add(once, -1)
    step, piece, step_row = step_costs(checked=False)
    check, check_piece, check_row = step_costs(checked=audits)
    many = rows_per_round(form, bins) + 1
    measured, two, more = (run(many, tested=tested).add(run(many), -1) for tested in (1, 2, many))
    measured_row = two.add(measured, -1)
    chunk = more.add(measured, -1).add(measured_row, 1 - many)
    return PartCosts(
        once=once.add(row, -1),
        row=row,
        step=step,
        piece=piece,
        step_row=step_row,
        check=check,
        check_piece=check_piece,
        check_row=check_row,
        measured=measured.add(chunk, -1).add(measured_row, -1),
        chunk=chunk,
        measured_row=measured_row,
    )


def rows_per_round(form: Form, bins: int) -> int:
    """How many rows are measured on in a round."""
    return rows_at_once(bins, form.outputs)


def exchange(
    form: Form,
    bins: int,
    reveals: bool,
    told: bool,
    audits: bool = False,
    noised: bool = True,
    *,
    rows: int,
    batch: int,
    steps: int,
    tested: int,
    checks: int = 0,
) -> Exchanged:
    """What a whole training takes: so many ``steps`` of a ``batch`` each, over ``rows``, of which so many are ``tested`` on.

    With an audit so many ``checks`` of a batch come on top.
    """
    costs, pieces = parts(form, bins, reveals, told, audits, noised), -(-batch // ROWS_AT_ONCE)
    whole = costs.once.add(costs.row, rows)
    whole = whole.add(costs.step, steps).add(costs.piece, steps * pieces).add(costs.step_row, steps * batch)
    whole = whole.add(costs.check, checks).add(costs.check_piece, checks * pieces).add(costs.check_row, checks * batch)
    if not tested:
        return whole
    return whole.add(costs.measured).add(costs.chunk, -(-tested // rows_per_round(form, bins))).add(costs.measured_row, tested)


def cost(train: Hidden, evaluate: Evaluate, m: int, protocol: str, passive_parties: int, beside: Beside) -> TrainingCost:
    """What training over ``m`` rows takes; args as :meth:`~vfl_node.job.costs.TrainingPlan.cost`.

    Columns that are not known are taken to be :data:`~vfl_node.training.hidden.memory.USUAL_COLUMNS` at each party.
    """
    if not train.coordinated:
        return _paired_cost(train, evaluate, m, protocol, beside)
    common = m if ALIGNMENTS[protocol].every_row_is_shared else beside.common
    held_out = math.ceil(m * evaluate.test_fraction)
    trained = m - held_out
    if passive_parties > 1 and not ALIGNMENTS[protocol].every_row_is_shared:
        common = None  # the active party alone knows it
    size, divisor = batch_of(train, m, trained, common) if m else (0, 1.0)
    tested = held_out or trained
    steps = trained // size if size else 0
    of_all = train, 1 + passive_parties, divisor, worlds(train.task, ALIGNMENTS[protocol])
    epochs = descent_of(*of_all).steps
    widths = memory.widths(passive_parties, beside)
    checks = round(train.dealer_audit * epochs * steps)  # on average
    whole = exchange(
        Form(widths, train.layers, train.outputs, train.form_loss),
        train.bins,
        train.reveal == "owners",
        evaluate.share_with_passive,
        train.dealer_audit > 0,
        train.epsilon is not None,
        rows=m,
        batch=size,
        steps=epochs * steps - checks,
        checks=checks,
        tested=tested if size and train.metrics_by == "histogram" else 0,
    )
    if not steps:
        whole = Exchanged()  # refused: there is nothing to train on
    return TrainingCost(
        rows=steps * size,
        batches=steps,
        steps=whole.rounds if passive_parties > 1 else -(-whole.rounds // 2),  # two parties send at the same time
        active_bytes=whole.active,
        passive_bytes=whole.passive,
        coordinator_bytes=whole.dealt,
        coordinator_memory=memory.coordinator_bytes(train, m, widths, size),
        said=describe_noise(*of_all) if steps and (common is not None or train.shared_fraction) else (),
        counted_with="" if beside.columns and all(beside.columns) else f"{memory.USUAL_COLUMNS} encoded columns a party",
    )


def _paired_cost(train: Hidden, evaluate: Evaluate, m: int, protocol: str, beside: Beside) -> TrainingCost:
    """As :func:`cost`, of two parties without a coordinator."""
    spec = ALIGNMENTS[protocol]
    common = m if spec.every_row_is_shared else beside.common
    held_out = math.ceil(m * evaluate.test_fraction)
    trained = m - held_out
    size, divisor = batch_of(train, m, trained, common) if m else (0, 1.0)
    of_all = train, 2, divisor, worlds(train.task, spec)
    epochs, widths = descent_of(*of_all).steps, memory.widths(1, beside)
    if not trained:
        return TrainingCost(0, 0, 0, 0, 0)  # refused: there is nothing to train on
    block, measures = block_rows(size, max(widths)), train.metrics_by == "histogram"
    most = most_measured(train)
    apart = held_out or trained * (trained > most)  # without held-out rows as many of those trained on
    whole, tested = max(fill(trained, block), size), fill(min(apart, most), block) if measures else 0
    steps = whole // size
    sent = paired_costs.exchange(
        Form(widths, train.layers, train.outputs, train.form_loss),
        train.bins if measures else 0,
        train.reveal == "owners",
        evaluate.share_with_passive,
        train.epsilon is not None,
        ("active" not in spec.synthetic_rows_at, "passive" not in spec.synthetic_rows_at),
        trained=whole,
        batch=size,
        steps=steps,
        epochs=epochs,
        tested=tested,
    )
    phases = [f"{name} {max(phase.active, phase.passive) / 1e6:,.0f} MB" for name, phase in sent.phases.items()]
    said = f"without a coordinator (experimental) a party sends at most: {', '.join(phases)}"
    noise = describe_noise(*of_all) if common is not None or train.shared_fraction else ()
    return TrainingCost(
        rows=steps * size,
        batches=steps,
        steps=-(-sum(phase.rounds for phase in sent.phases.values()) // 2),  # both send at the same time
        active_bytes=sum(phase.active for phase in sent.phases.values()),
        passive_bytes=sum(phase.passive for phase in sent.phases.values()),
        said=(said, *noise),
        counted_with="" if beside.columns and all(beside.columns) else f"{memory.USUAL_COLUMNS} encoded columns a party",
    )


def _count_program(
    form: Form,
    bins: int,
    reveals: bool,
    told: bool,
    audits: bool,
    noised: bool,
    *,
    rows: int,
    batch: int,
    tested: int,
    checked: bool,
    at_once: int,
) -> Exchanged:
    """The whole program over so few rows, with one step if there is a batch, which may be ``checked`` instead."""
    plan = HiddenPlan(
        form=form,
        rows=rows,
        schedule=Schedule(bytes(32), rows, 0),
        training=np.arange(batch),
        testing=np.arange(tested),
        descent=Descent(1 if batch else 0, momentum=0.5, rate=0.5, deviation=1.0 if noised else None),
        batch_rows=batch or 1,
        divisor=1.0,
        weight_decay=0.5,
        bins=bins,
        reveals=reveals,
        metric_noise=MetricNoise(1.0, outputs=form.outputs, numbers=form.numbers),
        told=told,
        audits=audits,
        at_once=at_once,
    )
    spare = candidates(audits=audits)[1:] + [block(0, 0)] * checked
    counter = Counter(len(form.widths), spare.__contains__)

    async def skip(epoch: int, parts: WeightShares) -> None:
        pass

    with suppress(StopIteration):  # at its end: who counts waits for nobody
        compute(counter, plan, None, None, 0, skip).send(None)
    total = counter.cost
    return Exchanged(total.rounds, total.opened[0], sum(total.opened.values()) - total.opened[0], sum(total.dealt.values()))
