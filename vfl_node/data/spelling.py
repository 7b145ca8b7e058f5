"""How a party spells its identifiers, in numbers: what could keep them from meeting another party's.

Only this party's own ids are looked at, so nobody knows whether the other party spells its ids otherwise: each hint says what
to do if it does. Hints hold counts and never an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vfl_node.data.identifiers import Identifiers, canonical, composite, parts
from vfl_node.job import IdForm

_WHOLE = re.compile(r"[+-]?[0-9]+")
_BARE = re.compile(r"-?(0|[1-9][0-9]*)")
_POINT = re.compile(r"([+-]?[0-9]+)\.0*")
_EXPONENT = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]+")
_SIGN = re.compile(r"[^\w\s.+]")
_ROUNDED = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?[eE]\+?[0-9]+|[1-9][0-9]{14}0+)")


def is_rounded(text: str) -> bool:
    """Whether an id looks like a long number whose last digits a program has lost: an exponent, or zeros after 15 digits."""
    return _ROUNDED.fullmatch(text) is not None


@dataclass
class _Spellings:
    """How many ids write one of their columns in some way; in the form ``text`` or ``nocase``."""

    letters: int = 0
    capitals: int = 0
    whole: int = 0
    zeros: int = 0
    point: int = 0
    exponent: int = 0
    spaces: int = 0
    signs: int = 0

    def add(self, text: str) -> None:
        """Count one id."""
        lower = text.lower()
        self.letters += lower != text.upper()
        self.capitals += lower != text
        if _WHOLE.fullmatch(text):
            self.whole += 1
            self.zeros += not _BARE.fullmatch(text)
        self.point += bool(_POINT.fullmatch(text))
        self.exponent += bool(_EXPONENT.fullmatch(text))
        self.spaces += any(map(str.isspace, text))
        if not text.isalnum() and not any(each.fullmatch(text) for each in (_WHOLE, _POINT, _EXPONENT)):
            self.signs += _SIGN.sub("", text) not in ("", text)


def spelling_hints(ids: Identifiers, id_form: IdForm | tuple[IdForm, ...]) -> tuple[str, ...]:
    """Whole sentences for the owner of ``ids``: which other spellings of them would be compared as different.

    Args:
        ids: n canonical ids, in the form ``id_form``.
        id_form: of the job; several forms are of as many columns.

    Cost: 4 µs an id, and 2 µs more for each hint (one core). It depends on ``ids`` alone.
    """
    forms = id_form if isinstance(id_form, tuple) else (id_form,)
    columns = [_Spellings() for _ in forms]
    for id_ in ids:
        for column, text in zip(columns, parts(id_), strict=True):
            column.add(text)
    return tuple(hint for place in range(len(forms)) for hint in _column_hints(ids, forms, place, columns[place]))


def _column_hints(ids: Identifiers, forms: tuple[IdForm, ...], place: int, seen: _Spellings) -> Iterator[str]:
    n, form = len(ids), forms[place]
    if form == "integer" or not n:
        return  # compared as numbers, whatever their spelling
    where = f" (column {place + 1} of data.id)" if len(forms) > 1 else ""

    def ids_have(count: int) -> str:
        return f"{'All' if count == n else f'{count:,} of'} your {n:,} ids{where} {'has' if count == 1 else 'have'}"

    def say(other: IdForm) -> str:
        changed = other if len(forms) == 1 else f"[{', '.join((*forms[:place], other, *forms[place + 1 :]))}]"
        same = _repeats(ids, place, lambda text: canonical(text, other).decode())
        return f"say align.id_form: {changed}{_refusal(same)}."

    if form == "text" and seen.capitals:
        yield f"{ids_have(seen.capitals)} capital letters: if the other party writes them otherwise, {say('nocase')}"
    elif form == "text" and seen.letters:
        yield f"{ids_have(seen.letters)} letters, none of them a capital: if the other party has capitals, {say('nocase')}"
    if seen.whole == n and seen.zeros:
        yield f"{ids_have(seen.zeros)} leading zeros or a plus sign: if the other party leaves them out, {say('integer')}"
    elif seen.whole == n:
        yield f"{ids_have(n)} digits without leading zeros: if the other party has leading zeros, {say('integer')}"
    elif seen.zeros:
        yield (
            f"{ids_have(seen.zeros)} leading zeros or a plus sign. If the other party leaves them out, agree on one spelling: "
            f"align.id_form: integer does not fit, since not every id is a whole number ({seen.whole:,} of {n:,})."
        )
    if seen.point:
        same = _repeats(ids, place, lambda text: match[1] if (match := _POINT.fullmatch(text)) else text)
        yield (
            f"{ids_have(seen.point)} a decimal point, as in 123.0, as when a program has read the column as numbers: write "
            f"them without it{_refusal(same)}."
        )
    if seen.exponent:
        yield (
            f"{ids_have(seen.exponent)} an exponent, as in 1.23e+09, as when a spreadsheet shortens long numbers, whose last "
            "digits may be lost: export the column as text."
        )
    if seen.spaces:
        same = _repeats(ids, place, lambda text: "".join(text.split()))
        yield (
            f"{ids_have(seen.spaces)} white space inside: if the other party has none, remove it in your table{_refusal(same)}."
        )
    if seen.signs:
        same = _repeats(ids, place, lambda text: _SIGN.sub("", text))
        yield (
            f"{ids_have(seen.signs)} signs that are neither letters nor digits, such as a hyphen, a comma or an apostrophe: if "
            f"the other party has none, remove them in your table{_refusal(same)}."
        )


def _repeats(ids: Identifiers, place: int, rewrite: Callable[[str], str]) -> int:
    """How many ids would repeat another one if their part at ``place`` were written otherwise."""

    def rewrite_ids() -> Iterator[bytes]:
        for id_ in ids:
            texts = list(parts(id_))
            texts[place] = rewrite(texts[place])
            yield composite([text.encode() for text in texts])

    return len(Identifiers.from_items(rewrite_ids()).repeats())


def _refusal(same: int) -> str:
    """What is added where a spelling makes ``same`` ids repeat others."""
    return f"; {same:,} of them would then repeat another one, which is refused (E_DUP_IDS)" if same else ""
