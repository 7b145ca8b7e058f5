"""Truncation and sums of sines of two parties at their edges, and what they would be without the bits that know of wraps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled
from tests.crypto.shares.paired.pairs import PairRun
from tests.crypto.shares.together import shared, total
from vfl_node.crypto.lattice.parameters import SLOT_PRIME
from vfl_node.crypto.shares.kits import Curved
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import Operation
from vfl_node.crypto.shares.paired import curves
from vfl_node.crypto.shares.ring import FRACTION, encode
from vfl_node.crypto.shares.sines import SIGMOID, VALID, Series
from vfl_node.crypto.shares.values import Shared

pytestmark = compiled

CUTS = (1, 8, 18, 26, 44, 62)
EDGES = np.array([-(1 << 62), 1 - (1 << 62), -(1 << 61), -(1 << 44), -2, -1, 0, 1, 2, 1 << 44, (1 << 62) - 2, (1 << 62) - 1])
SHARES = np.array(
    [0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1], np.uint64
)
ROWS = 40_000


def drawn(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(1 << 62), 1 << 62, count)


@contextmanager
def no_fresh_shares() -> Iterator[None]:
    """What both parties know, and is to make shares fresh, is 0."""
    draw = ShareMachine._draw

    def bare(machine: ShareMachine, seed: Any, number: int, name: str, shape: Any) -> Any:
        return draw(machine, seed, number, name, shape) * np.uint64(name != "zero")

    with mock.patch.object(ShareMachine, "_draw", bare):
        yield


def truncated(parts: tuple[np.ndarray, np.ndarray], cuts: tuple[int, ...]) -> list[np.ndarray]:
    """What numbers of these shares are after each cut, less what they are rounded down."""
    numbers = (parts[0] + parts[1]).view(np.int64)

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        value = Shared(parts[machine.place] if machine.place >= 0 else np.zeros_like(parts[0]), 60)
        return [of.part for of in await machine.run(*(kit.truncate(value, cut) for cut in cuts))]

    made = zip(*PairRun(program).results, strict=True)
    return [total(of) - (numbers >> cut) for of, cut in zip(made, cuts, strict=True)]


def in_shares(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first = np.random.default_rng(7).integers(0, 1 << 64, len(numbers), np.uint64)
    return first, numbers.view(np.uint64) - first


def test_truncation_is_off_by_a_coin_at_most_wherever_it_cuts() -> None:
    numbers = np.concatenate([np.repeat(EDGES, 200), drawn(0, ROWS)])
    for cut, off in zip(CUTS, truncated(in_shares(numbers), CUTS), strict=True):
        assert set(off) <= {0, 1}, cut
        # The coin's mean is (1 + x mod 2^F) / 2^F: that of x to one unit of its own, before the cut.
        mean = (off - (1 + (numbers & ((1 << cut) - 1))) / 2.0**cut).mean()
        assert abs(mean) < 6.2 * 0.5 / np.sqrt(len(numbers)), cut  # 6.2 standard deviations: once in 1.7·10^9


def test_truncation_is_right_for_every_pair_of_shares() -> None:
    """As both parties have them when they cut: at each border of the ring, where a sum wraps around and where it does not."""
    firsts = np.repeat(SHARES, len(EDGES))
    centred = np.tile(EDGES, len(SHARES)).view(np.uint64) + np.uint64(1 << 62)
    with no_fresh_shares():
        for off in truncated((firsts - np.uint64(1 << 62), centred - firsts), CUTS):
            assert set(off) <= {0, 1}


def test_local_truncation_fails_where_that_of_the_parties_does_not() -> None:
    """Each party cuts its own share, as in SecureML: that fails where the sum wraps around, of x with probability |x| / 2^64.

    For x uniform in ±2^62 that is 1/8, and for x in ±2^40 it is 2^−25, which no test of this size sees.
    """
    numbers = drawn(1, ROWS)
    first, second = in_shares(numbers)
    off = truncated((first, second), (26,))[0]
    assert set(off) <= {0, 1}
    local = ((first >> np.uint64(26)) - (np.negative(second) >> np.uint64(26))).view(np.int64)
    failed = np.abs(local - (numbers >> 26)) > 1
    assert np.abs(local - (numbers >> 26))[failed].min() > 1 << 37  # not a bit, but all of it
    assert abs(failed.mean() - 1 / 8) < 6.2 * np.sqrt(7 / 64 / ROWS)  # as above
    small = numbers >> 22
    local = ((first >> np.uint64(26)) - ((first - small.view(np.uint64)) >> np.uint64(26))).view(np.int64)
    assert np.abs(local - (small >> 26)).max() <= 1


def test_what_both_parties_know_makes_the_coin_fair() -> None:
    """A value of which one party's share is 0 would always be rounded up: the control."""
    numbers = drawn(2, ROWS)
    parts = numbers.view(np.uint64), np.zeros(ROWS, np.uint64)
    fair = truncated(parts, (26,))[0]
    assert abs(fair.mean() - 0.5) < 6.2 * 0.5 / np.sqrt(ROWS)  # as above
    with no_fresh_shares():
        assert set(truncated(parts, (26,))[0]) == {1}


