"""Tallies of two private places are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled, key, numbers, randomness, variants
from vfl_node.crypto.lattice.monomials import MonomialTally, encrypt_monomials, open_tally
from vfl_node.crypto.lattice.sizes import monomial_ciphertexts, monomials_bytes, tally_bytes

pytestmark = compiled


@variants
@pytest.mark.parametrize(("rows", "stride"), [(1, 1024), (101, 1024), (8, 1024), (5, 8192), (3, 1), (70, 256)])
def test_tallies_are_exact(variant: str, rows: int, stride: int) -> None:
    owner, per = key("monomials", variant), 8192 // stride
    rng = np.random.default_rng(rows)
    u, v = rng.integers(0, stride // 2 + 1, rows), rng.integers(0, max(1, stride // 2), rows)
    u[:1], v[:1] = stride // 2 if stride > 1 else 0, max(0, stride // 2 - 1)  # the last place of all
    u = np.minimum(u, stride - 1)
    a, p = numbers(1, rows), numbers(2, rows, below=3) - np.uint64(1)
    p[-1] = 1 << 16
    tally = MonomialTally(owner.public, stride)
    sent = list(encrypt_monomials(owner, u, a, stride, randomness("rows")))
    assert {len(data) for data in sent} == {monomials_bytes()}
    assert len(sent) == monomial_ciphertexts(rows, stride)
    for at, data in enumerate(sent):
        here = slice(per * at, per * (at + 1))
        tally.add(data, v[here], p[here])
    answer, share = tally.answer(randomness("answer"))
    assert len(answer) == tally_bytes(stride)
    expected = np.zeros(stride, np.uint64)
    np.add.at(expected, u + v, a * p)
    np.testing.assert_array_equal(open_tally(owner, answer, stride) + share, expected)


def test_what_is_malformed_is_refused() -> None:
    owner, places, ones = key("monomials"), np.arange(8), np.ones(8, np.uint64)
    (data,) = encrypt_monomials(owner, places, ones, 1024, randomness("rows"))
    tally = MonomialTally(owner.public, 1024)
    for wrong in (data[:-1], data + b"\0", data[:-25] + b"\xff" * 25):
        with pytest.raises(ValueError, match=r"bytes|prime"):
            tally.add(wrong, places, ones)
    for at, of in ((places - 1, ones), (places + 1020, ones), (places[:7], ones), (places, ones * np.uint64(1 << 17))):
        with pytest.raises(ValueError, match=r"place|rows"):
            tally.add(data, at, of)
    with pytest.raises(ValueError, match="rows"):
        tally.add(data, np.arange(9), np.ones(9, np.uint64))
    with pytest.raises(ValueError, match="apart"):
        next(encrypt_monomials(owner, places, ones, 1000, randomness("rows")))
    answer, _ = tally.answer(randomness("answer"))
    with pytest.raises(ValueError, match="answer"):
        open_tally(owner, answer[:-1], 1024)
