"""How much training without a coordinator exchanges: counted before it runs, by the program of the training itself.

Its parts are run by who counts (:class:`~vfl_node.crypto.shares.paired.machine.PairCounter`), with as few rows as show what a
part takes: a piece of a step, and the rows that are counted at a time. So 10,000,000 rows are counted as quickly as two pieces.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from vfl_node.crypto.lattice.flooding import LIMIT, log2_distance, slot_terms
from vfl_node.crypto.lattice.parameters import LINEAR, MONOMIALS, SLOTS, N
from vfl_node.crypto.lattice.sizes import Tiles
from vfl_node.crypto.shares.machine import Cost, ShareMachine
from vfl_node.crypto.shares.operation import DEALER
from vfl_node.crypto.shares.paired.blocks import LARGEST_BLOCK, block_rows
from vfl_node.crypto.shares.paired.kit import OwnBits, PairKit
from vfl_node.crypto.shares.paired.machine import PairCounter, count_program
from vfl_node.crypto.shares.paired.tools import BlockMatrix, blocks_together, describe_columns, swap_columns, swap_keys
from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.errors import UsageError
from vfl_node.training.hidden.brought import HiddenPlan, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.held import Held
from vfl_node.training.hidden.layout import BlockLayout
from vfl_node.training.hidden.memory import ROWS_AT_ONCE
from vfl_node.training.hidden.network import OUTPUT_TERMS, Form
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.shares.phases import PHASES


class PhaseCost(NamedTuple):
    """What a phase takes.

    Attributes:
        rounds: of messages.
        active, passive: bytes that each party sends.
    """

    rounds: int = 0
    active: int = 0
    passive: int = 0

    @classmethod
    def from_cost(cls, cost: Cost) -> PhaseCost:
        """What was counted."""
        return cls(cost.rounds, cost.opened[0], cost.opened[1])

    def add(self, other: PhaseCost, times: int = 1) -> PhaseCost:
        """Both, the ``other`` so often."""
        return PhaseCost(*(own + times * more for own, more in zip(self, other, strict=True)))


class PairCost(NamedTuple):
    """What all phases take: ``offline`` and ``online`` of a whole training, and what of it a step is.

    Attributes:
        setup: keys, and columns as ciphertexts.
        offline, online: of all steps, and of measuring.
        kept: bytes of what is made ahead for a step.
    """

    setup: PhaseCost
    offline: PhaseCost
    online: PhaseCost
    kept: int

    @property
    def phases(self) -> dict[str, PhaseCost]:
        """By their names."""
        return dict(zip(PHASES, (self.setup, self.offline, self.online), strict=True))


@lru_cache(maxsize=16)
def exchange(
    form: Form,
    bins: int,
    reveals: bool,
    told: bool,
    noised: bool,
    whole: tuple[bool, bool],
    *,
    trained: int,
    batch: int,
    steps: int,
    epochs: int,
    tested: int,
) -> PairCost:
    """What a whole training takes.

    Args:
        form: of the model.
        bins, reveals, told, noised: as of the plan.
        whole: which parties own every row.
        trained, tested: rows, whole blocks; those held out are 0 where rows trained on are measured on.
        batch: rows of a step, whole blocks.
        steps: how many in an epoch.
        epochs: how many.
    """
    size = block_rows(batch, max(form.widths))
    measured = tested or trained

    def count(batch: int, measured: int, steps: int = 1) -> PairCounter:
        what = form, bins, reveals, told, noised, whole
        return _count(*what, size=size, batch=batch, measured=measured, steps=steps)

    def run(batch: int, measured: int) -> tuple[PhaseCost, PhaseCost, int]:
        counter = count(batch, measured)
        return PhaseCost.from_cost(counter.cost), PhaseCost.from_cost(counter.ahead), max(counter.kept.values(), default=0)

    nothing = run(0, 0)
    of_step = _piecewise(lambda rows: run(rows, 0), nothing, batch, ROWS_AT_ONCE, size)
    of_measuring = (
        _piecewise(lambda rows: run(0, rows), nothing, measured, LARGEST_BLOCK, size) if bins else (PhaseCost(), PhaseCost(), 0)
    )
    online = nothing[0].add(of_step[0], steps * epochs).add(of_measuring[0])
    offline = nothing[1].add(_ahead(count, nothing[1], of_step[1], batch, steps), epochs).add(of_measuring[1])
    setup = _count_setup(form.widths, size, (trained + tested) // size)
    return PairCost(setup, offline, online, of_step[2])


def check_flood(form: Form, *, trained: int, batch: int, steps: int, tested: int) -> float:
    """log2 of how far the noise of all answers of a job is at most from noise that tells nothing; by public numbers.

    Args as :func:`exchange`.

    Raises:
        UsageError: it is more than the limit (``E_JOB``).
    """
    columns = max(form.widths)
    rows = steps * batch + tested
    forward = log2_distance(LINEAR, columns, rows * form.outputs)
    back = log2_distance(LINEAR, batch, steps * columns * form.outputs)
    parts = [forward, back]
    if tested:
        parts.append(log2_distance(MONOMIALS, LARGEST_BLOCK, N * tested))
    if form.loss in ("exact", "robust"):
        parts.append(log2_distance(SLOTS, slot_terms(2 * OUTPUT_TERMS), 2 * rows * form.outputs + N * steps))
    distance = math.log2(sum(2.0**part for part in parts))
    if distance > LIMIT:
        raise UsageError(
            f"{steps:,} steps over {batch:,} rows are more than the noise of answers hides without a coordinator: it would be "
            f"2^{distance:.1f} from noise that tells nothing, and 2^{LIMIT:.0f} is allowed",
            code="E_JOB",
            hint="train fewer epochs, or say train.randomness: coordinator",
        )
    return distance


def _ahead(count: Any, nothing: PhaseCost, of_step: PhaseCost, batch: int, steps: int) -> PhaseCost:
    """What is made ahead for an epoch of ``steps``, some of them together."""
    together = count(min(batch, ROWS_AT_ONCE), 0).together
    if together == 1 or not steps:
        return PhaseCost().add(of_step, steps)
    full, rest = divmod(steps, together)
    total = PhaseCost()
    for sections, times in ((together, full), (rest, 1)):
        if sections and times:
            total = total.add(PhaseCost.from_cost(count(batch, 0, sections).ahead).add(nothing, -1), times)
    return total


def _piecewise(run: Any, nothing: Any, rows: int, piece: int, size: int) -> tuple[PhaseCost, PhaseCost, int]:
    """What ``rows`` take beyond nothing: full pieces take the same each."""
    if not rows:
        return PhaseCost(), PhaseCost(), 0
    full, rest = divmod(rows, piece)
    if not full or (full == 1 and not rest):
        found = run(rows)
        return found[0].add(nothing[0], -1), found[1].add(nothing[1], -1), found[2]
    one, two = run(piece), run(2 * piece)
    each = [two[at].add(one[at], -1) for at in (0, 1)]
    begun = run(piece + rest) if rest else one
    online, offline = (begun[at].add(nothing[at], -1).add(each[at], full - 1) for at in (0, 1))
    return online, offline, begun[2] + (two[2] - one[2]) * (full - 1)


def _count_setup(widths: tuple[int, ...], size: int, blocks: int) -> PhaseCost:
    def run(blocks: int) -> PhaseCost:
        counter = PairCounter()

        async def setup() -> None:
            await swap_keys(counter, None)
            if blocks:
                await swap_columns(counter, None, describe_columns(DEALER, None, blocks * size, widths, size, FRACTION))

        _finish(setup())
        return PhaseCost.from_cost(counter.cost)

    together = blocks_together([Tiles(blocks * size, width, size) for width in widths])
    full, rest = divmod(blocks, together)
    keys = run(0)
    return keys.add(run(together).add(keys, -1), full).add(run(rest).add(keys, -1))


def _count(
    form: Form,
    bins: int,
    reveals: bool,
    told: bool,
    noised: bool,
    whole: tuple[bool, bool],
    *,
    size: int,
    batch: int,
    measured: int,
    steps: int = 1,
) -> PairCounter:
    """A training of an epoch with ``steps`` over ``batch`` rows each, if these are not 0, and measuring on so many."""
    rows = max(batch * steps, measured, size)
    layout = BlockLayout(np.arange(rows), rows, np.arange(measured), size)
    plan = HiddenPlan(
        form=form,
        rows=rows,
        schedule=Schedule(bytes(32), rows, 0),
        training=np.arange(batch * steps),
        testing=np.arange(measured),
        descent=Descent(1 if batch else 0, momentum=0.5, rate=0.5, deviation=1.0 if noised else None),
        batch_rows=batch or size,
        divisor=1.0,
        weight_decay=0.5,
        bins=bins or 256,
        reveals=reveals,
        metric_noise=MetricNoise(1.0, outputs=form.outputs, numbers=form.numbers),
        told=told,
        layout=replace(layout, trained=batch * steps) if batch else layout,
    )
    columns = [
        BlockMatrix(owner, None, FRACTION, Tiles(rows, width, size), tuple(range(rows // size)))
        for owner, width in enumerate(form.widths)
    ]
    bits = OwnBits(None, rows, whole)

    async def program(machine: ShareMachine) -> None:
        await compute(machine, plan, None, None, 0, _skip, PairKit(), Held(columns, bits, bits))

    return _finish(count_program(program))


async def _skip(epoch: int, parts: WeightShares) -> None:
    pass


def _finish(running: Coroutine[Any, Any, Any]) -> Any:
    """The result of what waits for nobody."""
    try:
        running.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("who counts waits for nobody")
