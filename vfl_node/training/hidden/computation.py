"""The whole training in shares, as every data party and the dealer run it.

::

    columns            each party's columns and ownership bits under masks, once
    both k             w, the product of all bits, in shares; with an audit there are several, and one is used
    both               w under a mask
    epoch e block k    a step, over all rows trained on, or without a bound over a batch of the public schedule; with an audit
                       some are checked instead
    measure            a histogram of scores by label on the rows held out; only sums with noise are opened
    reveal             each party's part of the weights to it, if the job says so

Each line is a section (:class:`vfl_node.crypto.shares.machine.ShareMachine`), so a restarted party goes on at an epoch: its
columns go once more over the wire, under the same masks, since they are the same.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import Counter, ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, reveal
from vfl_node.crypto.shares.ring import BYTES, FRACTION, WEIGHT_FRACTION, Ring, decode
from vfl_node.crypto.shares.values import KnownToOne, Shared
from vfl_node.process import failpoints
from vfl_node.training.hidden.bound import row_norm
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.layout import BlockLayout
from vfl_node.training.hidden.memory import CANDIDATES, ROWS_AT_ONCE
from vfl_node.training.hidden.network import MANTISSA_BITS, Form, SharedModel, scores, step
from vfl_node.training.hidden.rates import Rates
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.measuring import OutputTally, tally
from vfl_node.training.shares.metric_noise import MetricNoise

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class HiddenPlan:
    """What everybody knows of a training, the dealer too.

    Attributes:
        form: of the model.
        rows: length of the shared order, m.
        schedule: of batches.
        training: positions trained on.
        testing: positions measured on; none if nothing is measured.
        descent: how many epochs, how fast, and with how much noise.
        batch_rows: shared rows of a step.
        divisor: of a sum over these: how many of them all parties own, about.
        weight_decay: λ.
        bins: of the histogram.
        reveals: whether weights are opened to their owners.
        metric_noise: of the sums that metrics are made of; None where nothing is measured.
        threshold: probability from which on label 1 is predicted.
        told: whether passive parties get the metrics, too.
        audits: whether some of what the dealer deals is checked.
        at_once: as :func:`~vfl_node.training.hidden.network.step`.
        layout: of rows in blocks, where there is no dealer: ``training`` and ``testing`` are positions in it.
    """

    form: Form
    rows: int
    schedule: Schedule
    training: Positions
    testing: Positions
    descent: Descent
    batch_rows: int
    divisor: float
    weight_decay: float
    bins: int
    reveals: bool
    metric_noise: MetricNoise | None = None
    threshold: float = 0.5
    told: bool = False
    audits: bool = False
    at_once: int = ROWS_AT_ONCE
    layout: BlockLayout | None = None

    @property
    def epochs(self) -> int:
        """How many: with noise each is a step."""
        return self.descent.steps

    def batches(self, epoch: int) -> list[Positions]:
        """Those of an epoch, all of one size; the rows left over wait for the next. With noise there is one, of all rows."""
        if self.layout:
            return self.layout.batches(self.schedule, epoch, self.batch_rows)
        if self.batch_rows == len(self.training):
            failpoints.reach("batches")
            return [self.training]
        batches = self.schedule.batches(0, epoch, self.training, self.batch_rows)
        return [batch for batch in batches if len(batch) == self.batch_rows]

    @property
    def length(self) -> int:
        """How many rows there are in the order that is computed in."""
        return len(self.layout) if self.layout else self.rows

    @property
    def records(self) -> float:
        """How many of the rows trained on all parties own, about."""
        return len(self.training) * self.divisor / self.batch_rows

    @property
    def noise_of_weight(self) -> float | None:
        """Standard deviation that noise gives a weight."""
        noise = self.descent.noise
        return None if noise is None else noise / row_norm(len(self.form.widths))

    @property
    def rates(self) -> Rates:
        """The rates of every step."""
        bits = MANTISSA_BITS[self.form.loss]
        return Rates.from_rate(self.descent.rate, self.divisor, self.descent.momentum, self.weight_decay, bits)


@dataclass(frozen=True, eq=False)
class Own:
    """What one party brings.

    Attributes:
        columns: uint64[m, d], 0 where a row is not its own.
        bits: uint64[m, 1], 1 where it is.
        targets: uint64[m, K] with 2·:data:`FRACTION` fractional bits at the active party, 0 where a row is not its own; zeros
            at others.
    """

    columns: Ring
    bits: Ring
    targets: Ring

    def lay_out(self, layout: BlockLayout) -> Own:
        """The same in blocks."""
        return Own(layout.lay_out(self.columns), layout.lay_out(self.bits), layout.lay_out(self.targets))


@dataclass(frozen=True, eq=False)
class WeightShares:
    """A party's shares of all weights and velocities: what a checkpoint has.

    Attributes:
        weights: in the order of the form's shapes.
        velocity: of each.
        origin: what weights began with, which no checkpoint has; empty: what they are.
    """

    weights: tuple[Ring, ...]
    velocity: tuple[Ring, ...]
    origin: tuple[Ring, ...] = ()


@dataclass(frozen=True)
class HiddenOutcome:
    """What a party has at the end.

    Attributes:
        parts: its shares.
        weights: float64, in the order of the form: those revealed to it; zeros elsewhere, empty if none are.
        tallies: of each output; empty at a party that is not told.
    """

    parts: WeightShares
    weights: tuple[NDArray[np.float64], ...]
    tallies: tuple[OutputTally, ...]

    @property
    def measured(self) -> int | None:
        """On how many rows the metrics are, with noise; None at a party that is not told."""
        return self.tallies[0].rows if self.tallies else None


Blank = Callable[[ShareMachine], Awaitable[object]]
"""The program of a section that may be checked, with nobody's values."""


