"""Fixed point against exact fractions, and the bound that is proven before anything is encrypted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vfl_node.crypto.fixed_point import MASK_BITS, RangeBound, decode, encode
from vfl_node.errors import DataError, UsageError

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
FRACTIONS = st.integers(0, 200)
SIZES = st.integers(1, 2**40)


@settings(deadline=None, derandomize=True)
@given(st.lists(NUMBERS, max_size=20), FRACTIONS)
@example([1e308, -1e308, 5e-324, 0.0, -0.0], 200)  # beyond a float once scaled; below any
@example([float(2**63 - 1024), -float(2**63), float(2**63)], 0)  # around the end of int64
def test_encodes_to_the_nearest_integer_half_to_even(numbers, fraction_bits):
    assert encode(np.array(numbers), fraction_bits) == [round(Fraction(v) * 2**fraction_bits) for v in numbers]


def test_halves_go_to_even_and_not_up():
    assert encode(np.array([0.5, 1.5, 2.5, -0.5, -1.5]), 0) == [0, 2, 2, 0, -2]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(-(2**700), 2**700), max_size=20), FRACTIONS)
def test_decodes_to_the_nearest_float(integers, fraction_bits):
    assert decode(integers, fraction_bits).tolist() == [float(Fraction(k, 2**fraction_bits)) for k in integers]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.integers(20, 200))
def test_a_round_trip_loses_half_a_unit_at_most(numbers, fraction_bits):
    back = decode(encode(np.array(numbers), fraction_bits), fraction_bits)
    assert all(abs(Fraction(a) - Fraction(b)) <= Fraction(1, 2 << fraction_bits) for a, b in zip(numbers, back, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(DataError) as refused:
        encode(np.array([1.0, bad]), 40)
    assert refused.value.code == "E_DIVERGED"
    assert encode(np.array([1.0]), 40) == [2**40]


def test_zero_looks_like_any_other_value():
    """The scale is public and one for all: a dummy's exact 0 is encoded at it as a residual is."""
    assert encode(np.array([0.0, 2.0**-40, 1.0]), 40) == [0, 1, 2**40]


@settings(deadline=None, derandomize=True)
@given(SIZES, SIZES, SIZES, st.data())
def test_a_masked_sum_stays_within_its_slot_and_is_found_again(terms, factor, value, data):
    bound = RangeBound(factor, terms * value)
    slot, offset = bound.slot_bits(3072), 1 << bound.bits
    total = data.draw(st.sampled_from([-bound.largest, 0, bound.largest]) | st.integers(-bound.largest, bound.largest))
    last = (2 * offset << MASK_BITS) - 1
    mask = data.draw(st.sampled_from([0, last]) | st.integers(0, last))
    assert 0 <= total + offset + mask < 1 << slot


def test_the_bound_is_reached():
    """All terms at their largest and of one sign."""
    bound = RangeBound(factor=2**20, total=1000 * 2**40)
    assert abs(sum(-(2**20) * 2**40 for _ in range(1000))) == bound.largest
    assert bound.bits == 70


def test_a_key_with_one_bit_too_few_is_refused_with_all_numbers():
    bound = RangeBound(factor=2**20, total=1000 * 2**40)
    assert bound.slot_bits(138) == 136
    with pytest.raises(UsageError) as refused:
        bound.slot_bits(137)
    assert refused.value.code == "E_OVERFLOW"
    for number in ("21 bits", "add up to 50", "up to 70", "64 bits wider", "136", "137 bits", "135"):
        assert number in refused.value.message


def test_beyond_the_bound_a_sum_comes_back_wrong():
    """Why there is a bound: modulo n nothing tells that a sum has wrapped."""
    n = 2**61 - 1
    term = 2**50

    def added(terms):
        total = terms * term % n
        return total if total <= n // 2 else total - n

    assert added(1000) == 1000 * term
    assert added(2000) != 2000 * term
