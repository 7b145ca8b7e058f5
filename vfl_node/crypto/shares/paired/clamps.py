"""Secret numbers of two parties brought into a range, so that a histogram has a bin for each.

A number is below a bound if the top bit of their difference is set. That bit of a sum of two shares is the exclusive or of
both top bits and of the carry into them ::

    c ← a·p ⊕ (a ⊕ p)·c          bit by bit, where a and p are the bits of both shares at a place

a, p and a part of c are each one party's own. So each place takes two random transfers, and one round. Places of less than
:data:`UNIT` are left out: whether a number that near to a bound is beyond it is decided by a coin.

Source: ours, from known parts: Goldreich, Micali and Wigderson 1987 (bits), Gilboa 1999 (products by transfers).
"""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER
from vfl_node.crypto.shares.paired.operations import choose
from vfl_node.crypto.shares.paired.tools import nothing
from vfl_node.crypto.shares.ring import BITS, Ring
from vfl_node.crypto.shares.values import Shared

UNIT_BITS = 3
UNIT = 2.0**-UNIT_BITS
"""How near to a bound a coin decides."""

_ONE = np.uint64(1)


async def clamp(machine: ShareMachine, values: Shared, least: float, most: float) -> Shared:
    """Numbers, [n, K]; those below ``least`` are that, and those from ``most`` on are that. 23 rounds of scores.

    Args:
        machine: of whoever runs it.
        values: with more than :data:`UNIT_BITS` fractional bits, and in size below half of the whole ring less a bound's.
        least, most: multiples of :data:`UNIT`.
    """
    shape, unit = values.shape, 2.0**values.fraction
    bounds = [np.uint64(round(bound * unit) % (1 << BITS)) for bound in (least, most)]
    first = machine.place == 0
    apart = np.stack([values.part - bound if first else values.part for bound in bounds])
    below = await _find_negative(machine, apart >> np.uint64(values.fraction - UNIT_BITS), BITS - values.fraction + UNIT_BITS)
    one = below.copy()
    one[1] ^= np.uint64(first)  # from the second bound on, not below it
    moved = await _multiply_bits(machine, one, np.uint64(0) - apart)
    if machine.place == DEALER:
        return Shared(nothing(shape), values.fraction)
    return Shared(values.part + moved.sum(axis=0, dtype=np.uint64), values.fraction)


async def _find_negative(machine: ShareMachine, parts: Ring, width: int) -> Ring:
    """Parts of the top bit of a sum modulo 2^width, added without carries; ``parts`` are a party's shares of it."""
    carry = np.zeros(parts.shape, np.uint64)
    for place in range(width - 1):
        own = (parts >> np.uint64(place)) & _ONE
        numbers = own ^ carry if machine.place else carry  # a·(p ⊕ c₁), p·c₀
        made = await machine.run(*(choose(receiver, own, numbers, parts.shape, 1) for receiver in (0, 1)))
        carry = (own & carry) ^ ((made[0] ^ made[1]) & _ONE)
    return (parts >> np.uint64(width - 1)) & _ONE ^ carry


async def _multiply_bits(machine: ShareMachine, bits: Ring, numbers: Ring) -> Ring:
    """Shares of b·x, of bits in parts that are added without carries, and numbers in shares. One round.

    With b = b₀ ⊕ b₁ and x = x₀ + x₁: (b₀ ⊕ b₁)·x_j = b_j·x_j + b_i·(1 − 2b_j)·x_j, where i is the other party.
    """
    signed = numbers * (_ONE - np.uint64(2) * bits)
    made = await machine.run(*(choose(receiver, bits, signed, bits.shape) for receiver in (0, 1)))
    return np.asarray(bits * numbers + made[0] + made[1])
