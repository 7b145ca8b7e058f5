"""A list of a node's jobs: which of them are wanted, in which order, and how many there are; no report is read for it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.node.record import Record, is_resumable, names_in
from vfl_node.web.wanted import GROUPS, KINDS, RESUMABLE, Wanted

_KINDS = {state: ("", state, group) for group, states in GROUPS.items() for state in states}


class JobLine(NamedTuple):
    """What a list is made of, of one job, as the index has it: perhaps damaged, and without what is not needed."""

    number: int
    id: str
    name: str | None = None
    state: str = ""
    submitted: str | None = None
    finished: str | None = None
    code: str | None = None
    figures: str | None = None
    spec: str | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those of :data:`vfl_node.web.wanted.KINDS` that it is of."""
        kinds = _KINDS.get(self.state, ("", self.state))
        return (*kinds, RESUMABLE) if is_resumable(self.state, self.code) else kinds

    def ended_as(self, record: Record) -> JobLine:
        """This job with an end that the index does not have yet."""
        return self._replace(state=record.state, finished=record.finished, code=record.code, figures=record.figures)


@dataclass(frozen=True)
class Selection:
    """Lines that are wanted.

    Attributes:
        lines: of the page.
        counts: of those that have the words that are searched for, how many there are of each kind.
        total: how many are on all pages.
    """

    lines: list[JobLine]
    counts: dict[str, int]
    total: int


def needed(wanted: Wanted) -> set[str]:
    """Fields of a line by which :func:`select` finds what is wanted."""
    _, fields = _KEYS[wanted.sort.removeprefix("-")]
    return {"id", "state", "code", *fields, *(("name", "spec") if wanted.search else ())}


def select(lines: Sequence[JobLine], wanted: Wanted) -> Selection:
    """Those of ``lines``, newest first, that are ``wanted``."""
    words = wanted.search.lower().split()
    found = [line for line in lines if _has(line, words)] if words else lines
    counts = Counter(kind for line in found for kind in line.kinds)
    chosen = _arrange([line for line in found if wanted.state in line.kinds], wanted.sort)
    first = (wanted.page - 1) * wanted.size
    return Selection(chosen[first : first + wanted.size], {kind: counts[kind] for kind in KINDS}, len(chosen))


def took_s(submitted: str | None, finished: str | None) -> float | None:
    """Seconds from when a job came here until it ended; None while it has not."""
    if finished is None or not submitted:
        return None
    return (datetime.fromisoformat(finished) - datetime.fromisoformat(submitted)).total_seconds()


def _has(line: JobLine, words: Sequence[str]) -> bool:
    """Whether all of ``words`` stand in a job's name, id, error code, parties or purpose."""
    text = f"{line.name} {line.id} {line.code or ''}".lower()
    if all(word in text for word in words):
        return True
    try:
        document = json.loads(line.spec or "{}")
        text = " ".join((text, *names_in(document), document.get("purpose") or "")).lower()
    except (ValueError, AttributeError, TypeError):  # damaged
        return False
    return all(word in text for word in words)


def _arrange(lines: list[JobLine], sort: str) -> list[JobLine]:
    """``lines``, newest first, as wanted; those without what they are sorted by come last."""
    down = sort.startswith("-")
    key, fields = _KEYS[sort.removeprefix("-")]
    if not fields:  # by age, as they are
        return lines[::-1] if down else lines
    values = {line.number: value for line in lines if (value := key(line)) is not None}
    known = [line for line in lines if line.number in values]
    known.sort(key=lambda line: values[line.number], reverse=down)
    return known + [line for line in lines if line.number not in values]


def _took(line: JobLine) -> float | None:
    try:
        return took_s(line.submitted, line.finished)
    except (ValueError, TypeError):  # damaged
        return None


def _metric(line: JobLine) -> float | None:
    """The main metric, the better the larger."""
    try:
        metric = json.loads(line.figures or "{}")["metric"]
        return float(metric["value"]) * (-1 if metric["name"] in LOWER_IS_BETTER else 1)
    except (ValueError, KeyError, TypeError):
        return None


_KEYS: Mapping[str, tuple[Callable[[JobLine], Any], tuple[str, ...]]] = {
    "age": (lambda line: None, ()),
    "name": (lambda line: (line.name or "").lower(), ("name",)),
    "state": (lambda line: line.state, ("state",)),
    "took": (_took, ("submitted", "finished")),
    "metric": (_metric, ("figures",)),
}
"""Order of a list → by what of a line, and the fields that this needs."""
