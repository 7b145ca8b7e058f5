"""The bound on what noise gives away: its constant and its formula, against distances that are computed outright."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from vfl_node.crypto.lattice.flooding import FISHER, LIMIT, log2_distance, slot_terms
from vfl_node.crypto.lattice.parameters import LINEAR, MONOMIALS, SLOTS, Parameters


def sum_of_four(width: int) -> np.ndarray:
    """The distribution of the sum of four uniform numbers of 0 … width − 1."""
    one = np.full(width, 1 / width)
    two = np.convolve(one, one)
    return np.convolve(two, two)


def test_the_constant_is_the_fisher_information_of_four_uniform_numbers() -> None:
    pieces = [
        (lambda x: x**3 / 6, lambda x: x**2 / 2, 0, 1),
        (lambda x: (-3 * x**3 + 12 * x**2 - 12 * x + 4) / 6, lambda x: (-9 * x**2 + 24 * x - 12) / 6, 1, 2),
    ]
    half = sum(quad(lambda x, f=f, g=g: g(x) ** 2 / f(x) if x else 0.0, low, high)[0] for f, g, low, high in pieces)
    assert 2 * half <= FISHER < 2 * half + 1e-4
    for width in (64, 256, 1024):  # and of integers: 4·‖√f − √f(· − 1)‖² tends to it
        root = np.sqrt(np.pad(sum_of_four(width), 1))
        assert 4 * ((root[1:] - root[:-1]) ** 2).sum() * width**2 == pytest.approx(2 * half, rel=20 / width)


@pytest.mark.parametrize("shift", [1, 3, 20])
def test_no_distance_is_above_the_bound(shift: int) -> None:
    """One coefficient and two, whose distances are computed outright; the bound on two is √2 times that on one."""
    width = 128
    f = np.pad(sum_of_four(width), shift)
    g = np.roll(f, shift)
    bound = 0.5 * math.sqrt(FISHER) * shift / width
    one = 0.5 * np.abs(f - g).sum()
    two = 0.5 * np.abs(np.outer(f, f) - np.outer(g, g)).sum()
    assert 0.5 * bound < one < bound
    assert 0.5 * bound < two < math.sqrt(2) * bound
    edge = np.full(4 * width, 1 / (4 * width))  # as wide, but uniform: twice as many coefficients have twice the distance
    rolled = np.roll(np.pad(edge, shift), shift)
    edge = np.pad(edge, shift)
    once = 0.5 * np.abs(edge - rolled).sum()
    assert 0.5 * np.abs(np.outer(edge, edge) - np.outer(rolled, rolled)).sum() > 1.9 * once


@pytest.mark.parametrize(
    ("parameters", "terms", "opened", "expected"),
    [
        (LINEAR, 4096, 1 << 21, -47.7),
        (LINEAR, 4096, 1 << 24, -46.2),
        (SLOTS, slot_terms(18), 1 << 21, -46.8),
        (SLOTS, slot_terms(18), 1 << 26, -44.3),
        (MONOMIALS, 20_000, 1 << 10, -47.9),
    ],
    ids=str,
)
def test_jobs_of_usual_sizes_are_within_the_limit(parameters: Parameters, terms: int, opened: int, expected: float) -> None:
    assert log2_distance(parameters, terms, opened) == pytest.approx(expected, abs=0.1)
    assert expected < LIMIT


def test_the_distance_grows_with_the_root_of_coefficients() -> None:
    few, many = (log2_distance(LINEAR, 1000, count) for count in (10, 160))
    assert many - few == pytest.approx(2)
    assert log2_distance(LINEAR, 0, 10) == log2_distance(LINEAR, 10, 0) == -math.inf
    assert log2_distance(LINEAR, 1 << 20, 1 << 30) > LIMIT


@pytest.mark.parametrize("parameters", [LINEAR, SLOTS, MONOMIALS], ids=lambda each: each.name)
def test_answers_are_opened_rightly_whatever_the_noise(parameters: Parameters) -> None:
    """Flooding noise, errors of a million products and what shortening loses are below half a step, in the worst case."""
    scale = parameters.long_bits - math.log2(parameters.q)
    errors = 10**6 * 22 * 2 ** (parameters.multiplier_bits + scale)
    flood = 2 ** (parameters.flood_bits + 1 + scale)
    rounding = 8192 / 2 + 0.5 * 2 ** (parameters.long_bits - parameters.short_bits)
    assert flood + errors + rounding + 1 < 0.5 * 2**parameters.long_bits / parameters.t
