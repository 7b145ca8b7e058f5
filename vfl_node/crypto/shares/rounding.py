"""Numbers that are rounded exactly before they are opened.

A truncation (:func:`~vfl_node.crypto.shares.operations.truncate`) rounds by coins that those who see the masked value know, and
other coins come each time: of a number that is opened several times they would tell more digits. Here no coin is thrown. With
c = x + r of which only the low bits are opened ::

    x >> F  =  (c >> F) − (r >> F) − [c mod 2^F < r mod 2^F]        modulo 2^kept

Source: ours; the comparison is that of :mod:`vfl_node.crypto.shares.steps`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Material, Operation
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.steps import deal_steps, find_at_most, lift
from vfl_node.crypto.shares.values import Opened, Shared


async def round_off(machine: ShareMachine, value: Shared, kept: int) -> Shared:
    """The integers nearest to numbers, halves up, modulo 2^``kept``: of the result only so many low bits count. Three rounds.

    From the dealer: 208 bytes and 83 bits for each number.

    Args:
        machine: of whoever runs it.
        value: [N], with 1 to 48 fractional bits, and at most 64 with ``kept``.
        kept: bits of an integer.
    """
    bits = value.fraction
    half = np.uint64(1 << (bits - 1)) if machine.place == 0 else np.uint64(0)
    (opened,) = await machine.run(mask_value(Shared(value.part + half, bits), bits + kept))
    table, high = await machine.run(deal_steps(opened, bits), _deal_high(opened, bits))
    low = opened.difference & np.uint64((1 << bits) - 1)
    reached, _ = await find_at_most(machine, table, low.reshape(-1, 1))
    fits = (await lift(machine, reached)).share(machine.place).part.reshape(value.shape)  # 1 where nothing is borrowed
    part = fits - high
    return Shared(part + (opened.difference >> np.uint64(bits)) - np.uint64(1) if machine.place == 0 else part, 0)


def _deal_high(opened: Opened, bits: int) -> Operation[Ring]:
    """What was added to numbers before they were opened, without its low ``bits``."""
    shape = opened.mask.shape

    def correlate(values: Material) -> Material:
        return {"high": opened.blinding >> np.uint64(bits)}

    def result(place: int, shown: Sequence[Ring], material: Material) -> Ring:
        return np.zeros(shape, np.uint64) if place == DEALER else material["high"]

    return Operation(result, dealt={"high": shape}, correlated=correlate)


def read_signed(numbers: Ring, bits: int) -> NDArray[np.int64]:
    """Integers from −2^(bits − 1) to 2^(bits − 1) of their low ``bits``."""
    half = np.int64(1 << (bits - 1))
    return ((numbers.view(np.int64) + half) & np.int64((1 << bits) - 1)) - half
