"""Sums and products under encryption against plain integers, and what a vector of ciphertexts may not hold."""

from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import ProtocolError

KEY = generate(256, Randomness(bytes(32)))
PUBLIC, N = KEY.public, KEY.public.n
WORKERS = Inline()
PLAIN = st.integers(-(N // 2), N // 2)


def encrypted(numbers):
    """Noise does not matter here: r = 2, 3, 4 …"""
    return PUBLIC.rows((1 + v * N) * pow(r, N, N * N) % PUBLIC.square for r, v in enumerate(numbers, 2))


def decrypted(ciphertexts):
    return [v if v <= N // 2 else v - N for v in decrypt(KEY, ciphertexts, WORKERS)]


def wrapped(v):
    return (v + N // 2) % N - N // 2


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(PLAIN, PLAIN), max_size=10))
def test_sums(pairs):
    a, b = [v for v, _ in pairs], [v for _, v in pairs]
    expected = [wrapped(x + y) for x, y in pairs]
    assert decrypted(homomorphic.add(PUBLIC, encrypted(a), encrypted(b), WORKERS)) == expected
    assert decrypted(homomorphic.add_plain(PUBLIC, encrypted(a), b, WORKERS)) == expected
    assert decrypted(homomorphic.total(PUBLIC, encrypted(a))) == [wrapped(sum(a))]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from([1, 24, 62, 64, 200]), st.data())
def test_multiples(bits, data):
    most = (1 << bits) - 1
    factors = st.sampled_from([0, 1, -1, most, -most]) | st.integers(-most, most)
    pairs = data.draw(st.lists(st.tuples(PLAIN, factors), max_size=10))
    scaled = homomorphic.scale(PUBLIC, encrypted([v for v, _ in pairs]), [k for _, k in pairs], bits, WORKERS)
    assert decrypted(scaled) == [wrapped(v * k) for v, k in pairs]


def test_many_rows_in_blocks(monkeypatch):
    monkeypatch.setattr(homomorphic, "_ADD_ROWS", 8)
    numbers = list(range(-50, 51))
    rows, double = encrypted(numbers), [2 * v for v in numbers]
    assert decrypted(homomorphic.add(PUBLIC, rows, rows, WORKERS)) == double
    assert decrypted(homomorphic.add_plain(PUBLIC, rows, numbers, WORKERS)) == double
    assert decrypted(homomorphic.scale(PUBLIC, rows, [2] * len(rows), 2, WORKERS)) == double


def test_secret_factors_of_any_sign_and_size_are_exponents_of_one_length(monkeypatch):
    seen = []

    class Spy(Libraries):
        def own_powers(self, bases, exponents, bits, modulus):
            seen.extend((exponent.bit_length(), bits) for exponent in exponents)
            return super().own_powers(bases, exponents, bits, modulus)

    monkeypatch.setattr(homomorphic, "kernel", Spy)
    factors = [0, 1, -1, 2**40, -(2**40), 2**62 - 1, 1 - 2**62]
    scaled = homomorphic.scale(PUBLIC, encrypted([5] * 7), factors, 62, WORKERS)
    assert seen == [(64, 64)] * 7
    assert decrypted(scaled) == [5 * k for k in factors]


def test_results_show_what_was_applied_until_they_are_rerandomised():
    """A factor 0 is the ciphertext 1, and a sum with a guessed number is recomputed from what is known."""
    known = encrypted([5])
    assert PUBLIC.integers(homomorphic.scale(PUBLIC, known, [0], 8, WORKERS)) == [1]
    sent = homomorphic.add_plain(PUBLIC, known, [-123], WORKERS)
    guesses = [v for v in range(-200, 200) if (homomorphic.add_plain(PUBLIC, known, [v], WORKERS) == sent).all()]
    assert guesses == [-123]


def test_no_rows():
    nothing = encrypted([])
    homomorphic.check(PUBLIC, nothing)
    assert homomorphic.add(PUBLIC, nothing, nothing, WORKERS).shape == (0, PUBLIC.width)
    assert PUBLIC.integers(homomorphic.total(PUBLIC, nothing)) == [1]


def test_usable_arguments_only():
    rows = encrypted([1, 2])
    with pytest.raises(ValueError, match="2 and 1 rows"):
        homomorphic.add(PUBLIC, rows, rows[:1], WORKERS)
    with pytest.raises(ValueError, match="2 and 3 rows"):
        homomorphic.add_plain(PUBLIC, rows, [1, 2, 3], WORKERS)
    with pytest.raises(ValueError, match="below n/2"):
        homomorphic.add_plain(PUBLIC, rows, [0, -(N // 2) - 1], WORKERS)
    for factor in (256, -256):
        with pytest.raises(ValueError, match="more than 8 bits"):
            homomorphic.scale(PUBLIC, rows, [1, factor], 8, WORKERS)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (0, "row 1 is not in"),
        (N * N, "row 1 is not in"),
        (N * N + 1, "row 1 is not in"),
        (KEY.p, "shares a factor"),
        (KEY.q**2, "shares a factor"),
        (N, "shares a factor"),
    ],
)
def test_numbers_that_are_no_ciphertexts_are_refused(number, reason):
    good = encrypted([7, 0, -7])
    homomorphic.check(PUBLIC, good)
    bad = good.copy()
    bad[1] = PUBLIC.rows([mpz(number)])[0]
    with pytest.raises(ProtocolError, match=reason) as refused:
        homomorphic.check(PUBLIC, bad)
    assert refused.value.code == "E_CIPHERTEXT"


@pytest.mark.parametrize(
    "rows", [encrypted([1])[:, 1:], encrypted([1])[0], encrypted([1]).astype(np.int64)], ids=["narrow", "flat", "int64"]
)
def test_other_shapes_are_refused(rows):
    with pytest.raises(ProtocolError, match="bytes were expected") as refused:
        homomorphic.check(PUBLIC, rows)
    assert refused.value.code == "E_CIPHERTEXT"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 10006), max_size=20))
def test_all_inverses_with_one_inversion(numbers):
    found = homomorphic.inverses([mpz(v) for v in numbers], mpz(10007))
    assert [v * inverse % 10007 for v, inverse in zip(numbers, found, strict=True)] == [1] * len(numbers)


def test_a_number_without_an_inverse():
    with pytest.raises(ZeroDivisionError):
        homomorphic.inverses([mpz(2), mpz(15)], mpz(21))
