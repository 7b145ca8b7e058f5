"""Figures that are in shares, rounded and opened to some parties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import reveal
from vfl_node.crypto.shares.rounding import read_signed, round_off
from vfl_node.crypto.shares.values import Shared

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """How figures are rounded: to 1/steps; a number of steps has so many bits, with its sign."""

    steps: int
    bits: int


async def tell(machine: ShareMachine, value: Shared, unit: Unit, receivers: NDArray[np.bool_]) -> Floats:
    """Round figures to the nearest step, and open each to some parties alone. Four rounds.

    Args:
        machine: of whoever runs it.
        value: [..., K].
        unit: of all of them.
        receivers: bool[parties, K].

    Returns:
        float64[..., K]; not a number where it is not this party's to know.
    """
    rounded = await round_off(machine, value.times(unit.steps), unit.bits)
    found = np.full(value.shape, np.nan)
    some = [place for place in range(machine.parties) if receivers[place].any()]
    opened = await machine.run(*(reveal(rounded[..., receivers[place]], place, unit.bits) for place in some))
    for place, numbers in zip(some, opened, strict=True):
        if place == machine.place:
            found[..., receivers[place]] = read_signed(numbers, unit.bits) / unit.steps
    return found
