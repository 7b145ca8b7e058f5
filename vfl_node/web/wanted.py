"""Which jobs of a list are wanted: of which states, with which words, in which order, and which page of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from vfl_node.errors import UsageError

MOST_SIZE = 200
"""Jobs on one page at most."""

SIZE = 50
"""Jobs on a page where nobody says."""

MOST_SEARCHED = 100
"""Characters of a search."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "open": ("asked", "waiting", "running", "paused", "unconfirmed"),
    "ended": ("failed", "cancelled"),
}
"""Kind of jobs → their states."""

RESUMABLE = "resumable"
"""The kind of jobs that wait for their owner to go on with them."""

KINDS = ("", *GROUPS, *GROUPS["open"], "done", *GROUPS["ended"], RESUMABLE)
"""Kinds of jobs that may be wanted; the first is every job."""

SORTS = ("age", "name", "state", "took", "metric")
"""Orders of a list, each from the smallest on; with ``-`` before it from the largest on."""


@dataclass(frozen=True)
class Wanted:
    """Which jobs of a list are wanted.

    Attributes:
        state: one of :data:`KINDS`.
        search: words that stand in a job's name, id, parties, purpose or error code, all of them.
        sort: one of :data:`SORTS`, perhaps with ``-`` before it.
        page: which page, from 1.
        size: jobs on a page.
    """

    state: str = ""
    search: str = ""
    sort: str = "age"
    page: int = 1
    size: int = SIZE

    def link(self, **changes: Any) -> str:
        """The address of the list with ``changes``: of its first page, if they do not name another one."""
        wanted, plain = replace(self, **{"page": 1, **changes}), type(self)()
        said = {field.name: getattr(wanted, field.name) for field in fields(self)}
        return f"/?{urlencode({name: value for name, value in said.items() if value != getattr(plain, name)})}".rstrip("?")

    def turn(self, sort: str, first: str = "") -> str:
        """The address of the list sorted by ``sort``, or the other way round if it is; ``first`` is ``-`` or empty."""
        other = "" if first else "-"
        return self.link(sort=f"{other if self.sort == first + sort else first}{sort}")


WAITING = Wanted(state="waiting", sort="-age", size=10)
"""The jobs that have waited for longest."""


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """What the parameters of a request ask for.

    Raises:
        UsageError: one of them cannot be used (``E_REQUEST``).
    """
    wanted = Wanted()
    for name, (read, expected) in _READ.items():
        if name in query:
            try:
                wanted = replace(wanted, **{name: read(query[name])})
            except ValueError:
                raise UsageError(f"{name} is {expected}", code="E_REQUEST") from None
    return wanted


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return read


def _number(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text[:10])
        if not 1 <= number <= most:
            raise ValueError(text)
        return number

    return read


_READ: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "state": (_one_of(*KINDS), f"one of {', '.join(filter(None, KINDS))}"),
    "search": (lambda text: text[:MOST_SEARCHED].strip(), "text"),
    "sort": (_one_of(*SORTS, *(f"-{name}" for name in SORTS)), f"one of {', '.join(SORTS)}, perhaps with - before it"),
    "page": (_number(1_000_000), "a number from 1 on"),
    "size": (_number(MOST_SIZE), f"a number from 1 to {MOST_SIZE}"),
}
"""Parameter → how it is read, and what is expected."""
