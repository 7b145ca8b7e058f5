"""Reading |I| off the first gradient, by where training started.

The strong party's gradient holds integers: its columns are integers n times a step, and the
residuals reach it as eᵢ = round(2ᶠ·dᵢ/|I|), so that Gⱼ = Σᵢ eᵢ·nᵢⱼ is exact. If the residuals
take few values, the integers nᵢⱼ add up behind each of them and give the values away:

* **all weights zero**: every residual is ±½, Gⱼ = E·Sⱼ with E = round(2ᶠ⁻¹/|I|), and the
  greatest common divisor of the columns is E, up to a small factor (:func:`sizes_from_integers`).
  Without the integers, real gradients do: 2k·gⱼ/stepⱼ is whole for all j at k = |I|
  (:func:`mismatch`). Weights that are only near zero leave small counts nearly whole;
* **one unknown score for all rows**, as from a random intercept alone: the residuals of the
  two classes are a and a − 1, Gⱼ = A·Pⱼ + B·Nⱼ with unknown integers all, and yet A − B =
  2ᶠ/|I| is found (:func:`sizes_from_two_values`): P and N are short vectors, and the lattice
  orthogonal to G shows the plane they span.

Against scores of the weak party that differ from row to row, of standard deviation about ½
from the first round on, none of these does better than chance.

Who attacks: the strong party, which follows the protocol. It learns |I| and nothing else.

Source: the project's own finding. The last is the hidden subset sum technique of Nguyen and
Stern 1999 (The Hardness of the Hidden Subset Sum Problem), the lattice reduction that of
Lenstra, Lenstra and Lovász 1982 in the integral form of de Weger 1987.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

Vector = list[int]

SMALL = 64
"""Coefficients tried for A − B in a reduced basis; columns that are not centred need up to some dozens."""


def sizes_from_integers(gradient: Sequence[int], fraction_bits: int, most: int) -> list[int]:
    """Sizes of I, the likeliest first, under which a first gradient from zero weights is possible.

    Args:
        gradient: Gⱼ as exact integers.
        fraction_bits: f.
        most: number of rows m.

    Returns:
        The true one is among them if training started from zero.
    """
    divisor = math.gcd(*gradient)
    sizes = range(1, most + 1)
    return [size for size in sizes if (value := round(2 ** (fraction_bits - 1) / size)) and divisor % value == 0]


def mismatch(gradient: NDArray[np.float64], steps: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """How far 2k·gⱼ/stepⱼ is from whole for each size k = 1 … ``most``, the mean over columns: float64[most] in 0 … ½.

    Args:
        gradient: float64[d_s], real, divided by |I|.
        steps: float64[d_s], each column's step: its values are whole multiples of it.
        most: number of rows m.

    Returns:
        About ¼ at a wrong size, near 0 at |I| and its multiples if training started at zero. Tiny sizes
        are low as well if the gradient is small.
    """
    multiples = 2 * np.arange(1, most + 1)[:, None] * (gradient / steps)  # (most, d_s)
    return np.abs(multiples - np.rint(multiples)).mean(axis=1)


def sizes_from_two_values(gradient: Sequence[int], fraction_bits: int, most: int) -> list[int]:
    """Sizes of I under which a gradient whose residuals take two values, one a class, is possible.

    Args:
        gradient: Gⱼ as exact integers; 8 to 16 columns are enough and quick.
        fraction_bits: f.
        most: number of rows m.

    Returns:
        As a rule one; none if the gradient is not of this kind.
    """
    if len(gradient) < 4:
        return []
    relations = _orthogonal([list(gradient)])  # shortest first: all but the last one are orthogonal to P and N too
    plane = _orthogonal(relations[:-1])
    if len(plane) != 2:
        return []
    p, n = plane
    minors = ((i, j, p[i] * n[j] - p[j] * n[i]) for i, j in combinations(range(len(gradient)), 2))
    i, j, minor = next(found for found in minors if found[2])
    a, rest_a = divmod(gradient[i] * n[j] - gradient[j] * n[i], minor)
    b, rest_b = divmod(p[i] * gradient[j] - p[j] * gradient[i], minor)
    if rest_a or rest_b:
        return []
    sizes = set()
    for s, t in product(range(-SMALL, SMALL + 1), repeat=2):
        difference = s * a + t * b
        if difference > 0 and math.gcd(s, t) == 1:  # else a multiple of one
            size = round(2**fraction_bits / difference)
            if 1 <= size <= most and abs(2**fraction_bits - size * difference) <= size:  # both residuals are rounded
                sizes.add(size)
    return sorted(sizes)


def _orthogonal(vectors: list[Vector]) -> list[Vector]:
    """A reduced basis, shortest first, of the integer vectors orthogonal to all ``vectors``."""
    width = len(vectors[0])
    largest = max(abs(entry) for vector in vectors for entry in vector)
    weight = 1 << (largest.bit_length() + 2 * width + 20)  # so large that a reduced vector has a 0 there if it can
    rows = [[weight * vector[i] for vector in vectors] + [int(i == j) for j in range(width)] for i in range(width)]
    return [row[len(vectors) :] for row in _reduce(rows) if not any(row[: len(vectors)])]


def _reduce(basis: list[Vector]) -> list[Vector]:
    """LLL with factor 99/100 in whole numbers; the vectors are independent."""
    count = len(basis)
    gram = [1] + [0] * count  # Gram determinants of the first i vectors
    mu = [[0] * count for _ in range(count)]  # μ_kj · gram_{j+1}

    def shorten(k: int, j: int) -> None:
        times = (2 * mu[k][j] + gram[j + 1]) // (2 * gram[j + 1])
        if times:
            basis[k] = [x - times * y for x, y in zip(basis[k], basis[j], strict=True)]
            mu[k][j] -= times * gram[j + 1]
            for i in range(j):
                mu[k][i] -= times * mu[j][i]

    for k in range(count):
        for j in range(k + 1):
            value = sum(x * y for x, y in zip(basis[k], basis[j], strict=True))
            for i in range(j):
                value = (gram[i + 1] * value - mu[k][i] * mu[j][i]) // gram[i]
            if j < k:
                mu[k][j] = value
            else:
                gram[k + 1] = value
    k = 1
    while k < count:
        shorten(k, k - 1)
        if 100 * (gram[k + 1] * gram[k - 1] + mu[k][k - 1] ** 2) < 99 * gram[k] ** 2:
            basis[k], basis[k - 1] = basis[k - 1], basis[k]
            mu[k][: k - 1], mu[k - 1][: k - 1] = mu[k - 1][: k - 1], mu[k][: k - 1]
            middle = mu[k][k - 1]
            changed = (gram[k - 1] * gram[k + 1] + middle**2) // gram[k]
            for i in range(k + 1, count):
                old = mu[i][k]
                mu[i][k] = (gram[k + 1] * mu[i][k - 1] - middle * old) // gram[k]
                mu[i][k - 1] = (changed * old + middle * mu[i][k]) // gram[k + 1]
            gram[k] = changed
            k = max(1, k - 1)
        else:
            for j in range(k - 2, -1, -1):
                shorten(k, j)
            k += 1
    return basis
