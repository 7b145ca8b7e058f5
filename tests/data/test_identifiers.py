from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import get_args
from unicodedata import category, normalize
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vfl_node.data import identifiers
from vfl_node.data.identifiers import ZERO_WIDTH, Identifiers, canonical, composite
from vfl_node.errors import DataError
from vfl_node.job import IdForm

STEADY = settings(deadline=None, derandomize=True)

FORMS: tuple[IdForm, ...] = get_args(IdForm)
texts = st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=20)
spaces = st.text(st.sampled_from(" \t\n\u00a0\u3000"), max_size=3)


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        ("Zoë", "Zoe\u0308", "text"),
        ("ﬁsh", "fish", "text"),
        ("１２３", "123", "text"),
        ("\ufeffab\u200bc\u2060", "abc", "text"),
        ("e\u200d\u0301", "é", "text"),
        (" ab ", "ab", "text"),
        ("Straße", "STRASSE", "nocase"),
        ("ABC", "abc", "nocase"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος", "nocase"),
        ("007", "7", "integer"),
        ("+7", "７", "integer"),
        ("-0", "000", "integer"),
        ("-007", "-7", "integer"),
    ],
)
def test_two_spellings_of_one_identifier_meet(one: str, other: str, form: IdForm) -> None:
    assert canonical(one, form) == canonical(other, form)


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        ("ABC", "abc", "text"),
        ("007", "7", "text"),
        ("007", "7", "nocase"),
        ("a b", "ab", "text"),
        ("-7", "7", "integer"),
        ("70", "7", "integer"),
    ],
)
def test_what_the_form_calls_different_stays_different(one: str, other: str, form: IdForm) -> None:
    assert canonical(one, form) != canonical(other, form)


@STEADY
@given(texts)
def test_composed_and_decomposed_are_one(value: str) -> None:
    assume(value.translate(ZERO_WIDTH).strip())
    for form in ("text", "nocase"):
        try:
            expected = canonical(value, form)
        except DataError:
            continue  # nothing but space once it is normalised
        assert canonical(normalize("NFC", value), form) == expected
        assert canonical(normalize("NFD", value), form) == expected


@STEADY
@given(texts, st.sampled_from(sorted(map(chr, ZERO_WIDTH))), st.integers(0, 20), spaces, spaces)
def test_zero_width_characters_and_outer_space_do_not_count(value: str, mark: str, place: int, before: str, after: str) -> None:
    assume(value.translate(ZERO_WIDTH).strip())
    for form in ("text", "nocase"):
        try:
            expected = canonical(value, form)
        except DataError:
            continue
        assert canonical(before + value[:place] + mark + value[place:] + after, form) == expected


@STEADY
@given(texts, st.sampled_from(FORMS))
def test_canonical_is_idempotent_and_tagged(value: str, form: IdForm) -> None:
    try:
        once = canonical(value, form)
    except DataError:
        return
    tag, text = once.decode().split(":", 1)
    assert tag == form
    assert canonical(text, form) == once


@STEADY
@given(st.integers(), st.integers(), st.integers(0, 3))
def test_integers_meet_exactly_if_they_are_equal(one: int, other: int, zeros: int) -> None:
    spelled = ("-" if one < 0 else "") + "0" * zeros + str(abs(one))
    assert canonical(spelled, "integer") == canonical(str(one), "integer")
    assert (canonical(str(one), "integer") == canonical(str(other), "integer")) == (one == other)


def test_forms_never_collide() -> None:
    assert len({canonical("7", form) for form in FORMS}) == len(FORMS)


def test_an_integer_may_have_any_length() -> None:
    digits = "9" * 10_000  # beyond what Python converts
    assert canonical("0" + digits, "integer") == b"integer:" + digits.encode()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["", "   ", "\u200b\ufeff", "\u00a0\u2060 "])
def test_an_empty_identifier_is_refused(value: str, form: IdForm) -> None:
    with pytest.raises(DataError, match="is empty") as caught:
        canonical(value, form)
    assert caught.value.code == "E_ID"


@pytest.mark.parametrize("value", ["7.0", "1e3", "seven", "1_000", "--7", "+", "7 7", "٣", "−7"])
def test_what_is_no_integer_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(DataError, match="not an integer") as caught:
        canonical(value, "integer")
    assert caught.value.code == "E_ID"
    assert value not in caught.value.message


def test_half_a_character_is_refused_without_being_shown() -> None:
    with pytest.raises(DataError, match="not valid Unicode") as caught:
        canonical("canary\ud800", "text")
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unassigned", ["\u0378", "\ufffe", "\ufdd0", "\U000e0080", "\U0010ffff"])
def test_a_character_that_unicode_has_not_assigned_is_refused_without_being_shown(form: IdForm, unassigned: str) -> None:
    with pytest.raises(DataError, match="has not assigned") as caught:
        canonical(f"canary{unassigned}1", form)
    assert caught.value.code == "E_ID"
    assert unassigned not in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("assigned", ["\u0377", "\ue000", "\U0001f600", "\ufffd"])  # the second is for private use
def test_what_is_assigned_is_accepted(assigned: str) -> None:
    assert canonical(assigned, "text") == b"text:" + assigned.encode()


def test_no_unassigned_character_passes_the_quick_test() -> None:
    assert not any(chr(code).isprintable() for code in range(0x110000) if category(chr(code)) == "Cn")


parts = st.lists(st.binary(max_size=12) | st.sampled_from([b"", b"1:a", b"text:1:", b"composite:"]), max_size=4)


@STEADY
@given(parts, parts)
def test_composite_ids_meet_exactly_if_all_their_parts_do(one: list[bytes], other: list[bytes]) -> None:
    assert (composite(one) == composite(other)) == (one == other)


