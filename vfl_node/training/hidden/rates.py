"""The step of gradient descent as integers.

::

    v ← μ·v + c·G + η·λ·(W − W₀)        W ← W − v        c = η / divisor

W₀ is what weights begin with. G is a sum over a batch with 2·18 fractional bits. c may be 10⁻⁵, and a fixed-point c would have
few significant bits. So c = mantissa · 2^−exponent with 1 ≤ mantissa < 2: residuals are multiplied by the mantissa while they
have bits to spare, and G counts as a number with ``exponent`` more fractional bits. Velocity and gradient are then cut
together, once; μ and η·λ have as many fractional bits as are cut, and at least :data:`LEAST_BITS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION
from vfl_node.errors import UsageError

MOST_EXPONENT = 20
"""A smaller c loses significant bits: beyond this a velocity, up to ±64, would leave its range before it is cut."""

LEAST_BITS = 26
"""Fewest fractional bits of μ and η·λ: a weight decay of 10⁻⁵ in a step is then off by less than a thousandth of itself."""

LEAST_MANTISSA = 1 << 10
"""A smaller one is off by more than a tenth of a percent, and so is the residual that is cut after it. That is more than a
bound has room for (:data:`vfl_node.training.hidden.bound.MARGIN`)."""


@dataclass(frozen=True)
class Rates:
    """Public factors of a step.

    Attributes:
        mantissa: integer by which residuals are multiplied.
        bits: its fractional bits.
        exponent: how many more fractional bits a gradient has.
        momentum: μ as an integer with :attr:`velocity_bits` fractional bits.
        decay: η·λ, likewise.
    """

    mantissa: int
    bits: int
    exponent: int
    momentum: int
    decay: int

    @classmethod
    def from_rate(cls, rate: float, divisor: float, momentum: float, weight_decay: float, bits: int) -> Rates:
        """Those of a learning rate η and a ``divisor`` of sums, with a mantissa of ``bits`` fractional bits.

        Raises:
            UsageError: the rate of one row is above 1, or so small that it would be rounded to a few bits; η·λ is 1 or more, or
                rounded by more than a percent; μ is rounded to 1 (``E_JOB``).
        """
        factor = rate / divisor
        exponent = min(max(1 - math.frexp(factor)[1], 0), MOST_EXPONENT)
        velocity_bits = _velocity_bits(exponent)
        mantissa = round(factor * 2.0**exponent * 2**bits)
        if factor > 1 or mantissa < LEAST_MANTISSA:
            what = "too large" if factor > 1 else "too small for fixed-point numbers"
            least = LEAST_MANTISSA * divisor / 2 ** (MOST_EXPONENT + bits)
            raise _refusal(
                f"train.learning_rate {rate:g} is {what} for batches of about {divisor:.0f} shared records",
                f"say a learning_rate of at least {least:.2g}; above 1 hardly any training ends well",
            )
        decay, kept = rate * weight_decay * 2**velocity_bits, round(momentum * 2**velocity_bits)
        if rate * weight_decay >= 1 or abs(round(decay) - decay) > decay / 100:
            raise _refusal(
                f"train.learning_rate times train.weight_decay is {rate * weight_decay:g}, which no fixed-point number is",
                f"say a weight_decay of 0, or between {100 / rate / 2**velocity_bits:.2g} and {1 / rate:.2g}",
            )
        if kept >= 2**velocity_bits:
            raise _refusal(f"train.momentum {momentum:.12g} is 1 in fixed-point numbers", "say a momentum of at most 0.9999")
        return cls(mantissa, bits, exponent, kept, round(decay))

    @property
    def velocity_bits(self) -> int:
        """Fractional bits of :attr:`momentum` and :attr:`decay`: so many are cut of what moves a weight."""
        return _velocity_bits(self.exponent)

    @property
    def factor(self) -> float:
        """c, as it is after rounding."""
        return self.mantissa / 2.0 ** (self.bits + self.exponent)


def _refusal(what: str, hint: str) -> UsageError:
    return UsageError(what, code="E_JOB", hint=hint, for_peer="the job's rates do not fit fixed-point numbers")


def _velocity_bits(exponent: int) -> int:
    return max(2 * FRACTION + exponent - WEIGHT_FRACTION, LEAST_BITS)
