"""How large an obfuscated set is: the security number's formula, public buckets, and what each would tell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.alignment.apsi.sizes import interpolate, least_size, obfuscated_size
from vfl_node.job import Align
from vfl_node.settings.node import Obfuscation

SIZES = st.one_of(
    st.builds(lambda size: {"size": size}, st.integers(1, 20)), st.builds(lambda f: {"fraction": f}, st.floats(0.01, 1))
)


def terms(obfuscation):
    return Align(protocol="apsi", obfuscation=obfuscation)


@pytest.mark.parametrize(
    ("shared", "n_s", "sizes"),
    [(100, 10_000, (100, 317, 1000, 3163, 10_000)), (10_000, 60_000, (10_000, 15_651, 24_495, 38_337, 60_000))],
)
def test_the_security_numbers_formula(shared, n_s, sizes):
    assert tuple(interpolate(shared, n_s, xi) for xi in (0, 0.25, 0.5, 0.75, 1)) == sizes


@given(st.integers(1, 10**8), st.integers(1, 10**8), st.floats(0, 1))
@settings(derandomize=True)
def test_the_formula_lies_between_the_sets(a, b, xi):
    shared, n_s = min(a, b), max(a, b)
    assert shared <= interpolate(shared, n_s, xi) <= n_s
    # |Ĩ|/|I| = (n_s/|I|)^ξ, so Pr[genuine] falls exponentially in ξ
    assert interpolate(shared, n_s, xi) == pytest.approx(shared * (n_s / shared) ** xi, abs=1, rel=1e-9)


@pytest.mark.parametrize(
    ("xi", "shared", "least", "m"),
    [
        (0.5, 100, 1, 1024),  # 1000, and the next power of two
        (0.25, 100, 1, 512),  # 317
        (0, 100, 1, 128),
        (0.75, 100, 1, 4096),  # 3163
        (1, 100, 1, 10_000),  # never more than n_s
        (0.9, 100, 1, 8192),  # 6310
        (0.99, 100, 1, 10_000),  # 9551, whose bucket is above n_s
        (0.5, 0, 1, 128),  # as if one were shared
        (0.5, 3, 100, 1024),  # as if 100 were
        (0.5, 10_000, 1, 10_000),
        (0.5, 0, 20_000, 10_000),
    ],
)
def test_what_a_private_security_number_gives(xi, shared, least, m):
    wish = Obfuscation(security_number=xi, min_intersection=least)
    assert obfuscated_size(shared, 10_000, terms("private"), wish) == m


@pytest.mark.parametrize(
    ("wanted", "shared", "n_s", "m"),
    [
        ({"size": 50}, 20, 1000, 50),
        ({"size": 50}, 50, 1000, 50),
        ({"size": 50}, 51, 1000, 64),  # raised to the next public size, which does not give |I|
        ({"size": 50}, 64, 1000, 64),
        ({"size": 50}, 65, 1000, 128),
        ({"size": 50}, 65, 100, 100),  # and never above n_s
        ({"size": 5000}, 20, 1000, 1000),
        ({"size": 50}, 0, 1000, 50),
        ({"size": 50}, 0, 0, 0),
        ({"fraction": 0.7}, 3, 10, 7),  # 0.7·10 is 7, not 8
        ({"fraction": 0.07}, 3, 100, 7),
        ({"fraction": 0.701}, 3, 10, 8),
        ({"fraction": 1}, 3, 10, 10),
        ({"fraction": 0.1}, 9, 10, 10),
    ],
)
def test_what_a_size_or_fraction_gives(wanted, shared, n_s, m):
    assert obfuscated_size(shared, n_s, terms(wanted), Obfuscation()) == m
    assert least_size(terms(wanted), n_s) <= m


@given(st.integers(0, 3000), st.integers(0, 3000), SIZES)
@settings(derandomize=True)
def test_a_size_does_not_depend_on_the_intersection_unless_raised(shared, n_s, wanted):
    shared = min(shared, n_s)
    m = obfuscated_size(shared, n_s, terms(wanted), Obfuscation())
    assert shared <= m <= n_s
    asked = least_size(terms(wanted), n_s)
    assert m == asked if shared <= asked else m in (n_s, 2 ** (shared - 1).bit_length())


@pytest.mark.parametrize(
    ("shared", "n_s", "xi"), [(100, 10_000, 0.5), (300, 20_000, 0.25), (10_000, 60_000, 0.5), (99, 10_000, 0.3)]
)
def test_a_public_security_number_would_tell_the_intersections_size(shared, n_s, xi):
    """|I| = (m / n_s^ξ)^(1/(1−ξ)), exact after rounding. From the bucket of m it is wrong, and the same for many |I|."""

    def inverted(m):
        return (m / n_s**xi) ** (1 / (1 - xi))

    def bucket(shared):
        return obfuscated_size(shared, n_s, terms("private"), Obfuscation(security_number=xi))

    assert round(inverted(interpolate(shared, n_s, xi))) == shared
    assert abs(inverted(bucket(shared)) - shared) > 0.03 * shared
    assert bucket(shared) in (bucket(shared * 4 // 5), bucket(shared * 5 // 4))
