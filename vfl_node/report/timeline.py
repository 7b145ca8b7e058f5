"""``trace.json``: what a party did in a job, sent, received and waited for, as a file for ui.perfetto.dev and chrome://tracing.

The format is Chrome's "Trace Event Format": a process for each party, and in it a thread for its own phases and one for the
conversation with each other party. Times are in microseconds of UTC, by the clock of the party's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vfl_node.errors import UsageError
from vfl_node.job.names import Name
from vfl_node.transport.trace import Moment, Sum, Trace, TracedMessage

TRACE = "trace.json"
"""The artefact with the trace of a job at one party."""

MOST_BYTES = 64 << 20
"""A larger file is no trace of one party."""

WAIT_US = 100
"""A shorter wait for a message is not shown."""

PHASES = 1
"""The thread of a party's own phases; those of its conversations follow."""

Text = Annotated[str, Field(max_length=200)]
Whole = Annotated[int, Field(ge=0, lt=1 << 53)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TraceArgs(_Part):
    """What an event says besides its time; of each event some."""

    name: Text | None = None
    sort_index: Whole | None = None
    sender: Text | None = None
    receiver: Text | None = None
    attempt: Whole | None = None
    number: Whole | None = None
    bytes: Whole | None = None
    waited_us: Whole | None = None
    waits_for: Text | None = None
    message: Text | None = None
    sent: Whole | None = None
    received: Whole | None = None
    bytes_sent: Whole | None = None
    bytes_received: Whole | None = None


class TraceEvent(_Part):
    """One event: a span (``X``), a moment (``i``), or the name of a process or thread (``M``)."""

    name: Text
    cat: Literal["phase", "message", "wait", "sum", "name"]
    ph: Literal["X", "i", "M"]
    pid: Whole
    tid: Whole
    ts: Whole = 0
    dur: Whole | None = None
    s: Literal["t"] | None = None
    args: TraceArgs | None = None


class TraceAbout(_Part):
    """The job and the parties of a trace.

    Attributes:
        format: of the parts of an event that are our own.
        job: id of the run.
        parties: whose it is, in the order of their processes.
        moved_us: party → by how much its times were made earlier, since its clock was ahead of the first party's.
    """

    format: Literal[1] = 1
    job: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,100}$")]
    parties: list[Name] = Field(min_length=1, max_length=100)
    moved_us: dict[Name, int] = Field(default_factory=dict)


class Timeline(_Part):
    """The whole file."""

    traceEvents: list[TraceEvent] = Field(max_length=1 << 20)  # noqa: N815 - the format's name
    displayTimeUnit: Literal["ms"] = "ms"  # noqa: N815
    otherData: TraceAbout  # noqa: N815

    def to_json(self) -> bytes:
        """As a file."""
        return self.model_dump_json(exclude_none=True).encode()


def tell(trace: Trace, job_id: str, party: str) -> Timeline:
    """The trace of one party."""
    messages, marks, sums = trace.copy()
    peers = sorted({each.peer for each in messages} | {each.peer for each in sums})
    spans = list(_work(marks, trace.now()))
    for tid, peer in enumerate(peers, PHASES + 1):
        earlier = [each for each in sums if each.peer == peer]
        spans += _conversation(party, tid, earlier, [each for each in messages if each.peer == peer])
    spans.sort(key=lambda event: (event.ts, -(event.dur or 0)))
    names = [_name(1, PHASES, "process_name", party), _name(1, PHASES, "thread_name", "phases")]
    names += [_name(1, tid, "thread_name", f"with {peer}") for tid, peer in enumerate(peers, PHASES + 1)]
    return Timeline(traceEvents=[*names, *spans], otherData=TraceAbout(job=job_id, parties=[party]))


def read_trace(path: Path) -> Timeline:
    """The trace of one party in the file at ``path``, which another owner may have sent.

    Raises:
        UsageError: it cannot be read (``E_FILE``), or is no such trace (``E_TRACE``).
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="E_FILE") from None
    return parse_trace(text, str(path))


def parse_trace(text: bytes, name: str) -> Timeline:
    """As :func:`read_trace`, of bytes; ``name`` is for its error."""
    hint = "a trace is what `vfl-node trace JOB --config FILE --out FILE` writes at each party"
    try:
        if len(text) <= MOST_BYTES:
            return Timeline.model_validate_json(text)
    except ValidationError:
        pass
    raise UsageError(f"{name} is no trace of a job", code="E_TRACE", hint=hint)


def _work(marks: Sequence[Moment], now: int) -> Iterator[TraceEvent]:
    """A party's own phases, and epochs in them."""
    begun = [mark for mark in marks if not mark.number]
    for mark, after in pairwise([*begun, Moment(now, "", 0)]):
        yield _span(mark.name, "phase", PHASES, mark.at, after.at)
    for before, mark in pairwise(marks):
        if mark.number:
            yield _span(f"{mark.name} {mark.number}", "phase", PHASES, before.at, mark.at)


def _conversation(party: str, tid: int, sums: Sequence[Sum], messages: Sequence[TracedMessage]) -> Iterator[TraceEvent]:
    """What was said between a party and a peer: phases, and in them messages and waits."""
    whole: list[Sum | TracedMessage] = [*sums, *messages]
    for (attempt, phase), parts in groupby(whole, lambda each: (each.attempt, each.phase)):
        found = list(parts)
        yield _span(phase, "phase", tid, found[0].since, found[-1].until, TraceArgs(attempt=attempt))
    for each in sums:
        counts: dict[str, Any] = {name: getattr(each, name) for name in ("sent", "received", "bytes_sent", "bytes_received")}
        args = TraceArgs(attempt=each.attempt, waited_us=each.waited // 1000, **counts)
        yield _span(f"{each.sent + each.received} earlier messages", "sum", tid, each.since, each.until, args)
    for message in messages:
        yield from _message(party, tid, message)


def _message(party: str, tid: int, message: TracedMessage) -> Iterator[TraceEvent]:
    sender, receiver = (party, message.peer) if message.sent else (message.peer, party)
    about: dict[str, Any] = {"sender": sender, "receiver": receiver, "attempt": message.attempt, "number": message.number}
    if message.sent:
        args = TraceArgs(bytes=message.size, **about)
        yield _span(f"{message.kind} to {message.peer}", "message", tid, message.since, message.until, args)
        return
    waited_us = message.until // 1000 - message.since // 1000
    if waited_us >= WAIT_US:
        args = TraceArgs(waits_for=message.peer, message=message.kind)
        yield _span(f"waits for {message.peer}", "wait", tid, message.since, message.until, args)
    args, at = TraceArgs(bytes=message.size, waited_us=waited_us, **about), message.until // 1000
    yield TraceEvent(name=f"{message.kind} from {message.peer}", cat="message", ph="i", pid=1, tid=tid, ts=at, s="t", args=args)


def _span(name: str, cat: Any, tid: int, since: int, until: int, args: TraceArgs | None = None) -> TraceEvent:
    """A span; both ends are rounded down, so that what lies within another still does."""
    start = since // 1000
    return TraceEvent(name=name, cat=cat, ph="X", pid=1, tid=tid, ts=start, dur=max(until // 1000 - start, 0), args=args)


def _name(pid: int, tid: int, what: str, name: str) -> TraceEvent:
    return TraceEvent(name=what, cat="name", ph="M", pid=pid, tid=tid, args=TraceArgs(name=name))
