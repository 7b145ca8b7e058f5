"""Slots: what was packed is found again, and what does not fit is noticed where it can be."""

from __future__ import annotations

import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.paillier.packing import pack, slots, unpack
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import ProtocolError, UsageError

KEY = generate(256, Randomness(bytes(32)))
PUBLIC, N = KEY.public, KEY.public.n
WORKERS = Inline()


def encrypted(numbers):
    """Noise does not matter here: r = 2, 3, 4 …"""
    return PUBLIC.rows((1 + mpz(v) * N) * pow(r, N, N * N) % PUBLIC.square for r, v in enumerate(numbers, 2))


def opened(packed, slot_bits, count):
    return unpack(decrypt(KEY, packed, WORKERS), slot_bits, count, slots(PUBLIC, slot_bits))


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 254), st.data())
def test_what_was_packed_is_found_again(slot_bits, data):
    most = (1 << slot_bits) - 1
    numbers = data.draw(st.lists(st.sampled_from([0, most]) | st.integers(0, most), max_size=12))
    packed = pack(PUBLIC, encrypted(numbers), slot_bits, WORKERS)
    assert len(packed) == -(-len(numbers) // (254 // slot_bits))
    assert opened(packed, slot_bits, len(numbers)) == numbers


def test_the_first_value_is_in_the_lowest_slot():
    packed = pack(PUBLIC, encrypted([3, 5, 7, 11]), 100, WORKERS)
    assert decrypt(KEY, packed, WORKERS) == [3 + (5 << 100), 7 + (11 << 100)]


@pytest.mark.parametrize(("key_bits", "slot_bits", "count"), [(2048, 64, 31), (3072, 64, 47), (2048, 2046, 1), (256, 127, 2)])
def test_slots_of_a_plaintext(key_bits, slot_bits, count):
    assert slots(key_bits, slot_bits) == count


def test_a_slot_as_wide_as_the_key_is_refused():
    for too_wide in (lambda: slots(2048, 2047), lambda: pack(PUBLIC, encrypted([1]), 255, WORKERS)):
        with pytest.raises(UsageError) as refused:
            too_wide()
        assert refused.value.code == "E_OVERFLOW"
    with pytest.raises(UsageError, match=r"slot of 255 bits .* plaintext of 254 \(key of 256 bits\)"):
        slots(PUBLIC, 255)


def test_a_value_that_exceeds_its_slot_spoils_its_neighbour():
    """Why slots have the bound's width: nothing shows the carry, nor the borrow of a negative number."""
    assert opened(pack(PUBLIC, encrypted([2**20, 5]), 20, WORKERS), 20, 2) == [0, 6]
    assert opened(pack(PUBLIC, encrypted([-1, 5]), 20, WORKERS), 20, 2) == [2**20 - 1, 4]


def test_a_value_that_exceeds_all_slots_is_refused():
    for numbers in ([5, 2**20], [5, -1]):
        packed = pack(PUBLIC, encrypted(numbers), 20, WORKERS)
        with pytest.raises(ProtocolError, match="plaintext 0 exceeds its 2 slots of 20 bits") as refused:
            opened(packed, 20, 2)
        assert refused.value.code == "E_CIPHERTEXT"
    with pytest.raises(ProtocolError, match="plaintext 1 exceeds its 1 slots"):
        unpack([2**40 - 1, 2**20], 20, 3, 2)
    with pytest.raises(ProtocolError):
        unpack([-1], 20, 1, 2)


@pytest.mark.parametrize("values", [[1], [1, 2, 3]])
def test_as_many_plaintexts_as_the_numbers_fill(values):
    assert unpack([1, 2], 20, 3, 2) == [1, 0, 2]
    with pytest.raises(ValueError, match="fill 2 plaintexts"):
        unpack(values, 20, 3, 2)
