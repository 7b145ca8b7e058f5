"""The noise of a given power that makes two classes' gradients as alike as can be: Marvell's minimum.

Both classes are taken as normal around their means, Δ apart: of variance u1 and v1 along Δ, u2 and v2 in each of the n
directions across it (u of negatives, v of positives). Noise adds λ1 along Δ and λ2 in each direction across. Twice the sum of
both Kullback-Leibler divergences, but for constants, is

    n·(a/b + b/a) + (A + ‖Δ‖²)/B + (B + ‖Δ‖²)/A,   a = λ2⁰ + u2, b = λ2¹ + v2, A = λ1⁰ + u1, B = λ1¹ + v1

and noise costs  p·(λ1¹ + n·λ2¹) + (1−p)·(λ1⁰ + n·λ2⁰) ≤ P  with 0 ≤ λ2 ≤ λ1 for each class.

All power is used, and across Δ only the class of less variance gets noise. So two numbers are left, the share of the power that
goes across, and the share of the rest that goes to the positives. They are searched on a grid that closes in on the minimum.

Source: Li et al. 2022 (ICLR), section 5, theorem 2 and appendix; there u1 = u2 and v1 = v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POINTS = 33
"""Of the grid in each of both directions."""

ROUNDS = 7
"""How often the grid closes in, each time on an eighth of it: to about a millionth."""


@dataclass(frozen=True)
class Classes:
    """What the noise depends on, of one batch.

    Attributes:
        positive: p, the share of positives, between 0 and 1.
        gap: ‖Δ‖².
        along: (u1, v1), variances of negatives and positives along Δ.
        across: (u2, v2), in each direction across Δ.
        directions: n, how many there are across Δ.
    """

    positive: float
    gap: float
    along: tuple[float, float]
    across: tuple[float, float]
    directions: int


@dataclass(frozen=True)
class Variances:
    """Of the noise: (negatives, positives) each.

    Attributes:
        along: λ1⁰ and λ1¹, along Δ.
        across: λ2⁰ and λ2¹, in each direction across it.
    """

    along: tuple[float, float]
    across: tuple[float, float]


def solve(classes: Classes, power: float) -> Variances:
    """The best noise of mean ``power``, P > 0. Costs 7 grids of 33 × 33 points, about two milliseconds."""
    low, width = np.zeros(2), 1.0
    for _ in range(ROUNDS):
        grid = np.linspace(0, 1, POINTS) * width
        shares = np.meshgrid(np.clip(low[0] + grid, 0, 1), np.clip(low[1] + grid, 0, 1), indexing="ij")
        values = divergence(classes, *_variances(classes, power, *shares))
        best = np.unravel_index(int(np.argmin(values)), values.shape)
        width /= 8
        low = np.clip([share[best] - width / 2 for share in shares], 0, 1 - width)
    along, across = _variances(classes, power, *(share[best] for share in shares))
    return Variances((float(along[0]), float(along[1])), (float(across[0]), float(across[1])))


def divergence(
    classes: Classes, along: Sequence[NDArray[np.float64] | float], across: Sequence[NDArray[np.float64] | float]
) -> NDArray[np.float64]:
    """KL of the classes both ways together, with noise of these variances; infinite where a class has no variance at all."""
    n, gap = classes.directions, classes.gap
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.asarray(noise + own) for noise, own in zip(across, classes.across, strict=True))
        both = np.where((a == 0) & (b == 0), 2.0, a / b + b / a)  # neither has any: they are alike
        negative, positive = (np.asarray(noise + own) for noise, own in zip(along, classes.along, strict=True))
        value = (n * both + (negative + gap) / positive + (positive + gap) / negative) / 2 - n - 1
    return np.nan_to_num(np.asarray(value, dtype=np.float64), nan=np.inf, posinf=np.inf)


def cost(classes: Classes, noise: Variances) -> float:
    """The mean power of noise of these variances."""
    shares = (1 - classes.positive, classes.positive)
    each = (along + classes.directions * across for along, across in zip(noise.along, noise.across, strict=True))
    return sum(share * of for share, of in zip(shares, each, strict=True))


def _variances(
    classes: Classes, power: float, to_across: NDArray[np.float64], to_positives: NDArray[np.float64]
) -> tuple[tuple[NDArray[np.float64], ...], tuple[NDArray[np.float64], ...]]:
    """λ1 and λ2 of both classes where these shares of ``power`` go across Δ, and of what is left along it to positives."""
    p, (u, v), n = classes.positive, classes.across, classes.directions
    less = p if v < u else 1 - p  # the share of the class that has less variance
    most = power / (less * (n + 1))  # along Δ there is at least as much as across
    across = np.minimum(to_across * most, abs(u - v)) if n else np.zeros_like(to_across)
    rest = power - across * less * (n + 1)
    two = (across * (u < v), across * (v < u))
    one = (two[0] + (1 - to_positives) * rest / (1 - p), two[1] + to_positives * rest / p)
    return one, two
