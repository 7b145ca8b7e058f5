"""Noise in shares that only the dealer could compute.

Each party draws a share of a seed from masks that the dealer knows, too. The dealer alone has the sum, makes the noise of it,
and deals that in shares. So no party knows the noise, nor do all but one of them together. The same place gives the same noise,
so a restart averages nothing, and another context gives other noise. An audited section shows it: whoever has all seeds of the
section makes the same noise.

Source: ours; the distribution is that of :mod:`vfl_node.crypto.discrete_gaussian`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from math import prod

import numpy as np

from vfl_node.crypto.discrete_gaussian import DiscreteGaussian
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Operation, Shape
from vfl_node.crypto.shares.ring import BITS, Ring
from vfl_node.crypto.shares.values import Shared

_SEED_WORDS = 4


def variance_of(deviation: float, fraction: int) -> int:
    """σ² of the integers that stand for numbers with a standard deviation and fractional bits; 1 at least, rounded up."""
    numerator, denominator = deviation.as_integer_ratio()
    return max(1, -(-((numerator << fraction) ** 2) // denominator**2))


def draw_noise(
    shape: Shape, deviation: float | Sequence[float], fraction: int, secret: Randomness | None = None
) -> Operation[Shared]:
    """Independent discrete Gaussian numbers, which nobody knows.

    Args:
        shape: of them.
        deviation: σ, or that of each column, public; the same floats on all machines.
        fraction: fractional bits of the numbers.
        secret: of the dealer, of which the noise is drawn instead of the seed, so that it is the same under other masks; None
            elsewhere, and where there is none. Nothing of it is consumed.

    Opens nothing and takes no round; the dealer sends 8 bytes a number.
    """
    deviations = [deviation] if isinstance(deviation, float) else deviation
    variances = [variance_of(each, fraction) for each in deviations]

    def correlate(values: Material) -> Material:
        randomness = secret.derive("noise") if secret else Randomness(values["seed"].astype("<u8").tobytes())
        drawn = cycle([DiscreteGaussian(randomness, variance) for variance in variances])
        noise: Ring = np.array([number.draw() % (1 << BITS) for number in islice(drawn, prod(shape))], np.uint64)
        return {"noise": noise.reshape(shape)}

    def result(place: int, opened: object, material: Material) -> Shared:
        return Shared(np.zeros(shape, np.uint64) if place == DEALER else material["noise"], fraction)

    return Operation(result, drawn=(Drawn("seed", (_SEED_WORDS,)),), dealt={"noise": shape}, correlated=correlate)
