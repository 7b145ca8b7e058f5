"""Arithmetic modulo large odd numbers is the same in every kernel, at the edges of limbs and of vectors too."""

from __future__ import annotations

from collections.abc import Iterator

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tests.thorough import every
from vfl_node.crypto.kernels import Kernel
from vfl_node.crypto.kernels.choice import _available
from vfl_node.crypto.kernels.libraries import Plain
from vfl_node.crypto.kernels.montgomery import MOST_BITS

KERNELS = [of for of in _available() if of.name != "avx2"]  # which leaves large numbers to the libraries
BITS = [2, 3, 13, 51, 52, 206, 207, 208, 1024, 2048, 3072, 4100, 6144, MOST_BITS, MOST_BITS + 1]
NATIVE = [of for of in KERNELS if of.name == "ifma"]

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def moduli(bits: int) -> Iterator[mpz]:
    """Odd numbers of a size: random, all ones, and the smallest."""
    state, top = gmpy2.random_state(bits), mpz(1) << (bits - 1)
    yield from {gmpy2.mpz_urandomb(state, bits) | 1 | top, (mpz(1) << bits) - 1, top | 1}


def some(modulus: mpz, count: int) -> list[mpz]:
    """Numbers below it, the edges first."""
    state = gmpy2.random_state(count)
    edges = [modulus - 1, mpz(0), mpz(1), modulus >> 1, modulus - (mpz(1) << 51)]
    return [*(number % modulus for number in edges), *(gmpy2.mpz_random(state, modulus) for _ in range(count))][:count]


@kernels
@pytest.mark.parametrize("bits", every(2, BITS))
def test_powers_are_gmpy2s(kernel: Kernel, bits: int) -> None:
    for modulus in moduli(bits):
        bases = some(modulus, 11)
        for exponent in (mpz(1), mpz(2), mpz(65537), (mpz(1) << min(bits, 80)) - 1, mpz(0xE5) << 193):
            expected = [gmpy2.powmod(base, exponent, modulus) for base in bases]
            assert kernel.powers(bases, exponent, modulus) == expected
            assert kernel.powers(bases[:1], exponent, modulus, secret=False) == expected[:1]
        assert kernel.powers([], mpz(3), modulus) == []


@kernels
@pytest.mark.parametrize("bits", [52, 1024, 4100])
def test_each_base_has_its_own_exponent(kernel: Kernel, bits: int) -> None:
    state = gmpy2.random_state(1)
    for modulus, size in zip(moduli(bits), (1, 64, 300), strict=False):
        bases = some(modulus, 19)
        exponents = [gmpy2.mpz_urandomb(state, size) | (mpz(1) << (size - 1)) for _ in bases]
        expected = [gmpy2.powmod(base, exponent, modulus) for base, exponent in zip(bases, exponents, strict=True)]
        assert kernel.own_powers(bases, exponents, size, modulus) == expected


@kernels
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
def test_products_are_gmpy2s(kernel: Kernel, bits: int, count: int) -> None:
    for modulus in moduli(bits):
        numbers, a, b = kernel.residues(modulus, 8), some(modulus, count), some(modulus, count)[::-1]
        left, right = numbers.load(a), numbers.load(b)
        assert numbers.numbers(left) == a
        result = left.copy()
        numbers.multiply((result, None), (left, None), (right, None))
        assert numbers.numbers(result) == [x * y % modulus for x, y in zip(a, b, strict=True)]
        numbers.multiply((right, None), (right, None), (right, None))
        assert numbers.numbers(right) == [y * y % modulus for y in b]


@kernels
@pytest.mark.parametrize("times", [0, 1, 2, 64])
@pytest.mark.parametrize("bits", [52, 1024, 4100])
def test_squares_of_named_places_change_no_others(kernel: Kernel, bits: int, times: int) -> None:
    for modulus in moduli(bits):
        numbers, values = kernel.residues(modulus, 8), some(modulus, 21)
        at, vector = np.array([20, 3, 0, 1, 2, 4, 7, 11, 10]), numbers.load(values)
        numbers.square((vector, at), times)
        for place in at.tolist():
            values[place] = gmpy2.powmod(values[place], 1 << times, modulus)
        assert numbers.numbers(vector) == values


