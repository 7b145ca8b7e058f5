"""How a column of text writes its numbers: what separates thousands and decimals, and the sign or unit beside them.

The whole column decides. A reading of it says what a point, a comma, a space or an apostrophe separates; it must be the same
in every cell. The reading counts that makes the most cells numbers; if two of them do that and give other numbers, the column
is ambiguous, and its owner must say how it is written.

==============  ====================================================================================================
part            what is read
==============  ====================================================================================================
thousands       groups of three digits: ``1,234,567``, or before these of two, as in India: ``12,34,567``
minus           ``-`` or Unicode's ``−``, before the number or after it; or brackets, as accountants write: ``(1,234)``
unit            a sign of a currency or its code before the number, or a word without digits after it (``%``, ``kg``, ``EUR``).
                Every number but 0 has the same one; it is left out
==============  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vfl_node.data.cells import PLAIN, absent, matches, number, numbers_of
from vfl_node.data.missing_words import ABSENT
from vfl_node.data.shapes import Seems, are_codes, are_parts_of_dates, thousands_by_points
from vfl_node.data.tables import CategoricalColumn
from vfl_node.settings.declared import UNSAID, DecimalSign, Notation, Thousands

T = TypeVar("T")

SHARE = 0.95
"""A column of text that is not declared is one of numbers, or of dates, if at least this share of its values are."""

LOOKED_AT = 200
"""So many of the different cells tell whether a column may hold numbers, or dates, at all."""

Wrong = Literal["text", "an infinite number", "not a number with the column's sign or unit"]

_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BRL|MXN|ZAR|SGD|HKD|KRW|TRY|RUB"
_NUMBER = (
    r"^(?P<minus>[+-]?) ?(?P<before>[A-Za-z]{0,3}\p{Sc}|" + _CODES + r")? ?(?P<second>[+-]?)"
    r"(?P<digits>[0-9]+(?:[.,' ][0-9]+)*[.,]?|[.,][0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?"
    r" ?(?P<after>[^0-9 .,'+()\[\]-][^0-9 ,'+()\[\]]{0,11})?$"
)
INFINITE = frozenset({"inf", "-inf", "infinity", "-infinity"})
"""What stands for an infinite number, or for a date without end in a database; in small letters."""

_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_ASCII = 127
_SPELLINGS = (("−", "-"), ("’", "'"), ("\u00a0", " "), ("\u202f", " "), ("\u2009", " "))


class Ambiguous(Exception):
    """Two readings of a column make its cells numbers, or dates, and not the same ones.

    Attributes:
        readings: both.
    """

    def __init__(self, readings: tuple[object, object]) -> None:
        super().__init__(f"{readings[0]} or {readings[1]}")
        self.readings = readings


@dataclass(frozen=True)
class NumberForm:
    """One way to read numbers."""

    decimal: DecimalSign
    thousands: Thousands

    def __str__(self) -> str:
        """In words, for the owner."""
        between = repr(self.thousands) if self.thousands else "nothing"
        return f"with {between} between thousands and {self.decimal!r} before decimals"

    @property
    def setting(self) -> str:
        """What an owner says of a column that is written so."""
        return f"thousands: '{self.thousands}'" if self.thousands else f"decimal: '{self.decimal}'"


@dataclass(frozen=True, eq=False)
class NumbersRead:
    """The numbers of a column.

    Attributes:
        values: float64[n]; NaN: missing, infinity: not a finite number.
        infinite: which of the latter are infinite numbers, bool[n]; the others are text.
        notation: how they are written, all of it said; None: as numbers are written in this input anyway.
        zero_led: how many have a zero before other digits; 0 where some have a fraction, or they are parts of dates.
        seems: what their shape may mean beside numbers.
    """

    values: NDArray[np.float64] = field(repr=False)
    infinite: NDArray[np.bool_] = field(repr=False)
    notation: Notation | None = None
    zero_led: int = 0
    seems: Seems | None = None

    def wrong(self, row: int) -> Wrong:
        """What a cell is that :attr:`values` says is infinite."""
        if self.infinite[row]:
            return "an infinite number"
        return "not a number with the column's sign or unit" if self.notation and self.notation.unit else "text"


def numbers_in(
    column: CategoricalColumn, notation: Notation, decimal: DecimalSign, *, known: bool, declared: bool, whole: bool = True
) -> NumbersRead | None:
    """The numbers of a column of text; None: there are too few.

    Args:
        column: as text.
        notation: what the owner says of it.
        decimal: how the input writes decimals.
        known: whether that is sure, and no guess, so that it decides where two readings are possible.
        declared: whether it is numeric, however few of its values are numbers.
        whole: whether these are all rows.

    Cost: that of :func:`~vfl_node.data.cells.numbers_of`, of each different cell. Where not all are plain numbers, about 1 µs
        more for each reading that its signs allow.

    Raises:
        Ambiguous: two readings are possible.
    """
    given = pa.array(column.levels, pa.large_string())
    texts = _spell_plainly(given)
    rows, missing = column.counts, absent(texts, ABSENT) | absent(given, map(str.lower, notation.missing))
    there = np.where(missing, 0, rows)
    own = decimal_of(notation, decimal)
    plain = numbers_of(texts, own)
    infinite, found = np.zeros(len(texts), np.bool_), plain_notation(notation)
    readings, unit = [(NumberForm(own, ""), plain)], ""
    if notation.unit or not (np.isfinite(plain) | missing).all():
        infinite = ~missing & np.isinf(plain) & (matches(texts, _INFINITE) | matches(texts, PLAIN))
        if declared or _may_be_numbers(texts):
            parts = _Parts(texts, rows, notation.unit)
            readings, unit = _readings(parts, plain, _forms(notation, own, alone=own != decimal)), parts.unit
    numbers = max(int(there[np.isfinite(values)].sum()) for _, values in readings)
    if not declared and (numbers + int(there[infinite].sum()) < SHARE * there.sum() or (not numbers and rows.any())):
        return None
    form, values = choose_reading(readings, there, preferred=known)
    if values is not plain:
        thousands = form.thousands or notation.thousands or ""
        found = Notation(missing=notation.missing, decimal=form.decimal, thousands=thousands, unit=unit)
    finite = np.isfinite(values) & ~missing
    seems = _seeming(texts, there * finite, notation, form, certain=whole)
    values = np.where(missing | sentinels(values, infinite, notation.missing), np.nan, values)
    led = finite & matches(texts, "^0[0-9]")
    many = 0 if (np.trunc(values[finite]) != values[finite]).any() else int(there[led].sum())
    if many and are_parts_of_dates(values[finite], longer=bool(matches(texts, "^0[0-9]{2}")[led].any())):
        many = 0
    by_row = np.append(values, np.nan)[column.codes]
    return NumbersRead(by_row, np.append(infinite, False)[column.codes], found, many, seems)


def decimal_of(notation: Notation, decimal: DecimalSign) -> DecimalSign:
    """How a column writes decimals in an input that writes them as ``decimal``."""
    if notation.decimal or notation.thousands != decimal:
        return notation.decimal or decimal
    return "," if decimal == "." else "."


def plain_notation(notation: Notation) -> Notation | None:
    """How a column of plain numbers is written, of which ``notation`` is said; None: there is nothing to say."""
    said = notation.model_copy(update={"date_format": None})
    return None if said == UNSAID else said


def sentinels(values: NDArray[np.float64], infinite: NDArray[np.bool_], words: Sequence[str]) -> NDArray[np.bool_]:
    """Which numbers stand for a missing value because one of ``words`` is that number; ``inf`` means all infinite ones."""
    numbers = sorted({number(word) for word in words if np.isfinite(number(word))})
    among = np.isin(values, numbers) if numbers else np.zeros(len(values), dtype=np.bool_)
    return among | infinite if means_infinite(words) else among


def means_infinite(words: Sequence[str]) -> bool:
    """Whether infinite numbers, or dates, are missing values."""
    return not INFINITE.isdisjoint(map(str.lower, words))


def choose_reading(
    readings: Sequence[tuple[T, NDArray[np.float64]]], rows: NDArray[np.int64], *, preferred: bool = False
) -> tuple[T, NDArray[np.float64]]:
    """The reading, with its values, that finds the most; of equal ones the first.

    Args:
        readings: of the different cells of a column, each with what it finds, float64[k]; not finite: nothing.
        rows: how many rows have each cell, int64[k].
        preferred: whether the first is right where others find as much.

    Raises:
        Ambiguous: another one finds as much and something else.
    """
    found = [int(rows[np.isfinite(values)].sum()) for _, values in readings]
    name, values = readings[int(np.argmax(found))]
    counted = rows > 0
    for (other, others), count in zip(readings, found, strict=True):
        if not preferred and count == max(found) and not np.array_equal(values[counted], others[counted], equal_nan=True):
            raise Ambiguous((name, other))
    return name, values


def remove_words(column: CategoricalColumn, words: Sequence[str]) -> CategoricalColumn:
    """The column, in which cells that are ``words``, in any case, are missing; not one of its levels if none is."""
    gone = absent(pa.array(column.levels, pa.large_string()), map(str.lower, words)) if words else np.zeros(0, np.bool_)
    if not gone.any():
        return column
    codes = np.append(np.where(gone, -1, np.cumsum(~gone) - 1), -1)
    return CategoricalColumn(codes[column.codes], tuple(np.array(column.levels, object)[~gone]), column.detected)


def _forms(notation: Notation, own: DecimalSign, *, alone: bool) -> Iterator[NumberForm]:
    """The readings that are possible, those with the column's own decimals first."""
    alone = alone or notation.decimal is not None or notation.thousands == ""  # then no other sign of decimals is possible
    both: tuple[DecimalSign, ...] = (own,) if alone else (own, "," if own == "." else ".")
    decimals = [decimal for decimal in both if decimal != notation.thousands]
    separators = get_args(Thousands) if notation.thousands is None else dict.fromkeys(("", notation.thousands))
    for decimal in decimals:
        yield from (NumberForm(decimal, thousands) for thousands in separators if thousands != decimal)


