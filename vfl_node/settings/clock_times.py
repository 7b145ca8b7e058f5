"""Minutes of the clock that come again and again, as five fields of cron say them: ``0 3 * * mon``.

Each field is ``*``, or numbers, ranges and steps with commas between: ``0,30``, ``9-17``, ``*/15``, ``mon-fri``. Where both the
day of the month and the day of the week are restricted, a day of either is meant, as cron has it.

A local time comes once a day. Where the clock is put back, and an hour comes twice, the first of the two counts. Where the
clock is put forward, and an hour is left out, its minutes come as long after midnight as on other days: 02:30 is then at 03:30.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import cached_property
from itertools import pairwise

from vfl_node.settings.hours import DAYS

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(DAYS, 1)}),
)
"""Name, least and largest number, and words for numbers. Sunday is 0 and 7."""

_LAST = date(9999, 12, 30)
_LONGEST = 366 * 8 + 2
"""Days within which any minute comes again: 29 February may be left out once in a century."""


class ClockTimes:
    """The minutes of one line.

    Args:
        text: five fields.

    Raises:
        ValueError: it cannot be read, or never comes.
    """

    def __init__(self, text: str) -> None:
        fields = text.lower().split()
        if len(fields) != len(_FIELDS):
            raise ValueError(f"{text[:80]!r} has {len(fields)} fields, not 5: minute, hour, day, month, day of the week")
        self._minutes, self._hours, self._days, self._months, weekdays = map(_read_field, fields, _FIELDS)
        self._weekdays = {day or 7 for day in weekdays}
        self._either = not (fields[2].startswith("*") or fields[4].startswith("*"))
        if next(self.list_after(datetime(2000, 1, 1, tzinfo=timezone.utc), timezone.utc), None) is None:
            raise ValueError(f"{text[:80]!r} never comes: no such day is in such a month")

    @cached_property
    def of_a_day(self) -> list[tuple[int, int]]:
        """Hours and minutes, in their order."""
        return [(hour, minute) for hour in sorted(self._hours) for minute in sorted(self._minutes)]

    @property
    def least_gap(self) -> timedelta:
        """The shortest time between two of them on days that have all hours."""
        minutes = [60 * hour + minute for hour, minute in self.of_a_day]
        return timedelta(minutes=min(later - earlier for earlier, later in pairwise([*minutes, minutes[0] + 24 * 60])))

    def list_after(self, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
        """All of them later than ``moment``, in UTC, one after the other."""
        day = seen = moment.astimezone(zone).date() - timedelta(days=1)  # whose last minutes may be put forward into the next
        while (day - seen).days < _LONGEST and day < _LAST:
            for at in self._list_of(day, zone):
                if at > moment:
                    moment, seen = at, day
                    yield at
            day += timedelta(days=1)

    def find_day(self, at: datetime, zone: tzinfo) -> date:
        """The local day for which ``at`` is planned: the one before where the clock was put forward over midnight."""
        day = at.astimezone(zone).date()
        before = day - timedelta(days=1)
        return before if at in self._list_of(before, zone) and at not in self._list_of(day, zone) else day

    def _list_of(self, day: date, zone: tzinfo) -> list[datetime]:
        """Those that are planned for a local day, in UTC and in their order."""
        if not self._has(day):
            return []
        local = (datetime(day.year, day.month, day.day, *time, tzinfo=zone) for time in self.of_a_day)
        return sorted(each.astimezone(timezone.utc) for each in local)

    def _has(self, day: date) -> bool:
        of_month, of_week = day.day in self._days, day.isoweekday() in self._weekdays
        return day.month in self._months and (of_month or of_week if self._either else of_month and of_week)


def _read_field(text: str, field: tuple[str, int, int, dict[str, int]]) -> set[int]:
    """The numbers that one field means. Raises ValueError."""
    name, least, most, words = field
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, dash, end = span.partition("-")
        if span == "*":
            begin, end = str(least), str(most)
        elif not dash:
            end = str(most) if step else begin
        numbers = [str(words.get(word, word)) for word in (begin, end, step or "1")]
        if not all(number.isascii() and number.isdigit() and len(number) < 3 for number in numbers) or "/" in step:
            raise ValueError(f"{part[:40]!r} is no {name}: write *, numbers from {least} to {most}, 1-5 or */15")
        low, high, by = map(int, numbers)
        if not (least <= low <= high <= most and by):
            raise ValueError(f"{part[:40]!r} is no {name}: it has numbers from {least} to {most}, the smaller one first")
        found |= set(range(low, high + 1, by))
    return found
