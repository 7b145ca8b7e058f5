"""Hours of the week in which jobs may begin, such as ``mon-fri 18:00-06:00``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from vfl_node.configuration.models import text_like

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_DAY = "(?:" + "|".join(DAYS) + ")"

Window = Annotated[
    str,
    text_like(
        rf"^(?:daily|{_DAY}(?:-{_DAY})?) (?:[01]\d|2[0-3]):[0-5]\d-(?:(?:[01]\d|2[0-3]):[0-5]\d|24:00)$",
        "days and hours, such as 'mon-fri 18:00-06:00', 'sat 00:00-24:00' or 'daily 22:00-05:00'",
    ),
]
"""Days, and hours on each of them. Hours that end before they begin go past midnight, and belong to the day of the evening."""


def is_within(windows: Sequence[str], now: datetime) -> bool:
    """Whether ``now``, in the zone of the windows, lies in one of them."""
    return any(_is_in(window, now) for window in windows)


def openings(windows: Sequence[str], now: datetime) -> list[datetime]:
    """When they next begin, within a week and a day from ``now``."""
    found = []
    for begin in {window.split(" ")[1][:5] for window in windows}:
        today = now.replace(hour=int(begin[:2]), minute=int(begin[3:]), second=0, microsecond=0)
        found += [at for days in range(9) if (at := today + timedelta(days=days)) > now and is_within(windows, at)]
    return found


def _is_in(window: str, now: datetime) -> bool:
    days, hours = window.split(" ")
    begin, end = hours.split("-")
    clock, today = f"{now:%H:%M}", now.weekday()
    if begin < end:
        return _has(days, today) and begin <= clock < end
    return (_has(days, today) and begin <= clock) or (_has(days, (today - 1) % 7) and clock < end)


def _has(days: str, day: int) -> bool:
    if days == "daily":
        return True
    first, _, last = days.partition("-")
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return begin <= day <= end if begin <= end else day >= begin or day <= end