def _readings(
    parts: _Parts, plain: NDArray[np.float64], forms: Iterator[NumberForm]
) -> list[tuple[NumberForm, NDArray[np.float64]]]:
    """What each form finds; the first one, without anything beside the numbers, what are ``plain`` ones."""
    first, *others = forms
    found = [(form, parts.read(form)) for form in others if parts.has(form)]
    return [(first, parts.read(first) if parts.unit else plain), *found]


def _seeming(texts: pa.Array, rows: NDArray[np.int64], notation: Notation, form: NumberForm, *, certain: bool) -> Seems | None:
    """What the numbers among ``texts``, which ``rows`` have, may mean besides. Raises Ambiguous if that is the likelier."""
    numbers = texts.filter(pa.array(rows > 0))
    if form.thousands:
        return "codes" if are_codes(numbers, int(rows.sum()), form.thousands) else None
    if form.decimal == "," or notation.decimal is not None or notation.thousands is not None:
        return None
    how = thousands_by_points(pc.struct_field(pc.extract_regex(numbers, _NUMBER), "digits"))
    if how == "likely" and certain:
        raise Ambiguous((form, NumberForm(",", ".")))
    return "thousands" if how else None


class _Parts:
    """Texts, taken apart: digits with their separators, and what stands beside them.

    Args:
        texts: k of them.
        rows: how many rows have each.
        unit: that numbers have; None: the one that the most of them have.

    Attributes:
        unit: the same; empty: none.
    """

    def __init__(self, texts: pa.Array, rows: NDArray[np.int64], unit: str | None) -> None:
        parts = pc.extract_regex(texts, _NUMBER)
        minus, before, second, digits, exponent, after = (
            pc.fill_null(pc.struct_field(parts, name), "")
            for name in ("minus", "before", "second", "digits", "exponent", "after")
        )
        units = pc.utf8_trim_whitespace(_join(before, after, between=" "))
        there = pc.fill_null(pc.greater(pc.binary_length(digits), 0), False).to_numpy(zero_copy_only=False)
        zero = there & matches(digits, r"^[0.,]*$")
        self.unit = _commonest(units, np.where(there & ~zero, rows, 0)) if unit is None else unit
        bare = pc.equal(units, "").to_numpy(zero_copy_only=False) & zero
        self._usable = there & (pc.equal(units, self.unit).to_numpy(zero_copy_only=False) | bare)
        signs = pc.if_else(pc.or_(pc.equal(minus, "-"), pc.equal(second, "-")), "-", "").cast(pa.large_string())
        self._digits, self._exponent, self._sign = digits, exponent, signs
        self._marks = {mark for mark in ",.' " if pc.any(pc.match_substring(digits, mark)).as_py()}

    def has(self, form: NumberForm) -> bool:
        """Whether the separator of thousands occurs, if the form has one."""
        return form.thousands == "" or form.thousands in self._marks

    def read(self, form: NumberForm) -> NDArray[np.float64]:
        """The numbers, float64[k]; infinity: none."""
        between = form.thousands
        grouped = f"|[1-9][0-9]{{0,2}}(?:[{between}][0-9]{{3}})+" if between else ""
        grouped += "|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}" if between == "," else ""
        usable = self._usable & matches(self._digits, f"^(?:[0-9]*{grouped})(?:[{form.decimal}][0-9]*)?$")
        if between:  # nobody groups the digits of 1,234E+05
            usable &= ~(matches(self._digits, f"[{between}]") & matches(self._exponent, "."))
        digits = pc.replace_substring(self._digits, between, "") if between else self._digits
        texts = _join(self._sign, pc.replace_substring(digits, form.decimal, "."), self._exponent)
        return np.where(usable, numbers_of(pc.if_else(pa.array(usable), texts, "0")), np.inf)


