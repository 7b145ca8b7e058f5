"""Dates and times of ISO 8601, and the parts of a date that a model reads.

Here a date is YYYY-MM-DD of ISO 8601; :mod:`vfl_node.data.date_formats` knows other ways to write one. A time may follow after
``T`` or a space: HH:MM, HH:MM:SS, fractions of a second (which are left out), and ``Z``, ``UTC`` or an offset such as
``+02:00``. A time with an offset is converted to UTC, one without is taken as it is.

=============  =============================================================
part           what a model reads
=============  =============================================================
``days``       a number: days since 1970-01-01, with the time of day as a fraction
``month``      a category: 01 … 12
``weekday``    a category: 1, Monday, … 7, Sunday
``hour``       a category: 00 … 23
=============  =============================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, ListColumn, NumericColumn

Part = Literal["days", "month", "weekday", "hour"]

PARTS: tuple[Part, ...] = get_args(Part)

DAY_S = 86_400

_ISO = re.compile(
    r"((?!0000)\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)?(Z| ?UTC|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_UTC = ("Z", "UTC", " UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_MONTHS = tuple(f"{month:02}" for month in range(1, 13))
_WEEKDAYS = tuple("1234567")
_HOURS = tuple(f"{hour:02}" for hour in range(24))


def seconds_of(levels: Sequence[str]) -> NDArray[np.float64]:
    """Whole seconds since 1970-01-01, float64[n]; infinite where a text is no date.

    Cost: about 1 µs a text where all are written alike, in UTC or without an offset, else 10 µs (one core of a small server).
    """
    alike = _alike(levels)
    return np.fromiter(map(_seconds, levels), np.float64, len(levels)) if alike is None else alike


def _alike(levels: Sequence[str]) -> NDArray[np.float64] | None:
    """The same, if all are dates that are written as the first one is, in UTC or without an offset."""
    form = _ISO.fullmatch(levels[0]) if levels else None
    if form is None or form[4] not in (None, *_UTC):
        return None
    try:
        cells = np.array(levels, dtype=np.bytes_)[:, None].view(np.uint8)  # (n, width), short texts filled up with 0
        first, width = cells[0], 19 if form[3] else 16 if form[2] else 10
        digits = (first >= ord("0")) & (first <= ord("9"))
        if (cells[:, digits] - ord("0") > 9).any() or (cells[:, ~digits] != first[~digits]).any():
            return None
        texts = np.ascontiguousarray(cells[:, :width]).view(f"S{width}")[:, 0]
        return None if (texts < b"0001").any() else texts.astype("datetime64[s]").astype(np.float64)
    except ValueError:  # another alphabet; a day or time that does not exist
        return None


def _seconds(text: str) -> float:
    form = _ISO.fullmatch(text)
    if form is None:
        return np.inf
    day, minute, second, offset = form.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}+00:00")
    except ValueError:  # no such day or time
        return np.inf
    since = (moment - _EPOCH) // timedelta(seconds=1)
    if offset and offset not in _UTC:
        digits = offset[1:].replace(":", "").ljust(4, "0")
        shift = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        since += -shift if offset[0] == "+" else shift
    return float(since)


def part_of(column: Column | None, part: Part | None) -> Column | None:
    """What a model reads as ``part`` of a column of dates; None: the column itself if it has none."""
    if not isinstance(column, DateColumn):
        return column if part is None else None
    if part is None:
        return None
    if part == "days":
        return NumericColumn(column.seconds / DAY_S, column.scaling)
    known = ~np.isnan(column.seconds)
    seconds = np.where(known, column.seconds, 0).astype(np.int64)
    if part == "month":
        codes, levels = seconds.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64) % 12, _MONTHS
    elif part == "weekday":
        codes, levels = (seconds // DAY_S + 3) % 7, _WEEKDAYS  # 1970-01-01 was a Thursday
    else:
        codes, levels = seconds // 3600 % 24, _HOURS
    return CategoricalColumn(np.where(known, codes, -1), levels)


def varies(codes: NDArray[np.int64]) -> bool:
    """Whether two different values are among codes int64[n], −1 being none."""
    known = codes[codes >= 0]
    return len(known) > 0 and bool((known != known[0]).any())


def parts_of(column: Column) -> Iterator[tuple[Part | None, NumericColumn | CategoricalColumn | ListColumn]]:
    """What a model reads of a column, and which part each is: of dates all parts, of another column itself."""
    for part in PARTS if isinstance(column, DateColumn) else (None,):
        read = part_of(column, part)
        assert isinstance(read, NumericColumn | CategoricalColumn | ListColumn)
        yield part, read


def date_column(days: NDArray[np.float64]) -> DateColumn:
    """The dates of float64[n] days since 1970-01-01; NaN: missing."""
    with np.errstate(over="ignore"):
        return DateColumn(np.clip(np.rint(days * DAY_S), -_FARTHEST, _FARTHEST))


_FARTHEST = 1e12
"""Seconds: 30,000 years, far within what numpy's dates hold."""