def candidates(*, audits: bool) -> list[str]:
    """Sections that make w, of which one is used."""
    return [f"both {number}" for number in range(CANDIDATES if audits else 1)]


def block(epoch: int, number: int) -> str:
    """The section of a step."""
    return f"epoch {epoch} block {number}"


def purpose(section: str) -> str:
    """What a section that may be checked is for, in words."""
    words = section.split()
    return f"step {int(words[3]) + 1} of epoch {int(words[1]) + 1}" if len(words) == 4 else "the bits of who is shared"


After = Callable[[int, WeightShares], Awaitable[None]]
"""What happens after an epoch, counted from 0."""


@dataclass(frozen=True)
class Held:
    """What is there before the first step.

    Attributes:
        columns: of each party, as the kit has them.
        owned: which rows all parties own, for a step.
        measured: likewise, for measuring.
    """

    columns: Sequence[Any]
    owned: Any
    measured: Any


async def compute(
    machine: ShareMachine,
    plan: HiddenPlan,
    own: Own | None,
    start: WeightShares | None,
    first: int,
    after: After,
    kit: Kit = DEALT,
    held: Held | None = None,
) -> HiddenOutcome:
    """The training.

    Args:
        machine: of whoever runs it.
        plan: the same for everybody.
        own: this party's; None at the dealer.
        start: this party's shares before epoch ``first``; None at the dealer.
        first: epoch to begin with.
        after: called after each epoch.
        kit: whose randomness it is.
        held: what is there already; None: a dealer helps to make it.
    """
    form, place, rates = plan.form, machine.place, plan.rates
    held = held or await _hold(machine, plan, own)
    targets = own.targets if own else np.zeros((plan.length, form.outputs), np.uint64)

    nothing = tuple(np.zeros(shape, np.uint64) for shape in form.shapes)
    model = _model(form, start or WeightShares(nothing, nothing))
    labels, noise = Shared(targets, 2 * FRACTION), (plan.descent.deviation, plan.at_once, kit)
    for epoch in range(first, plan.epochs):
        for number, batch in enumerate(plan.batches(epoch)):
            machine.begin(block(epoch, number))
            if plan.audits and await _check_section(machine, partial(_blank_step, plan, held.columns, batch)):
                continue
            model = await step(machine, model, held.columns, labels, held.owned, batch, rates, *noise)
        await after(epoch, _parts(model))

    machine.begin("measure")
    tallies: list[OutputTally] = []
    if len(plan.testing):
        assert plan.metric_noise is not None
        to = None if plan.told else 0
        tested = targets[plan.testing].view(np.int64) >> np.int64(FRACTION if plan.metric_noise.numbers else 2 * FRACTION)
        columns = [matrix[plan.testing] for matrix in held.columns]

        async def score(rows: slice) -> Shared:
            return await scores(machine, model, [matrix[rows] for matrix in columns], kit)

        tallies = await tally(
            machine,
            score,
            tested.view(np.uint64),
            held.measured[plan.testing],
            plan.metric_noise,
            far_score=Hidden.far_scores[0],
            bins=plan.bins,
            threshold=plan.threshold,
            to=to,
            kit=kit,
        )
        if to not in (None, place):
            tallies = []
    machine.begin("reveal")
    weights = tuple(await _reveal_weights(machine, model)) if plan.reveals else ()
    return HiddenOutcome(_parts(model), weights, tuple(tallies))