def _commonest(units: pa.Array, rows: NDArray[np.int64]) -> str:
    encoded = units.dictionary_encode()
    if not rows.any():
        return ""
    counts = np.bincount(encoded.indices.to_numpy(), weights=rows, minlength=len(encoded.dictionary))
    return str(encoded.dictionary[int(np.argmax(counts))].as_py())


def _join(*texts: pa.Array, between: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*texts, pa.scalar(between, pa.large_string()))


def _spell_plainly(texts: pa.Array) -> pa.Array:
    """The same with ASCII's apostrophe and space, and its minus before the number."""
    *_, content = texts.buffers()
    letters = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    if letters.max(initial=0) > _ASCII:
        for letter, plain in _SPELLINGS:
            texts = pc.replace_substring(texts, letter, plain)
    if np.isin(letters, (ord("("), ord("-"))).any():
        texts = pc.replace_substring_regex(texts, r"^([^0-9()-]{0,4})\(([^()-]*[0-9][^()-]*)\)$", r"-\1\2")
        texts = pc.replace_substring_regex(texts, r"^([0-9][0-9.,' ]*)-$", r"-\1")
    return texts


def _may_be_numbers(texts: pa.Array) -> bool:
    look = texts.take(pa.array(np.arange(0, len(texts), max(1, len(texts) // LOOKED_AT))))
    return 2 * int(np.count_nonzero(matches(look, _NUMBER) | absent(look, ABSENT))) > len(look)
