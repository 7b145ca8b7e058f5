"""How a column of text writes its dates. The whole column decides, as of numbers (:mod:`vfl_node.data.notation`).

A format has ``d`` and ``m`` (one digit or two), ``b`` (the English name of a month, its first three letters or ``Sept``, in any
case, with a point or without), ``Y`` (four digits) and ``y`` (two: 69 … 99 are of the last century), with what stands between
them: ``d/m/Y``, ``d.m.Y``, ``d-b-Y``, ``b d, Y``. A time may follow: HH:MM or HH:MM:SS, and ``AM`` or ``PM``. ``Y-m-d`` is
ISO 8601, where a time may have an offset as well (:mod:`vfl_node.data.dates`).

A column that does not say its format has one of :data:`FORMATS`. So 13/02/2020 in any row tells days from months; if no row
does, the column is ambiguous, and its owner must say the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vfl_node.data.dates import seconds_of
from vfl_node.data.missing_words import ABSENT
from vfl_node.data.notation import INFINITE, LOOKED_AT, SHARE, choose_reading, means_infinite, remove_words
from vfl_node.data.tables import CategoricalColumn, DateColumn
from vfl_node.settings.declared import ISO, UNSAID, Notation

FORMATS = (
    ISO,
    *(mark.join(order) for order in ("Ymd", "dmY", "mdY", "dbY") for mark in "/.- " if mark.join(order) != ISO),
    *("b d Y", "b d, Y"),
)
"""Those that are recognised."""

_PATTERNS = {"b": r"(?P<b>[A-Za-z]{3,9})\.?", "Y": "(?P<Y>[0-9]{4})", "y": "(?P<y>[0-9]{2})"}
_TIME = r"(?:[T ](?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,][0-9]{1,9})?)?(?: ?(?P<p>[AaPp])[Mm])?)?"
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_LIKE = re.compile(
    r"(?:([0-9]{4}|[0-9]{1,2})([/. -])([0-9]{1,2}|[A-Za-z]{3,9}\.?)\2([0-9]{4}|[0-9]{1,2})|"
    r"[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4})(?![0-9])"
)
_PIVOT = 69
"""The first year of two digits that is of the last century: POSIX."""


def dates_in(
    column: CategoricalColumn, notation: Notation = UNSAID, *, declared: bool = False, whole: bool = True
) -> DateColumn | None:
    """The dates of a column of text; those of its values that are no date are infinite. None: too few are dates.

    Args:
        column: as text.
        notation: what the owner says of it.
        declared: whether it holds dates, however few of its values are.
        whole: whether these are all rows; of formats that the first rows allow, the others may exclude some.

    Cost: that of :func:`~vfl_node.data.dates.seconds_of` for each format that a look at 200 levels allows.

    Raises:
        Ambiguous: two formats are possible.
    """
    formats = _possible(column.levels, notation.date_format)
    if not formats and declared:
        formats = [notation.date_format or ISO]
    if not formats:
        return None
    kept = remove_words(column, (*ABSENT, *notation.missing, *(INFINITE if means_infinite(notation.missing) else ())))
    rows, readings = kept.counts, [(each, seconds_as(kept.levels, each)) for each in formats]
    infinite = np.array([level.lower() in INFINITE for level in kept.levels], np.bool_)
    if not declared and rows[_finite(readings) | infinite].sum() < SHARE * rows.sum():
        return None
    found, seconds = choose_reading(readings, rows, preferred=not whole)
    absent = np.minimum(seconds_as(notation.missing, found), seconds_as(notation.missing, ISO))
    seconds[np.isin(seconds, absent[np.isfinite(absent)])] = np.nan
    said = Notation(missing=notation.missing, date_format=notation.date_format or (None if found == ISO else found))
    return DateColumn(np.append(seconds, np.nan)[kept.codes], notation=None if said == UNSAID else said)


def seconds_as(levels: Sequence[str], written: str) -> NDArray[np.float64]:
    """Whole seconds since 1970-01-01 of dates in one format, float64[n]; infinite where a text is none."""
    seconds = seconds_of(levels) if written == ISO else np.full(len(levels), np.inf)
    rest = np.flatnonzero(np.isinf(seconds))
    if len(rest):
        parts = pc.extract_regex(pa.array(levels, pa.large_string()).take(pa.array(rest)), _pattern(written))
        seconds[rest] = _seconds({part.name: parts.field(k) for k, part in enumerate(parts.type)}, parts.is_valid())
    return seconds


def _finite(readings: Sequence[tuple[str, NDArray[np.float64]]]) -> NDArray[np.bool_]:
    """Which cells are dates in one format at least, bool[k]."""
    return np.logical_or.reduce([np.isfinite(seconds) for _, seconds in readings])


def _possible(levels: Sequence[str], said: str | None) -> list[str]:
    """The formats in which most of some of the levels are written; with ``said`` no other order of three numbers."""
    look = levels[:: max(1, len(levels) // LOOKED_AT)]
    if said is None and 2 * sum(_LIKE.match(level) is not None for level in look) <= len(look):
        return []
    others = (each for each in FORMATS if said is None or each[0] == "Y" or "b" in each)
    formats = dict.fromkeys((said, *others) if said else others)
    return [each for each in formats if 2 * sum(_compile(each).match(level) is not None for level in look) > len(look)]


@cache
def _pattern(written: str, time: str = _TIME) -> str:
    """The pattern of a whole cell. Where nothing stands between them, days and months have two digits."""
    digits = "{2}" if len(written) == 3 else "{1,2}"
    patterns = _PATTERNS | {part: f"(?P<{part}>[0-9]{digits})" for part in "dm"}
    return f"^{''.join(patterns.get(sign, re.escape(sign)) for sign in written)}{time}$"


@cache
def _compile(written: str) -> re.Pattern[str]:
    return re.compile(_pattern(written, r"(?:[T ]\d{1,2}:.*)?" if written == ISO else _TIME), re.ASCII)


def _seconds(parts: Mapping[str, pa.Array], valid: pa.Array) -> NDArray[np.float64]:
    def numbers(part: str) -> NDArray[np.int64]:
        if part not in parts:
            return np.zeros(len(valid), np.int64)
        digits = pc.replace_substring_regex(pc.fill_null(parts[part], "0"), "^$", "0")
        return np.asarray(digits.cast(pa.int64()).to_numpy(zero_copy_only=False))

    year = numbers("Y")
    if "y" in parts:
        year = numbers("y") + np.where(numbers("y") < _PIVOT, 2000, 1900)
    month = _month_numbers(parts["b"]) if "b" in parts else numbers("m")
    day, hour, minute, second = map(numbers, "dHMS")
    half = pc.fill_null(pc.utf8_lower(parts["p"]), "").to_numpy(zero_copy_only=False)
    usable = valid.to_numpy(zero_copy_only=False) & (year > 0) & (month >= 1) & (month <= 12) & (day >= 1)
    usable &= (minute < 60) & (second < 60) & np.where(half == "", hour < 24, (hour >= 1) & (hour <= 12))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "p"))
    first = (np.where(usable, (year - 1970) * 12 + month - 1, 0)).astype("datetime64[M]")
    usable &= day <= ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    return np.where(usable, days * 86_400.0 + hour * 3600 + minute * 60 + second, np.inf)


def _month_numbers(names: pa.Array) -> NDArray[np.int64]:
    """Months by their English names, from 1; 0: none."""
    known = pa.array([month[:length] for length in (3, None) for month in _MONTHS])
    lower = pc.replace_substring_regex(pc.utf8_lower(pc.fill_null(names, "")).cast(pa.string()), "^sept$", "sep")
    found = pc.index_in(lower, value_set=known)
    place = np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False))
    return np.where(place < 0, 0, place % 12 + 1).astype(np.int64)
