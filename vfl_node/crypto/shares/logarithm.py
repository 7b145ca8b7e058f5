"""Logarithms and inverses of secret numbers over many octaves.

With the first guess σ of 1/v (:class:`~vfl_node.crypto.shares.functions.Guess`) v·σ = 1 + e, with |e| small, and ::

    ln v = −ln σ + ln(1 + e)        1/v = σ/(1 + e)

−ln σ is a sum of the same bits with other public weights. ln(1 + e) and 1/(1 + e) are polynomials in e of degree 4, whose
coefficients are pinned integers.

========================  ======================================  =======================================================
function                  rounds                                  from the dealer, for each number and T thresholds
========================  ======================================  =======================================================
:func:`normalise`         8                                       248 bytes, 8·T bytes and 83·(T + 1) bits
:func:`expand`            none                                    16 bytes, for any number of series
:func:`find_logarithm`    1 after :func:`normalise`               32 bytes
========================  ======================================  =======================================================

Source: ours, from known parts: Goldschmidt 1964 (a first guess), Beaver 1991.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfl_node.crypto.shares.functions import GUESS_FRACTION, Guess
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Material, Operation
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.steps import deal_steps, find_at_most, lift
from vfl_node.crypto.shares.values import Opened, Shared

REST_FRACTION = 20
"""Fractional bits of e and of its square."""

SERIES_FRACTION = 56
"""Fractional bits of what :func:`expand` finds."""

LOGARITHM_FRACTION = 18
"""Fractional bits of a logarithm."""

LOGARITHM = (54360517473, 68714957904, -34377617447, 22372, -15935)
"""ln(1 + e) ≈ Σ of these times 1, e, e₂, e·e₂ and e₂², where e₂ is e² cut to :data:`REST_FRACTION` bits: with
:data:`SERIES_FRACTION` bits together with those of their factors. The least largest error, 2.6e-6, over 2^(±0.2635) − 1: more
than a quarter of an octave, as the guess of 1/2^24 is rounded by .4 %."""

INVERSE = (72057196521559616, -68697966535, 68834343046, -68120, 62863)
"""1/(1 + e) likewise; the least largest relative error, 1.26e-5."""

CONSTANTS = (LOGARITHM, INVERSE, (REST_FRACTION, SERIES_FRACTION, LOGARITHM_FRACTION))
"""What values are made of, beside the thresholds and changes of the guess."""


@dataclass(frozen=True, eq=False)
class Normal:
    """Numbers v, each brought near 1.

    Attributes:
        guess: its thresholds.
        reached: [v ≥ θ_t] of each, [..., thresholds].
        sigma: σ, open under masks; 0 where v is below all thresholds.
        rest: e = v·σ − 1, open under masks.
        square: e₂, open under masks.
    """

    guess: Guess
    reached: Shared
    sigma: Opened
    rest: Opened
    square: Opened

    def weigh(self, weights: Sequence[int], fraction: int) -> Shared:
        """A public function of σ, as a sum of bits with such ``weights``; 0 where v is below all thresholds."""
        changes = np.array([weight % (1 << 64) for weight in weights], np.uint64)
        return Shared((self.reached.part * changes).sum(axis=-1, dtype=np.uint64), fraction)


def logarithm_weights(guess: Guess) -> tuple[int, ...]:
    """By which bits count in −ln σ; they belong to a program's constants, since all parties must have the same."""
    sigmas = np.cumsum(guess.changes).tolist()
    values = [round(-math.log(sigma / 2**GUESS_FRACTION) * 2**LOGARITHM_FRACTION) for sigma in sigmas]
    return tuple(value - before for before, value in zip([0, *values], values, strict=False))


async def normalise(machine: ShareMachine, guess: Guess, value: Shared) -> Normal:
    """Numbers below 2^47, [N], whose error of e is below 2^−:data:`REST_FRACTION` and 0 on average. Eight rounds."""
    (v,) = await machine.run(mask_value(value))
    (table,) = await machine.run(deal_steps(v))
    looked, _ = await find_at_most(machine, table, guess.looks(v))
    reached = guess.reach(v, await lift(machine, looked), machine.place)
    (sigma,) = await machine.run(mask_value(guess.add_up(reached)))
    (near,) = await machine.run(product(v, sigma, "numbers"))
    (near,) = await machine.run(truncate(near, near.fraction - REST_FRACTION))
    one = np.uint64(1 << REST_FRACTION) if machine.place == 0 else np.uint64(0)
    (rest,) = await machine.run(mask_value(Shared(near.part - one, REST_FRACTION)))
    (square,) = await machine.run(product(rest, rest, "numbers"))
    (square,) = await machine.run(truncate(square, REST_FRACTION))
    (opened,) = await machine.run(mask_value(square))
    return Normal(guess, reached, sigma, rest, opened)


def expand(normal: Normal, *series: Sequence[int]) -> Operation[list[Shared]]:
    """Series such as :data:`LOGARITHM` of each number, with :data:`SERIES_FRACTION` fractional bits, without a message."""
    e, s = normal.rest, normal.square
    shape = e.mask.shape

    def correlate(values: Material) -> Material:
        return {"es": e.mask * s.mask, "ss": s.mask * s.mask}

    def result(place: int, opened: Sequence[Ring], material: Material) -> list[Shared]:
        if place == DEALER:
            return [Shared(np.zeros(shape, np.uint64), SERIES_FRACTION) for _ in series]
        both = material["es"] + e.difference * s.mask + e.mask * s.difference
        twice = material["ss"] + np.uint64(2) * s.difference * s.mask
        if place == 0:
            both, twice = both + e.difference * s.difference, twice + s.difference * s.difference
        ones = np.full(shape, int(place == 0), np.uint64)
        powers = np.stack([ones, e.share(place).part, s.share(place).part, both, twice], axis=-1)
        found = (powers * np.array([a % (1 << 64) for a in each], np.uint64) for each in series)
        return [Shared(terms.sum(axis=-1, dtype=np.uint64), SERIES_FRACTION) for terms in found]

    return Operation(result, dealt=dict.fromkeys(("es", "ss"), shape), correlated=correlate)


async def find_logarithm(machine: ShareMachine, normal: Normal) -> Shared:
    """ln v of each number, [N], with :data:`LOGARITHM_FRACTION` fractional bits. One round.

    Errors: 1.1e-5 at most, 3e-6 of them from the series. Below all thresholds it is some number.
    """
    ((tail,),) = await machine.run(expand(normal, LOGARITHM))
    (tail,) = await machine.run(truncate(tail, SERIES_FRACTION - LOGARITHM_FRACTION))
    return tail + normal.weigh(logarithm_weights(normal.guess), LOGARITHM_FRACTION)