async def _hold(machine: ShareMachine, plan: HiddenPlan, own: Own | None) -> Held:
    """Columns and ownership bits under masks, and w, the product of all bits."""
    form, place = plan.form, machine.place
    machine.begin("columns")
    matrices = await machine.run(
        *(
            mask_known(owner, (plan.rows, width), FRACTION, own.columns if own and place == owner else None, keeps=plan.audits)
            for owner, width in enumerate(form.widths)
        )
    )
    bits = await machine.run(
        *(
            mask_known(owner, (plan.rows, 1), 0, own.bits if own and place == owner else None, keeps=plan.audits)
            for owner in range(1, machine.parties)
        )
    )
    both = await _multiply_bits(machine, plan, bits, own.bits if own and place == 0 else np.zeros((plan.rows, 1), np.uint64))
    machine.begin("both")
    (opened,) = await machine.run(mask_value(both))
    return Held(matrices, both if plan.audits else opened, opened)


async def _multiply_bits(machine: ShareMachine, plan: HiddenPlan, bits: Sequence[KnownToOne], first: Ring) -> Shared:
    """w in shares: the product of all ``bits`` and of the active party's."""

    async def multiply(bits: Sequence[KnownToOne], both: Shared, machine: ShareMachine) -> Shared:
        for bit in bits:
            (both,) = await machine.run(known_product(bit, both, "numbers"))
        return both

    made = own = Shared(first, 0)
    blank = partial(multiply, [bit.as_dealt for bit in bits], Shared(np.zeros_like(first), 0))
    if plan.audits:
        await machine.gather(CANDIDATES * await _count_dealt(machine, blank))
    for section in candidates(audits=plan.audits):
        machine.begin(section)
        if not (plan.audits and await _check_section(machine, blank)):
            made = await multiply(bits, own, machine)
    return made


async def _blank_step(plan: HiddenPlan, columns: Sequence[KnownToOne], rows: Positions, machine: ShareMachine) -> None:
    """A step with nobody's values, as the dealer runs it."""
    nothing = tuple(np.zeros(shape, np.uint64) for shape in plan.form.shapes)
    model = _model(plan.form, WeightShares(nothing, nothing))
    dealt = [matrix[rows].as_dealt for matrix in columns]
    targets = Shared(np.zeros((len(rows), plan.form.outputs), np.uint64), 2 * FRACTION)
    both, every = Shared(np.zeros((len(rows), 1), np.uint64), 0), np.arange(len(rows))
    await step(machine, model, dealt, targets, both, every, plan.rates, plan.descent.deviation, plan.at_once)


async def _count_dealt(machine: ShareMachine, blank: Blank) -> int:
    """How many numbers a party is dealt in a section; 0 at the dealer."""
    counter = Counter(machine.parties)
    counter.begin(machine.section)
    if machine.place >= 0:
        await blank(counter)
    return counter.cost.dealt.get(machine.place, 0) // BYTES


async def _check_section(machine: ShareMachine, blank: Blank) -> bool:
    """Whether a section is checked instead of used; then it has been."""
    auditor = await machine.auditor(await _count_dealt(machine, blank))
    if auditor:
        await blank(auditor)
    return auditor is not None


async def _reveal_weights(machine: ShareMachine, model: SharedModel) -> list[NDArray[np.float64]]:
    """Each party's block of the first layer to it, the rest to the active party."""
    parties = machine.parties
    opened = await machine.run(*(reveal(weight, at if at < parties else 0) for at, weight in enumerate(model.weights)))
    return [decode(weight, WEIGHT_FRACTION) for weight in opened]


def _model(form: Form, parts: WeightShares) -> SharedModel:
    each = parts.weights, parts.velocity, parts.origin or parts.weights
    return SharedModel(form, *(tuple(Shared(part, WEIGHT_FRACTION) for part in numbers) for numbers in each))


def _parts(model: SharedModel) -> WeightShares:
    return WeightShares(*(tuple(value.part for value in each) for each in (model.weights, model.velocity, model.origin)))
