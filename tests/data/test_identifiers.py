from __future__ import annotations

from typing import get_args
from unicodedata import normalize

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vfl_node.data.identifiers import ZERO_WIDTH, IdForm, canonical
from vfl_node.errors import DataError

STEADY = settings(deadline=None, derandomize=True)

FORMS: tuple[IdForm, ...] = get_args(IdForm)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
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
