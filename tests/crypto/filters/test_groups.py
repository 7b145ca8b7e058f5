from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.crypto.filters.groups import GroupFilter, groups_of, normalise
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.keys import Encoding, TextKey


def filters(*texts: str, key: TextKey | None = None, seed: bytes = bytes(32)) -> NDArray[np.uint8]:
    key = key or TextKey(kind="text")
    return GroupFilter(key, key.bits(Encoding()), Randomness(seed), key.ones(Encoding())).encode(texts)


def distances(*texts: str, key: TextKey | None = None) -> list[int]:
    """Of the first to each of the others."""
    first, *others = filters(*texts, key=key)
    return [int(np.unpackbits(first ^ other).sum()) for other in others]


@pytest.mark.parametrize(
    "edited", ["Catherine Brawn", "Catherine Bown", "Cathrine Brown", "Catherinee Brown", "Katherine Brown"]
)
def test_an_edit_is_nearer_than_another_name(edited: str) -> None:
    near, *others = distances("Catherine Brown", edited, "Christine Brown", "Robert Miller", "C")
    assert 0 < near < min(others)
    assert near <= 2 * 2 * 10  # q groups go and q come, of k bits each


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Jürgen  MÜLLER\t", "jurgen muller"),
        ("Ångström", "A\u030angstro\u0308m"),
        ("Weißstraße 5", "WEISSSTRASSE 5"),
        ("ﬁnance", "Finance"),  # a ligature
        ("ＡＢＣ１２", "abc12"),  # wide forms
        ("İstanbul", "istanbul"),
        ("a\u00a0\u2003b", "A B"),
    ],
)
def test_case_accents_and_spaces_do_not_count(text: str, same: str) -> None:
    assert normalise(text) == normalise(same) == normalise(normalise(text))
    assert distances(text, same) == [0]


def test_words_apart_are_not_one_word() -> None:
    assert distances("new york", "newyork")[0] > 0
    assert groups_of("ab", 2) == {" a", "ab", "b "}
    assert groups_of("ab", 1) == {"a", "b"}
    assert groups_of("abc", 3) == {"  a", " ab", "abc", "bc ", "c  "}


def test_another_secret_sets_other_bits() -> None:
    one, other = filters("Catherine Brown"), filters("Catherine Brown", seed=b"o" * 32)
    common, of_each = (int(np.unpackbits(bits).sum()) for bits in (one & other, one))
    assert common < of_each / 2
    assert common == pytest.approx(of_each**2 / (8 * one.shape[1]), abs=12)  # as many as by chance


def test_each_group_sets_as_many_bits_as_there_are_hashes() -> None:
    """More than a digest has; fewer only where two hashes meet."""
    key = TextKey(kind="text", hashes=40, q=1)
    assert 32 <= int(np.unpackbits(filters("a", key=key)).sum()) <= 40
    assert int(np.unpackbits(filters("aaaa", key=key)).sum()) == int(np.unpackbits(filters("a", key=key)).sum())


def test_what_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"person {number:04d}" for number in range(200)]
    expected = filters(*texts)
    monkeypatch.setattr("vfl_node.crypto.filters.groups._KNOWN", 3)
    monkeypatch.setattr("vfl_node.crypto.filters.groups._CELLS", 1)
    assert np.array_equal(filters(*texts), expected)


FIXED = TextKey(kind="text", fixed_ones=True)


@pytest.mark.parametrize("key", [FIXED, TextKey(kind="text", q=1, hashes=1, length=30, fixed_ones=True)])
def test_a_fixed_number_of_ones_does_not_tell_lengths(key: TextKey) -> None:
    texts = ["c", "ann", "catherine brown", "a very long name that nobody has who was ever asked for it at a counter " * 3]
    count = key.ones(Encoding())
    assert count is not None
    assert np.unpackbits(filters(*texts, key=key), axis=1).sum(axis=1).tolist() == [count] * 4


def test_as_many_ones_as_a_usual_text_has() -> None:
    usual = "".join(chr(0x4E00 + place) for place in range(20))
    own = int(np.unpackbits(filters(usual)).sum())
    assert FIXED.ones(Encoding()) == pytest.approx(own, rel=0.03)
    assert TextKey(kind="text").ones(Encoding()) is None


def test_texts_of_any_length_without_common_groups_are_as_far() -> None:
    """Two filters of w ones in M bits have w²/M in common on average, here 14.6 with a deviation of 3.5."""
    texts = ["".join(chr(0x4E00 + 100 * row + place) for place in range(5 + row)) for row in range(40)]
    bits, count = FIXED.bits(Encoding()), FIXED.ones(Encoding())
    assert count is not None
    found = filters(*texts, key=FIXED)
    common = [count - int(np.unpackbits(found[0] ^ other).sum()) / 2 for other in found[1:]]
    assert np.mean(common) == pytest.approx(count**2 / bits, abs=5 * 3.5 / np.sqrt(39))
    assert abs(np.corrcoef(common, range(6, 45))[0, 1]) < 0.6  # 0 with a deviation of .16


def test_with_fixed_ones_an_edit_is_nearer_than_another_name_and_equal_texts_are_equal() -> None:
    same, near, *others = distances("Catherine Brown", "catherine brown", "Catherine Brawn", "Christine Brown", "C", key=FIXED)
    assert same == 0 < near < min(others)


def test_many_texts_have_the_filters_that_each_has_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is remembered of groups."""
    monkeypatch.setattr("vfl_node.crypto.filters.groups._KNOWN", 200)
    texts = [f"name {number}" for number in range(30)]
    for key in (FIXED, TextKey(kind="text")):
        np.testing.assert_array_equal(filters(*texts, key=key), np.concatenate([filters(text, key=key) for text in texts]))
