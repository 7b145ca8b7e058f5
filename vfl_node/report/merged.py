"""One time line of the traces of several parties (:mod:`vfl_node.report.timeline`), each by the clock of its machine.

A message that A sends at s and B receives at r, each by its own clock, takes r - s = travel + ahead, where B's clock is
``ahead`` of A's; in the other direction it is travel - ahead. So ``ahead`` is half the difference of the medians of both
directions, as NTP estimates it. Only messages that their receiver waited for count: any other one lay there before it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vfl_node.errors import UsageError
from vfl_node.report.timeline import WAIT_US, Timeline, TraceEvent

Key = tuple[int, str, str, int]
"""Attempt, sender, receiver and number of a message: the same in the traces of both."""


@dataclass(frozen=True)
class Clock:
    """What the messages between two parties tell of their clocks.

    Attributes:
        ahead_us: how far the second party's is ahead.
        travel_us: how long a message takes from one to the other, about.
        messages: how many were compared.
    """

    ahead_us: int
    travel_us: int
    messages: int


def compare_clocks(first: Timeline, second: Timeline) -> Clock | None:
    """The clocks of two parties; None where their traces have no messages of both directions in common."""
    there, back = _delays(first, second), _delays(second, first)
    if not (there and back):
        return None
    one, other = median(there), median(back)
    return Clock(round((one - other) / 2), round((one + other) / 2), len(there) + len(back))


def merge(halves: Sequence[Timeline], *, same_clock: bool = False) -> Timeline:
    """One time line of those of single parties, by the clock of the first one's.

    Args:
        halves: each of one party.
        same_clock: whether all are of one machine, so that nothing is moved.

    Raises:
        UsageError: they are not of one job, or two are of one party, or one has no messages with another (``E_TRACE``).
    """
    parties = [_party(half) for half in halves]
    first = halves[0].otherData
    if {half.otherData.job for half in halves} != {first.job}:
        raise UsageError("these traces are not of one job", code="E_TRACE", hint=f"ask each party for its trace of {first.job}")
    if len(set(parties)) < len(parties):
        raise UsageError("two of these traces are of one party", code="E_TRACE", hint="give one file of each party")
    moved = dict.fromkeys(parties[1:], 0) if same_clock else _moves(dict(zip(parties, halves, strict=True)))
    events = [
        _placed(event, pid, moved.get(party, 0))
        for pid, (party, half) in enumerate(zip(parties, halves, strict=True), 1)
        for event in half.traceEvents
    ]
    events.sort(key=lambda event: (event.ph != "M", event.ts, -(event.dur or 0)))
    about = first.model_copy(update={"parties": parties, "moved_us": moved})
    return Timeline(traceEvents=events, otherData=about)


def _party(half: Timeline) -> str:
    parties = half.otherData.parties
    if len(parties) != 1:
        raise UsageError(
            f"a trace of {' and '.join(parties)} is merged already", code="E_TRACE", hint="give the file that each party wrote"
        )
    return parties[0]


def _moves(halves: Mapping[str, Timeline]) -> dict[str, int]:
    """Party → how far its clock is ahead of the first one's, along conversations of parties whose traces are there."""
    first, *rest = halves
    ahead = {first: 0}
    while rest:
        found = (
            (party, ahead[known] + clock.ahead_us)
            for party in rest
            for known in ahead
            if (clock := compare_clocks(halves[known], halves[party]))
        )
        party, moved = next(found, ("", 0))
        if not party:
            raise UsageError(
                f"no message in these traces is between {' or '.join(rest)} and {' or '.join(ahead)}, so their clocks cannot "
                "be compared",
                code="E_TRACE",
                hint="add the trace of a party that met them both",
            )
        ahead[party] = moved
        rest.remove(party)
    del ahead[first]
    return ahead


def _delays(sender: Timeline, receiver: Timeline) -> list[int]:
    """By their own clocks, how long messages took; of those alone that were waited for, if there are any."""
    sent = {key: event.ts for event in sender.traceEvents if event.ph == "X" and (key := _key(event))}
    come = {key: event for event in receiver.traceEvents if event.ph == "i" and (key := _key(event))}
    both = [(event, event.ts - sent[key]) for key, event in come.items() if key in sent]
    awaited = [delay for event, delay in both if event.args and (event.args.waited_us or 0) >= WAIT_US]
    return awaited or [delay for _, delay in both]


def _key(event: TraceEvent) -> Key | None:
    args = event.args
    if event.cat != "message" or args is None or args.sender is None or args.receiver is None:
        return None
    return args.attempt or 0, args.sender, args.receiver, args.number or 0


def _placed(event: TraceEvent, pid: int, moved: int) -> TraceEvent:
    """``event`` in the process of its party, by the clock of the first one."""
    return event.model_copy(update={"pid": pid} | ({} if event.ph == "M" else {"ts": max(event.ts - moved, 0)}))