@kernels
def test_products_of_named_places_change_no_others(kernel: Kernel) -> None:
    modulus, rng = next(moduli(2048)), np.random.default_rng(0)
    numbers, a, b = kernel.residues(modulus, 8), some(modulus, 50), some(modulus, 9)
    left, right = numbers.load(a), numbers.load(b)
    to, of = rng.permutation(50)[:21], rng.integers(0, 9, 21)
    numbers.multiply((left, to), (left, to), (right, of))
    for place, factor in zip(to.tolist(), of.tolist(), strict=True):
        a[place] = a[place] * b[factor] % modulus
    assert numbers.numbers(left) == a
    assert numbers.numbers(right) == b


@kernels
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_products_by_label(kernel: Kernel, count: int) -> None:
    modulus, rng = next(moduli(1024)), np.random.default_rng(count)
    numbers, values = kernel.residues(modulus, 8), some(modulus, 30)
    at, labels = rng.integers(0, 30, count), rng.choice([0, 3, 5, 6, 1000], count)
    expected: dict[int, mpz] = {}
    for place, label in zip(at.tolist(), labels.tolist(), strict=True):
        expected[label] = expected.get(label, mpz(1)) * values[place] % modulus
    which, products = numbers.multiply_by_label(numbers.load(values), at, labels)
    assert dict(zip(which.tolist(), numbers.numbers(products), strict=True)) == expected
    assert which.tolist() == sorted(expected)


@kernels
def test_as_many_products_as_places(kernel: Kernel) -> None:
    numbers = kernel.residues(mpz(101), 8)
    vector = numbers.load([mpz(3)] * 5)
    for to, a in (([0, 1, 2], [0]), ([0], [0, 1, 2]), ([0, 1], [0, 1, 2])):
        with pytest.raises(ValueError):  # noqa: PT011 - each kernel has its words
            numbers.multiply((vector, np.array(to)), (vector, np.array(a)), (vector, np.array(a)))


@kernels
def test_few_products_are_the_same_in_another_form(kernel: Kernel) -> None:
    modulus = next(moduli(2048))
    few, many = kernel.residues(modulus, 1), kernel.residues(modulus, 100)
    assert isinstance(few, Plain)
    a, b = some(modulus, 2)
    for numbers in (few, many):
        vector = numbers.load([a, b])
        numbers.multiply((vector, np.array([1])), (vector, np.array([0])), (vector, np.array([1])))
        assert numbers.numbers(vector) == [a, a * b % modulus]


@pytest.mark.skipif(not NATIVE, reason="this machine runs no compiled kernel")
def test_compiled_code_is_not_given_what_it_cannot_read() -> None:
    """Python checks what C trusts."""
    modulus = mpz(2**127 - 1)
    numbers = NATIVE[0].residues(modulus, 8)
    vector, other = numbers.load(some(modulus, 9)), NATIVE[0].residues(mpz(2**607 - 1), 8).load([mpz(5)])
    for place in (-1, 9, 2**62):
        with pytest.raises(IndexError):
            numbers.multiply((vector, None), (vector, np.array([place] * 9)), (vector, None))
    for wrong in (vector[:, :4], vector[::2], vector.T, vector.astype(np.float64), other, vector[0]):
        with pytest.raises(ValueError, match="words a number"):
            numbers.multiply((vector, None), (vector, None), (wrong, None))
    with pytest.raises(ValueError, match="8 and 9 factors"):
        numbers.multiply((vector, None), (vector, None), (vector[:8], None))
    for number in (mpz(-1), modulus):
        with pytest.raises(ValueError, match="below the modulus"):
            numbers.load([number])
    for even_or_small in (mpz(1), mpz(0), mpz(-7), mpz(10)):
        with pytest.raises(ValueError, match="odd modulus"):
            NATIVE[0].residues(even_or_small, 8)
    frozen = vector.copy()
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="writable"):
        numbers.multiply((frozen, None), (vector, None), (vector, None))
