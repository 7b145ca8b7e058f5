"""Inner products by slots, for any number of rows and terms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled, key, numbers, randomness, variants
from vfl_node.crypto.lattice import slots
from vfl_node.crypto.lattice.parameters import SLOT_PRIME
from vfl_node.crypto.lattice.sizes import terms_answer_bytes, terms_bytes

pytestmark = compiled


@variants
@pytest.mark.parametrize(("terms", "rows"), [(1, 1), (2, 4096), (3, 4097), (18, 5000), (40, 10)])
@pytest.mark.parametrize("largest", [False, True])
def test_inner_products_are_exact(variant: str, terms: int, rows: int, largest: bool) -> None:
    a, b = numbers(1, terms, rows, below=SLOT_PRIME), numbers(2, terms, rows, below=SLOT_PRIME)
    if largest:
        a[:], b[:] = SLOT_PRIME - 1, SLOT_PRIME // 2
    owner = key("slots", variant)
    data = slots.encrypt_terms(owner, a, randomness("a"))
    answer, share = slots.answer_terms(owner.public, data, b, randomness("b"))
    assert (len(data), len(answer)) == (terms_bytes(terms, rows), terms_answer_bytes(rows))
    opened = slots.open_terms(owner, answer, rows)
    expected = np.zeros(rows, np.uint64)
    for x, y in zip(a, b, strict=True):
        expected = (expected + slots.multiply_modulo(x, y, SLOT_PRIME)) % np.uint64(SLOT_PRIME)
    assert (share < SLOT_PRIME).all()
    assert (opened < SLOT_PRIME).all()
    np.testing.assert_array_equal((opened + share) % np.uint64(SLOT_PRIME), expected)


def test_products_modulo_t_are_exact() -> None:
    """At the edges too, where the quotient's error decides: products next to multiples of t."""
    t = SLOT_PRIME
    x = np.concatenate([numbers(1, 100_000, below=t), np.full(2000, t - 1, np.uint64), np.arange(2000, dtype=np.uint64)])
    y = np.concatenate([numbers(2, 100_000, below=t), np.arange(t - 2000, t, dtype=np.uint64), np.full(2000, t - 1, np.uint64)])
    near = np.array([pow(int(each), -1, t) for each in x[:2000]], np.uint64)  # x·y ≡ 1, and −1
    for left, right in ((x, y), (x[:2000], near), (x[:2000], np.uint64(t) - near)):
        expected = [int(a) * int(b) % t for a, b in zip(left, right, strict=True)]
        assert slots.multiply_modulo(left, right, t).tolist() == expected


def test_what_is_malformed_is_refused() -> None:
    owner, a = key("slots"), numbers(1, 4, 10, below=SLOT_PRIME)
    data = slots.encrypt_terms(owner, a, randomness("a"))
    answer, _ = slots.answer_terms(owner.public, data, a, randomness("b"))
    for wrong in (data[:-1], data + b"\0", b"", data[:-25] + b"\xff" * 25):
        with pytest.raises(ValueError, match=r"bytes|prime"):
            slots.answer_terms(owner.public, wrong, a, randomness("b"))
    for wrong in (answer[:-1], answer * 2, b""):
        with pytest.raises(ValueError, match="bytes"):
            slots.open_terms(owner, wrong, 10)
    with pytest.raises(ValueError, match="bytes"):
        slots.open_terms(owner, b"", 0)
    with pytest.raises(ValueError, match="below"):
        slots.encrypt_terms(owner, a + np.uint64(SLOT_PRIME), randomness("a"))
    with pytest.raises(ValueError, match="below"):
        slots.answer_terms(owner.public, data, a + np.uint64(SLOT_PRIME), randomness("a"))
    with pytest.raises(ValueError, match="below"):
        slots.encrypt_terms(owner, a[:, :0], randomness("a"))