# Sums of sines.


def largest_error(series: Series, factor: float) -> float:
    """How far a sum of sines may be off, in the worst case, with u = 2^−18 and ``factor`` = that of all numbers.

    Angles. Each share is cut to 24 bits of a period of 2^6, which is u: the sum of both is low by less than 2u, and the value
    off by 2u times the largest slope.

    Products. Both factors are rounded to u/2, so C·sin·cos is off by u/2·(|cos| + C·|sin|) and a little of second order, and
    both terms of an angle together by u/2·√2·(1 + C), where |sin| + |cos| ≤ √2. Tables are right to 2^−30, and their two
    products are rounded as often: less than 2^−27 of C, which the last summand has.

    The cut. Both shares and t are rounded down, and one is added: off by less than 2u.
    """
    unit = 2.0**-FRACTION
    scale = factor * np.abs(np.array(series.coefficients)).sum() / 2**30
    slope = factor * np.abs(series.slopes(np.linspace(-VALID, VALID, 20_001))).max()
    return float(unit * (2 * slope + np.sqrt(0.5) * (series.terms + scale) + 2) + 2.0**-27 * (1 + scale))


CASES = [
    *((terms, 1, mantissa) for terms in (5, 9, 13) for mantissa in (1.0, 1.37, 2 - 2.0**-18)),
    (9, 2, 1.0),
    (9, 2, 2 - 2.0**-18),
]


@pytest.fixture(scope="module")
def bent() -> Any:
    """What each case gives, and what the series gives: all in one run."""
    z = np.concatenate([np.linspace(-VALID, VALID, 1500), [0.0, 2.0**-44, -(2.0**-44)]])[:, None]
    y = np.random.default_rng(3).integers(0, 2, z.shape)

    async def program(machine: Any, kit: Any) -> Any:
        made = []
        for number, (terms, factor, mantissa) in enumerate(CASES):
            machine.begin(f"case {number}")
            offset = encode(0.5 - y if factor == 1 else 0 * y, 2 * FRACTION) * np.uint64(machine.place == 0)
            curved = Curved(factor, offset, round(mantissa * 2**18), 18)
            made.append((await kit.bend(machine, shared(machine, z, 44, number), SIGMOID[terms], curved)).part)
        return made

    found = {}
    for case, parts in zip(CASES, zip(*PairRun(program).results, strict=True), strict=True):
        terms, factor, mantissa = case
        said = mantissa * (factor * SIGMOID[terms].values(z) + (0.5 - y if factor == 1 else 0))
        found[case] = total(parts) / 2.0**FRACTION - said
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_sum_of_sines_is_within_its_bound(bent: Any, case: tuple[int, int, float]) -> None:
    terms, factor, mantissa = case
    bound = largest_error(SIGMOID[terms], factor * mantissa)
    assert bound < 8e-5
    assert np.abs(bent[case]).max() < bound
    assert np.abs(bent[case]).max() > bound / 20  # the bound is not so wide that anything is in it


HALF = SLOT_PRIME // 2
SUMS = np.array([0, 1, 2, HALF - 1, HALF, HALF + 1, HALF + 2, SLOT_PRIME - 2, SLOT_PRIME - 1], np.int64)
VALUES = np.array([0, 1, 2, 1 << 18, 1 << 37, 1 << 38, (1 << 38) + 1, HALF - 2, HALF - 1, HALF], np.int64)
"""With 2^38 added, so that none is negative: below t/2."""


@pytest.mark.parametrize("knows", [True, False], ids=["knows", "control"])
def test_a_sum_is_lifted_rightly_for_every_pair_of_shares(knows: bool) -> None:
    """At 0, t/2 and t − 1. The control does without the bit product: wherever both shares are large it is off by t."""
    first, value = (each.ravel() for each in np.meshgrid(SUMS, VALUES))
    parts = first, (value - first) % SLOT_PRIME

    def given(*_: Any) -> Operation[Any]:
        return Operation(lambda place, opened, material: (parts[place] if place >= 0 else 0 * first).astype(np.uint64)[:, None])

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        empty = np.zeros((len(first), 1), np.uint64)
        return (await kit.bend(machine, Shared(empty, 44), SIGMOID[5], Curved(1, empty, 1 << 18, 18))).part

    choose = curves.choose

    def unknowing(receiver: int, bits: Any, numbers: Any, shape: Any) -> Any:
        return choose(receiver, None if bits is None else 0 * bits, numbers, shape)

    with mock.patch.object(curves, "_add_sines", given), mock.patch.object(curves, "choose", choose if knows else unknowing):
        off = total(PairRun(program).results)[:, 0] - (value - (1 << 38)) / 2.0**18
    if knows:
        assert (off > -1).all()
        assert (off < 2).all()
    else:
        both = (parts[0] > HALF) & (parts[1] > HALF)
        assert both.any()
        assert (np.abs(off[both]) > SLOT_PRIME / 2**19).all()
        assert (np.abs(off[~both]) < 2).all()
