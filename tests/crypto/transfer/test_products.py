"""A bit times a number in shares: exact for all bits and extreme numbers, and what is opened is uniform."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crypto.transfer.parties import bits, bound, ones, parties, randomness
from vfl_node.crypto.transfer.products import (
    RandomBits,
    RandomNumbers,
    draw_bits,
    draw_numbers,
    hide_bits,
    hide_numbers,
    multiply_bits,
    multiply_numbers,
)

EXTREMES = np.array([0, 1, 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1], np.uint64)


def drawn(place: str, count: int) -> tuple[RandomBits, RandomNumbers]:
    receiver, sender = parties()
    message, mine = draw_bits(receiver, randomness("receiver"), place, count)
    return mine, draw_numbers(sender, place, count, message)


def product(mine: RandomBits, theirs: RandomNumbers, c: np.ndarray, v: np.ndarray) -> np.ndarray:
    d, e = hide_bits(mine, c), hide_numbers(theirs, v)
    return multiply_bits(mine, d, e) + multiply_numbers(theirs, d)


@pytest.mark.parametrize("count", [0, 1, 7, 64, 1000])
def test_shares_add_up_to_the_product_of_a_random_bit_and_a_random_number(count: int) -> None:
    mine, theirs = drawn("place", count)
    for words in (mine.bits, mine.share, theirs.numbers, theirs.share):
        assert words.dtype == np.uint64
        assert words.shape == (count,)
    assert (mine.bits <= 1).all()
    assert (mine.share + theirs.share == mine.bits * theirs.numbers).all()


def test_random_bits_and_numbers_are_fair() -> None:
    count = 1 << 13
    mine, theirs = drawn("place", count)
    assert abs(mine.bits.mean() - 0.5) < bound(count, 1)
    for words in (mine.share, theirs.numbers, theirs.share):
        assert abs(ones(words) / (64 * count) - 0.5) < bound(64 * count, 3)


@pytest.mark.parametrize("alpha", [0, 1])
@pytest.mark.parametrize("c", [0, 1])
@pytest.mark.parametrize("v", EXTREMES.tolist())
def test_all_bits_and_extreme_numbers(alpha: int, c: int, v: int) -> None:
    """All extreme numbers β and shares, too, for both values of d."""
    beta, r = (part.reshape(-1) for part in np.meshgrid(EXTREMES, EXTREMES))
    mine = RandomBits(np.full_like(beta, alpha), r)
    theirs = RandomNumbers(beta, beta * np.uint64(alpha) - r)
    given = np.full_like(beta, c), np.full_like(beta, v)
    assert (product(mine, theirs, *given) == np.uint64(c * v)).all()


def test_products_of_drawn_bits_and_numbers() -> None:
    count = 5000
    mine, theirs = drawn("online", count)
    c, v = bits("c", count).astype(np.uint64), randomness("v").uint64(count)
    assert len({(int(a), int(b)) for a, b in zip(c, mine.bits, strict=True)}) == 4
    assert (product(mine, theirs, c, v) == c * v).all()


@pytest.mark.parametrize("value", [0, 1])
def test_what_is_opened_is_uniform_whatever_it_hides(value: int) -> None:
    count = 1 << 13
    mine, theirs = drawn("opened", count)
    constant = np.full(count, value, np.uint64)
    d, e = hide_bits(mine, constant), hide_numbers(theirs, constant)
    assert abs(d.mean() - 0.5) < bound(count, 2)
    assert abs(ones(e) / (64 * count) - 0.5) < bound(64 * count, 2)
    # Control: what two uses of the same random bits open shows where the bits differ.
    other = bits("other", count).astype(np.uint64)
    assert ((hide_bits(mine, other) ^ d) == (other ^ constant)).all()
    fresh = hide_bits(drawn("opened elsewhere", count)[0], other)
    assert abs(((fresh ^ d) == (other ^ constant)).mean() - 0.5) < bound(count, 2)


def test_a_place_repeats_itself_and_others_differ() -> None:
    receiver, _ = parties()
    first, again = (draw_bits(receiver, randomness("receiver"), "a", 256) for _ in range(2))
    assert first[0] == again[0]
    assert (first[1].bits == again[1].bits).all()
    assert (first[1].share == again[1].share).all()
    for other in (
        draw_bits(receiver, randomness("receiver"), "b", 256)[1],
        draw_bits(receiver, randomness("another seed"), "a", 256)[1],
    ):
        assert 64 < (other.bits != first[1].bits).sum() < 192  # 256 fair bits are outside with a probability of 2e-15
        assert (other.share != first[1].share).all()


def test_what_does_not_fit_is_refused() -> None:
    mine, theirs = drawn("a", 4)
    good, two = np.zeros(4, np.uint64), np.full(4, 2, np.uint64)
    for bad in (good[:3], good.astype(np.int64), good.reshape(2, 2)):
        for call in (
            lambda bad=bad: hide_bits(mine, bad),
            lambda bad=bad: hide_numbers(theirs, bad),
            lambda bad=bad: multiply_bits(mine, bad, good),
            lambda bad=bad: multiply_bits(mine, good, bad),
            lambda bad=bad: multiply_numbers(theirs, bad),
        ):
            with pytest.raises(ValueError, match="and not"):
                call()
    for call in (lambda: hide_bits(mine, two), lambda: multiply_bits(mine, two, good), lambda: multiply_numbers(theirs, two)):
        with pytest.raises(ValueError, match="neither 0 nor 1"):
            call()


def test_secrets_are_not_shown() -> None:
    mine, theirs = drawn("a", 4)
    assert repr(mine) == "RandomBits(4, secret)"
    assert repr(theirs) == "RandomNumbers(4, secret)"
