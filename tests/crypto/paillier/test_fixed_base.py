"""Powers from a comb equal Python's own, and combs fit their use."""

from __future__ import annotations

import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.paillier.counting import Counting
from vfl_node.crypto.paillier import fixed_base
from vfl_node.crypto.paillier.fixed_base import Comb, choose_comb, powers

P, Q = mpz(2**127 - 1), mpz(2**89 - 1)
MODULI = [(P,), (P * Q,), (P, Q), (Q, P)]


@given(
    base=st.integers(2, int(Q) - 1),
    moduli=st.sampled_from(MODULI),
    exponents=st.lists(st.binary(min_size=5, max_size=5), max_size=2 * fixed_base._FEW),
    teeth=st.integers(1, 6),
    steps=st.integers(1, 40),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_powers_equal_pythons(base, moduli, exponents, teeth, steps):
    comb = Comb(5, teeth, -(-40 // (teeth * steps)), steps)
    modulus = int(moduli[0] * moduli[-1] if len(moduli) == 2 else moduli[0])
    results = powers(mpz(base), moduli, comb, b"".join(exponents))
    assert results == [pow(base, int.from_bytes(exponent, "little"), modulus) for exponent in exponents]


@pytest.mark.parametrize("exponent", [0, 1, 2, 1 << 1023, (1 << 1024) - 1])
@pytest.mark.parametrize("uses", [1, 100, 1 << 14])
def test_edges_at_the_length_that_is_used(exponent, uses):
    comb = choose_comb(128, uses, 512)
    assert powers(mpz(3), (P,), comb, exponent.to_bytes(128, "little")) == [pow(3, exponent, int(P))]


def operations(comb, uses):
    return (comb.columns << comb.teeth) + uses * ((comb.columns + 1) * comb.steps - 1)


@pytest.mark.parametrize(("exponent_bytes", "modulus_bytes"), [(16, 64), (56, 512), (128, 512), (192, 768), (256, 1024)])
def test_more_uses_make_larger_tables_and_fewer_multiplications(exponent_bytes, modulus_bytes):
    combs = [choose_comb(exponent_bytes, 1 << i, modulus_bytes) for i in range(25)]
    for comb in combs:
        assert comb.teeth * comb.columns * comb.steps >= 8 * exponent_bytes
        assert (comb.columns << comb.teeth) * modulus_bytes <= 24 << 20
    each = [operations(comb, 1) - operations(comb, 0) for comb in combs]
    assert each == sorted(each, reverse=True)
    # A comb made for a use is better for it than those made for 16 times as many and for 16 times fewer.
    for few, fitting, many in zip(combs[:-8], combs[4:], combs[8:], strict=False):
        uses = 1 << (4 + combs[4:].index(fitting))
        assert operations(fitting, uses) <= min(operations(few, uses), operations(many, uses))


def test_tables_are_kept_but_not_all_of_them(monkeypatch):
    made = []
    table = fixed_base._table
    monkeypatch.setattr(fixed_base, "_table", lambda *arguments: made.append(1) or table(*arguments))
    fixed_base._tables.cache_clear()
    comb = choose_comb(5, 10, 16)
    for base in (2, 3, 2, 3, 5, 2):
        powers(mpz(base), (P,), comb, bytes(5))
    assert len(made) == 4
    fixed_base._tables.cache_clear()


def test_every_exponent_takes_the_same_operations():
    """Of which none is left out, not even a product by 1."""
    comb = choose_comb(128, 100, 512)
    counts = []
    for exponent in (0, 1, (1 << 1024) - 1, 1 << 512):
        numbers = Counting(P)
        table = fixed_base._table(mpz(3), numbers, comb)
        numbers.all = 0
        assert fixed_base._powers(table, numbers, comb.indices(exponent.to_bytes(128, "little"))) == [pow(3, exponent, int(P))]
        counts.append(numbers.all)
    assert counts == [(comb.columns + 1) * comb.steps - 1] * 4
