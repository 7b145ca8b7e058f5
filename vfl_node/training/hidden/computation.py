"""The whole training in shares, as every data party runs it, and the dealer where there is one.

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

Where no dealer helps, the first three are not there: each party knows its own bits, and the other one has its columns as
ciphertexts (:mod:`vfl_node.crypto.shares.paired`).

Source: ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import reveal
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, decode
from vfl_node.crypto.shares.values import Shared
from vfl_node.process import failpoints
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.held import Held, blank_step, block, check_section, hold
from vfl_node.training.hidden.network import Form, SharedModel, scores, step
from vfl_node.training.shares.measuring import OutputTally, tally


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


After = Callable[[int, WeightShares], Awaitable[None]]
"""What happens after an epoch, counted from 0."""


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
        own: this party's; None at the dealer, and where nobody computes.
        start: this party's shares before epoch ``first``; None likewise.
        first: epoch to begin with.
        after: called after each epoch.
        kit: whose randomness it is.
        held: what is there already; None: a dealer helps to make it.
    """
    form, place, rates = plan.form, machine.place, plan.rates
    held = held or await hold(machine, plan, own)
    targets = own.targets if own else np.zeros((plan.length, form.outputs), np.uint64)

    nothing = tuple(np.zeros(shape, np.uint64) for shape in form.shapes)
    model = _model(form, start or WeightShares(nothing, nothing))
    labels, noise = Shared(targets, 2 * FRACTION), (plan.descent.deviation, plan.at_once, kit)
    for epoch in range(first, plan.epochs):
        if own and plan.layout:  # whoever looks ahead goes through none
            failpoints.reach("batches")
        for number, batch in enumerate(plan.batches(epoch)):
            machine.begin(block(epoch, number))
            if plan.audits and await check_section(machine, partial(blank_step, plan, held.columns, batch)):
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
