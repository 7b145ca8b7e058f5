"""What a party's own ids suggest where they do not meet another's: counts, what to change, and never an id."""

from __future__ import annotations

import pytest

from vfl_node.data.identifiers import Identifiers, canonical, composite, parts
from vfl_node.data.spelling import spelling_hints
from vfl_node.job import IdForm


def ids(*values: str, form: IdForm = "text") -> Identifiers:
    return Identifiers.from_items(canonical(value, form) for value in values)


def only(hints: tuple[str, ...]) -> str:
    (hint,) = hints
    return hint


def test_capitals_and_how_many_ids_would_repeat_without_them() -> None:
    hint = only(spelling_hints(ids("Ab", "aB", "ÄRGER", "c", "7"), "text"))
    assert hint == (
        "3 of your 5 ids have capital letters: if the other party writes them otherwise, say align.id_form: nocase; 1 of them "
        "would then repeat another one, which is refused (E_DUP_IDS)."
    )
    hint = only(spelling_hints(ids("a1", "b2"), "text"))
    assert hint == (
        "All your 2 ids have letters, none of them a capital: if the other party has capitals, say align.id_form: nocase."
    )
    assert spelling_hints(ids("Ab", "c", form="nocase"), "nocase") == ()  # capitals no longer count


def test_numbers_with_and_without_leading_zeros() -> None:
    hint = only(spelling_hints(ids("007", "7", "8", "+9", "0"), "text"))
    assert hint.startswith("2 of your 5 ids have leading zeros or a plus sign: if the other party leaves them out, say ")
    assert "align.id_form: integer; 1 of them" in hint
    hint = only(spelling_hints(ids("7", "-8", form="nocase"), "nocase"))
    assert hint.startswith("All your 2 ids have digits without leading zeros: if the other party has leading zeros, say")
    hint = only(spelling_hints(ids("007", "8", "-"), "text"))
    assert hint.startswith("1 of your 3 ids has leading zeros or a plus sign. If the other party leaves them out, agree")
    assert "not every id is a whole number (2 of 3)" in hint
    assert spelling_hints(ids("007", "9", form="integer"), "integer") == ()


def test_numbers_that_a_program_has_written() -> None:
    hint = only(spelling_hints(ids("123.0", "123", "7.", "1.5"), "text"))
    assert hint.startswith("2 of your 4 ids have a decimal point, as in 123.0")
    assert "without it; 1 of them would then repeat" in hint
    first, second = spelling_hints(ids("1.23e+09", "4E5"), "text")
    assert first.startswith("1 of your 2 ids has capital letters")
    assert second.startswith("All your 2 ids have an exponent, as in 1.23e+09")


def test_white_space_inside() -> None:
    first, second = spelling_hints(ids("a 1", "a1", " b "), "text")
    assert "none of them a capital" in first
    assert second.startswith("1 of your 3 ids has white space inside")
    assert "1 of them would then repeat" in second


def test_signs_that_are_neither_letters_nor_digits() -> None:
    (hint,) = spelling_hints(ids("100,000", "'200", "-5", "100000"), "text")
    assert hint.startswith("2 of your 4 ids have signs that are neither letters nor digits, such as a hyphen")
    assert hint.endswith("remove them in your table; 1 of them would then repeat another one, which is refused (E_DUP_IDS).")


def test_a_composite_id_is_looked_at_column_by_column() -> None:
    records = [("North", "007"), ("north", "7"), ("South", "8")]
    joined = Identifiers.from_items(
        composite([canonical(clinic, "text"), canonical(number, "text")]) for clinic, number in records
    )
    clinics, numbers = spelling_hints(joined, ("text", "text"))
    assert clinics.startswith("2 of your 3 ids (column 1 of data.id) have capital letters")
    assert clinics.endswith("say align.id_form: [nocase, text].")  # north 7 and north 007 stay apart
    assert numbers.startswith("1 of your 3 ids (column 2 of data.id) has leading zeros")
    assert numbers.endswith("say align.id_form: [text, integer].")


def test_hints_hold_no_id() -> None:
    secrets = ("Canary-one", "canary two", "0099887766", "5544332211.0", "6.6e+77")
    for hint in spelling_hints(ids(*secrets), "text"):
        assert not any(secret.casefold() in hint.casefold() for secret in secrets)
    assert spelling_hints(ids(), "text") == ()


@pytest.mark.parametrize("form", ["text", "nocase"])
@pytest.mark.parametrize("value", ["abc", "3:abc", "composite:1:a", "ä€𝄞", "a b"])
def test_the_parts_of_an_id_are_what_it_was_made_of(form: IdForm, value: str) -> None:
    single = canonical(value, form)
    assert parts(single) == (value,)
    assert parts(composite([single, canonical("12", "integer"), single])) == (value, "12", value)