def test_joined_parts_would_collide() -> None:
    one, other = [b"ab", b"c"], [b"a", b"bc"]
    assert b"".join(one) == b"".join(other)
    assert composite(one) != composite(other)


@pytest.mark.parametrize("form", FORMS)
def test_a_composite_id_never_meets_a_single_one(form: IdForm) -> None:
    assert not canonical("7", form).startswith(composite([]))


lists = st.lists(st.binary(max_size=3), max_size=30)
distinct = st.lists(st.binary(max_size=3), max_size=30, unique=True)
any_place = st.integers(-40, 40)


@pytest.fixture(autouse=True)
def _small_batches() -> Iterator[None]:
    with patch.object(identifiers, "_BATCH", 4):
        yield


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except (IndexError, ValueError) as error:
        return type(error)


@STEADY
@given(lists, lists, any_place)
def test_identifiers_read_as_a_list(items: list[bytes], more: list[bytes], place: int) -> None:
    ids, others = Identifiers.from_items(iter(items)), Identifiers.from_items(more)
    assert list(ids) == items
    assert len(ids) == len(items)
    assert list(reversed(ids)) == items[::-1]
    assert outcome(lambda: ids[place]) == outcome(lambda: items[place])
    assert list(ids + others) == items + more
    assert (ids == others) == (items == more)
    assert ids == Identifiers.from_items(items)
    for wanted in more[:3]:
        assert (wanted in ids) == (wanted in items)
        assert ids.count(wanted) == items.count(wanted)
        assert outcome(lambda: ids.index(wanted)) == outcome(lambda: items.index(wanted))  # noqa: B023 (used at once)


@STEADY
@given(lists, st.slices(30), st.data())
def test_identifiers_are_cut_and_taken_as_a_list(items: list[bytes], cut: slice, data: st.DataObject) -> None:
    ids = Identifiers.from_items(items)
    assert ids[cut] == items[cut]
    places = data.draw(st.lists(st.integers(0, len(items) - 1))) if items else []
    assert ids.take(np.array(places, dtype=np.int64)) == [items[place] for place in places]


@STEADY
@given(lists, st.integers(-40, 40))
def test_only_places_that_exist_are_taken(items: list[bytes], place: int) -> None:
    assume(not 0 <= place < len(items))
    with pytest.raises(IndexError):
        Identifiers.from_items(items).take(np.array([place]))


@STEADY
@given(lists)
def test_the_canonical_order_is_that_of_the_hashes_and_keeps_equal_ids_in_place(items: list[bytes]) -> None:
    expected = sorted(range(len(items)), key=lambda place: (sha256(items[place]).digest()[:16], place))
    order = Identifiers.from_items(items).canonical_order
    assert order.tolist() == expected
    assert order.dtype == np.int64
    assert not order.flags.writeable


@STEADY
@given(distinct, st.randoms(use_true_random=False))
def test_order_and_digest_do_not_depend_on_the_order_of_the_file(items: list[bytes], random: Random) -> None:
    ids = Identifiers.from_items(items)
    random.shuffle(items)
    shuffled = Identifiers.from_items(items)
    assert shuffled.digest() == ids.digest()
    assert shuffled.take(shuffled.canonical_order) == ids.take(ids.canonical_order)


@STEADY
@given(lists, lists)
def test_the_digest_tells_any_two_sets_apart(items: list[bytes], others: list[bytes]) -> None:
    assert (Identifiers.from_items(items).digest() == Identifiers.from_items(others).digest()) == (
        sorted(items) == sorted(others)
    )


@STEADY
@given(distinct.filter(bool), st.integers(0, 30), st.binary(max_size=3))
def test_the_digest_changes_with_any_id(items: list[bytes], place: int, other: bytes) -> None:
    place %= len(items)
    digest = Identifiers.from_items(items).digest()
    assert Identifiers.from_items(items[:place] + items[place + 1 :]).digest() != digest
    assert Identifiers.from_items([*items, other]).digest() != digest
    assert (Identifiers.from_items([*items[:place], other, *items[place + 1 :]]).digest() == digest) == (other == items[place])


@STEADY
@given(lists)
def test_repeats_are_the_places_of_ids_that_came_before(items: list[bytes]) -> None:
    assert Identifiers.from_items(items).repeats().tolist() == [
        place for place, id_ in enumerate(items) if id_ in items[:place]
    ]


def test_where_one_id_ends_counts() -> None:
    one, other = Identifiers.from_items([b"ab", b"c"]), Identifiers.from_items([b"a", b"bc"])
    assert one != other
    assert one.digest() != other.digest()


def test_identifiers_show_their_number_only() -> None:
    assert repr(Identifiers.from_items([b"canary", b"x"])) == "Identifiers(2)"


def test_identifiers_take_the_room_of_their_text_and_little_more() -> None:
    def room(build: Callable[[], object]) -> tuple[float, float]:
        """Bytes an id that stay, and at the peak."""
        tracemalloc.start()
        try:
            kept = build()
            return tuple(size / 50_000 for size in tracemalloc.get_traced_memory())  # type: ignore[return-value]
        finally:
            del kept
            tracemalloc.stop()

    def items() -> Iterator[bytes]:
        return (b"text:%08d" % number for number in range(50_000))

    with patch.object(identifiers, "_BATCH", 1 << 10):
        kept, peak = room(lambda: Identifiers.from_items(items()))
    assert kept < 13 + 8 + 2
    assert peak < 13 + 8 + 8 + 12
    assert room(lambda: tuple(items()))[0] > 50  # what one object an id would take
