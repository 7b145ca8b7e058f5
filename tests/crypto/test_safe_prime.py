"""Squares modulo safe primes: the published primes, and the algebra against Python's own pow."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest

from vfl_node.crypto.expand import expander
from vfl_node.crypto.groups import SafePrimeGroup, Scalar, group
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.threads import Threads
from vfl_node.errors import DataError, ProtocolError

WORKERS = Threads(2)
SMALL = SafePrimeGroup("small", 1283)


def rows(g, *values):
    return np.frombuffer(b"".join(int(v).to_bytes(g.width, "big") for v in values), np.uint8).reshape(-1, g.width)


def numbers(elements):
    return [int.from_bytes(row.tobytes(), "big") for row in elements]


# RFC 3526, sections 3 and 4: first and last words
@pytest.mark.parametrize(
    ("name", "bits", "last"),
    [
        ("modp2048", 2048, "15728E5A8AACAA68FFFFFFFFFFFFFFFF"),
        ("modp3072", 3072, "4B82D120A93AD2CAFFFFFFFFFFFFFFFF"),
    ],
)
def test_published_primes(name, bits, last):
    g = group(name)
    text = f"{int(g.p):X}"
    assert (int(g.p).bit_length(), g.width) == (bits, bits // 8)
    assert text.startswith("FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74")
    assert text.endswith(last)
    assert gmpy2.is_prime(g.p, 5)
    assert gmpy2.is_prime(g.q, 5)
    assert g.p == 2 * g.q + 1


def test_real_size_round_trip():
    g = group("modp2048")
    a, b = (g.draw(Randomness(bytes([i]) * 32)) for i in range(2))
    x = g.decode(g.hash_to_group([b"%d" % i for i in range(10)], b"d"))
    xa = g.power(x, a, WORKERS)
    assert numbers(xa) == [pow(v, a.reveal(), int(g.p)) for v in numbers(x)]
    np.testing.assert_array_equal(g.power(g.power(xa, b, WORKERS), g.product(g.inverse(a), g.inverse(b)), WORKERS), x)


def test_toy_vectors():
    """Worked with plain integers: combined exponent 169, UIDs of 2 … 7."""
    scalars = [Scalar(k) for k in (17, 23, 31, 101, 203, 311)]
    combined = SMALL.product(*scalars)
    assert combined.reveal() == 169
    x = rows(SMALL, *(v * v for v in range(2, 8)))
    assert numbers(SMALL.power(x, combined, WORKERS)) == [33, 236, 1089, 1095, 90, 908]


def test_exponents_cover_one_to_q_minus_one():
    randomness = Randomness(bytes(32))
    drawn = {SMALL.draw(randomness).reveal() for _ in range(12000)}
    assert drawn == set(range(1, 641))


def test_decode_accepts_squares_only():
    squares = {v * v % 1283 for v in range(2, 1282)} - {1}
    for y in range(2**11):
        if y in squares:
            assert numbers(SMALL.decode(rows(SMALL, y))) == [y]
        else:
            with pytest.raises(ProtocolError) as refused:
                SMALL.decode(rows(SMALL, 4, y))
            assert refused.value.code == "E_ELEMENT"


@pytest.mark.parametrize(
    ("y", "reason"), [(0, "0, 1 or p-1"), (1, "0, 1 or p-1"), (1282, "0, 1 or p-1"), (1283, "below p"), (2, "not a square")]
)
def test_says_which_rule(y, reason):
    with pytest.raises(ProtocolError, match=reason):
        SMALL.decode(rows(SMALL, y))


def test_hashes_are_squares_and_never_neutral():
    """At a toy size some identifier meets 0 or 1; it is refused, not sent."""
    ids = [b"%d" % i for i in range(3000)]
    squares = {item: pow(int.from_bytes(expander(b"d", 18)(item), "big"), 2, 1283) for item in ids}
    neutral = [item for item in ids if squares[item] <= 1]
    assert neutral
    for item in neutral:
        with pytest.raises(DataError) as refused:
            SMALL.hash_to_group([b"0", item], b"d")
        assert refused.value.code == "E_ELEMENT"
    others = [item for item in ids if squares[item] > 1]
    hashed = SMALL.decode(SMALL.hash_to_group(others, b"d"))
    assert numbers(hashed) == [squares[item] for item in others]


def test_an_unsquared_hash_would_keep_a_bit_of_the_identifier():
    """The reason for squaring: the Legendre symbol survives every odd exponent."""
    unsquared = rows(SMALL, *range(2, 200))
    blinded = numbers(SMALL.power(unsquared, Scalar(17), WORKERS))
    symbols = [gmpy2.jacobi(v, 1283) for v in range(2, 200)]
    assert symbols == [gmpy2.jacobi(v, 1283) for v in blinded]
    assert set(symbols) == {1, -1}
