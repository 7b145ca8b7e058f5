"""The coded list is the tags in order and nothing else; what is no such list is refused."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.alignment.upsi.rice import FULLEST, RiceCode, TagList, hash_points, sort_tags
from vfl_node.errors import ProtocolError


def tags_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), dtype=np.uint64)


def number(tag: np.ndarray, bits: int) -> int:
    return ((int(tag[0]) << 64) | int(tag[1])) >> (128 - bits)


def read(code: RiceCode, text: bytes) -> TagList | None:
    """The list, or None where the text is refused; any other end is a fault."""
    with suppress(ProtocolError):
        return code.decode(text)
    return None


@given(st.integers(0, 70), st.integers(1, 11), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_list_is_found_again_tag_by_tag(count: int, rest_bytes: int, seed: int) -> None:
    tags, others = tags_of(count, seed), tags_of(20, seed + 1)
    code = RiceCode(count, rest_bytes)
    order = sort_tags(tags)
    coded = code.encode(tags[order])
    assert len(coded) == code.size
    found = code.decode(coded)
    asked = np.concatenate([tags, others])
    which, places = found.find(asked)
    numbers = [number(tag, code.tag_bits) for tag in tags[order]]
    assert numbers == sorted(numbers)
    expected = {
        (i, place) for i, tag in enumerate(asked) for place, other in enumerate(numbers) if number(tag, code.tag_bits) == other
    }
    assert set(zip(which.tolist(), places.tolist(), strict=True)) == expected
    assert len(which) == len(expected)


@given(st.integers(1, 40), st.integers(1, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_every_text_that_is_accepted_is_the_only_one_of_its_list(count: int, rest_bytes: int, data: st.DataObject) -> None:
    """Bits are changed at random: it is refused, or it is the text of other tags in order."""
    tags, code = tags_of(count, data.draw(st.integers(0, 1000))), RiceCode(count, rest_bytes)
    coded = bytearray(code.encode(tags[sort_tags(tags)]))
    for bit in data.draw(st.lists(st.integers(0, 8 * len(coded) - 1), min_size=1, max_size=6)):
        coded[bit // 8] ^= 1 << bit % 8
    if (found := read(code, bytes(coded))) is None:
        return
    upper = np.repeat(np.arange(len(found.ends)), np.diff(found.ends.astype(np.int64), prepend=0))
    assert len(upper) == count
    rest = np.zeros((count, 16), np.uint8)
    rest[:, :rest_bytes] = found.rests
    shifted = [
        (int(high) << 128 | int.from_bytes(low.tobytes(), "big")) >> code.upper_bits
        for high, low in zip(upper, rest, strict=True)
    ]
    again = np.array([[value >> 64 & (2**64 - 1), value & (2**64 - 1)] for value in shifted], dtype=np.uint64)
    assert code.encode(again) == bytes(coded)


@given(st.binary(max_size=64), st.integers(0, 20), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused_or_read_and_never_breaks(noise: bytes, count: int, rest_bytes: int) -> None:
    code = RiceCode(count, rest_bytes)
    for text in (noise, noise.ljust(code.size, b"\0")[: code.size]):
        if found := read(code, text):
            assert len(found.rests) == found.ends[-1] == count


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda coded, code: coded[:-1], "bytes"),
        (lambda coded, code: coded + b"\0", "bytes"),
        (lambda coded, code: b"\xff" + coded[1:], "upper parts"),
        (lambda coded, code: bytes(code.unary_bytes) + coded[code.unary_bytes :], "upper parts"),
        (lambda coded, code: _fill_up(coded, code), "upper parts"),
        (lambda coded, code: coded[: code.unary_bytes] + coded[: code.unary_bytes - 1 : -1], "in order"),
    ],
)
def test_each_fault_is_named(change, why) -> None:
    tags, code = tags_of(37), RiceCode(37, 7)
    coded = code.encode(tags[sort_tags(tags)])
    code.decode(coded)
    with pytest.raises(ProtocolError, match=why):
        code.decode(change(coded, code))


def _fill_up(coded: bytes, code: RiceCode) -> bytes:
    """A bit behind the last upper part."""
    end = code.unary_bytes - 1
    return coded[:end] + bytes([coded[end] | 1]) + coded[end + 1 :]


def test_a_list_of_one_beginning_is_refused_before_it_is_searched() -> None:
    """A search looks at all tags that begin alike."""
    count, code = FULLEST + 1, RiceCode(FULLEST + 1, 7)
    same = np.zeros((count, 2), dtype=np.uint64)
    with pytest.raises(ValueError, match="no digests"):
        code.encode(same)
    unary = np.zeros(code.unary_bytes * 8, np.uint8)
    unary[:count] = 1
    with pytest.raises(ProtocolError, match="begin alike"):
        code.decode(np.packbits(unary).tobytes() + bytes(count * 7))


def test_a_tag_is_the_digest_of_the_domain_and_the_element() -> None:
    points = np.arange(64, dtype=np.uint8).reshape(2, 32)
    for row, tag in zip(points, hash_points(points, b"here"), strict=True):
        assert number(tag, 128) == int.from_bytes(hashlib.sha256(b"here" + row.tobytes()).digest()[:16], "big")
    assert not (hash_points(points, b"there") == hash_points(points, b"here")).any()


def test_sizes_are_small() -> None:
    """What docs/explanations/alignment/upsi.md says of 2^-56 for a question: 57.7 to 58.9 bits a tag."""
    assert RiceCode(1_000_000, 7).size == 7_256_072
    assert 7.2e-6 < RiceCode(10_000_000, 7).size / 1e13 < 7.4e-6
