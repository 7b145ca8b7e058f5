"""What a dealer helps to have before the first step, and sections of a training that are checked instead of used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vfl_node.crypto.shares.machine import Counter, ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value
from vfl_node.crypto.shares.ring import BYTES, FRACTION, WEIGHT_FRACTION, Ring
from vfl_node.crypto.shares.values import KnownToOne, Shared
from vfl_node.training.hidden.brought import HiddenPlan, Own, Positions
from vfl_node.training.hidden.memory import CANDIDATES
from vfl_node.training.hidden.network import SharedModel, step

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


async def hold(machine: ShareMachine, plan: HiddenPlan, own: Own | None) -> Held:
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
        if not (plan.audits and await check_section(machine, blank)):
            made = await multiply(bits, own, machine)
    return made


async def blank_step(plan: HiddenPlan, columns: Sequence[KnownToOne], rows: Positions, machine: ShareMachine) -> None:
    """A step with nobody's values, as the dealer runs it."""
    nothing = tuple(Shared(np.zeros(shape, np.uint64), WEIGHT_FRACTION) for shape in plan.form.shapes)
    model = SharedModel(plan.form, nothing, nothing, nothing)
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


async def check_section(machine: ShareMachine, blank: Blank) -> bool:
    """Whether a section is checked instead of used; then it has been."""
    auditor = await machine.auditor(await _count_dealt(machine, blank))
    if auditor:
        await blank(auditor)
    return auditor is not None
