"""How often something may happen with a partner: so many times at all, and so many new ones within a week or a year."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from vfl_node.configuration.models import Frozen

Period = Literal["week", "year"]

LENGTHS = {"week": timedelta(days=7), "year": timedelta(days=365)}
"""Period → how long it is."""


class Bound(Frozen):
    """At most so many: at all, or within any period that ends now."""

    most: Annotated[int, Field(ge=0)]
    per: Period | None = None


@dataclass(frozen=True)
class Use:
    """How much of a bound is used.

    Attributes:
        used: how many.
        most: how many there may be; None: any number.
        per: within which period (``epoch``: of a key, ``queries_per_peer.rotate_days``); None: at all.
        free: the day, in UTC, on which fewer count, and one more fits if it does not yet. None: nothing will be free again.
    """

    used: float
    most: float | None
    per: Period | Literal["day", "epoch"] | None = None
    free: date | None = None

    @property
    def left(self) -> float:
        """What is left."""
        return float("inf") if self.most is None else self.most - self.used

    def describe(self) -> dict[str, Any]:
        """used, allowed; with a period also per, and free."""
        rate = {"per": self.per, "free": self.free and self.free.isoformat()} if self.per else {}
        return {"used": self.used, "allowed": self.most, **rate}


def count_recent(bound: Bound, times: Iterable[str], now: str) -> Use:
    """How much of a bound with a period is used by what began to count at these times: UTC, ISO 8601, to the second."""
    assert bound.per
    length = LENGTHS[bound.per]
    begin = (datetime.fromisoformat(now) - length).isoformat(timespec="seconds")
    recent = sorted(at for at in times if at > begin)
    leaving = recent[max(0, len(recent) - bound.most)] if recent else None
    free = (datetime.fromisoformat(leaving) + length).date() if leaving else None
    return Use(len(recent), bound.most, bound.per, free)


def total_of(limit: Any) -> Any:
    """How many there may be at all; None: any number."""
    return next((bound.most for bound in limit if not bound.per), None) if isinstance(limit, tuple) else limit


def rates_of(limit: Any) -> tuple[Bound, ...]:
    """The bounds with a period."""
    return tuple(bound for bound in limit if bound.per) if isinstance(limit, tuple) else ()


def raise_total(limit: Any, more: float) -> Any:
    """``limit``, and so many more at all. Bounds with a period stay as they are, and so does what has no bound."""
    if isinstance(limit, tuple):
        return tuple(bound if bound.per else bound.model_copy(update={"most": bound.most + int(more)}) for bound in limit)
    return None if limit is None else limit + (int(more) if more == int(more) else more)


def tighten(*limits: int | tuple[Bound, ...]) -> int | tuple[Bound, ...]:
    """What all of them allow: for each period, and at all, the smallest number."""
    each = [limit if isinstance(limit, tuple) else (Bound(most=limit),) for limit in limits]
    smallest: dict[Period | None, int] = {}
    for bound in (bound for bounds in each for bound in bounds):
        smallest[bound.per] = min(bound.most, smallest.get(bound.per, bound.most))
    if set(smallest) == {None}:
        return smallest[None]
    return tuple(Bound(most=smallest[per], per=per) for per in ("week", "year", None) if per in smallest)


def _settle(bounds: tuple[Bound, ...]) -> int | tuple[Bound, ...]:
    """The same in the order of periods; a number where there is no period. Raises ValueError."""
    periods = [bound.per for bound in bounds]
    if len(set(periods)) < len(periods):
        raise ValueError("each of week, year and no period at all may have one number")
    if any(bound.per and not bound.most for bound in bounds):
        raise ValueError("of a week or a year the number is 1 or more")
    return tighten(bounds)


Limit = Annotated[int, Field(ge=0)] | Annotated[tuple[Bound, ...], Field(min_length=1), AfterValidator(_settle)] | None
"""A number, or bounds; None: any number of times."""
