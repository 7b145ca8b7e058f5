"""The live side of a job: how far it is, and the owner's wish to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from vfl_node.errors import VflError
from vfl_node.execution.details import Details
from vfl_node.process.counters import Stopwatch
from vfl_node.progress import (
    Advanced,
    Attacks,
    EpochJudged,
    EpochTrained,
    Event,
    HoursAwaited,
    InputRefused,
    Judged,
    LocalEpochTrained,
    MemoryAwaited,
    OverlapDoubted,
    OwnersAsked,
    PeersAwaited,
    PhaseBegan,
    PredictionsAudited,
    Queued,
    ResultDoubted,
    TrainingCostKnown,
    Wait,
    WorkEvent,
)
from vfl_node.report.meters import live_meters
from vfl_node.report.words import round_numbers, worst_first
from vfl_node.transport.channel import Channel
from vfl_node.transport.pipe import total
from vfl_node.transport.trace import Trace

log = structlog.get_logger()

AT_REST: dict[str, Any] = {
    "phase": "",
    "done": 0,
    "total": 0,
    "unit": "",
    "note": "",
    "alone": {},
    "remark": "",
    "loss": None,
    "validation_loss": None,
    "attacks": {},
    "judged": {},
    "rebuilt": {},
    "labels": {},
    "meters": {},
}
"""The view of a job that nobody works on; :meth:`LiveProgress.snapshot` of one under way has the same keys."""

NO_ATTACKS: Attacks = {}

WAITS = {Queued: "place", OwnersAsked: "consent", HoursAwaited: "hours", MemoryAwaited: "memory", PeersAwaited: "peer"}
"""Event → what a job waits for, in a word for metrics."""

ALONE = "training the model of this party alone, for comparison"


class Stop:
    """A wish to end a job. It takes effect at the next message, or in the next block of work (:meth:`check`)."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: VflError | None = None
        self._listeners: list[Callable[[VflError], None]] = []
        self._lock = threading.Lock()

    @property
    def wish(self) -> VflError | None:
        """With what error the job is to end, if it is."""
        return self._error

    def ask(self, error: VflError) -> None:
        """Ask for the end with ``error`` (Cancelled, Paused or why a peer ended the job); only the first wish counts."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            listeners = list(self._listeners)
        self._event.set()
        for listener in listeners:
            listener(error)

    def listen(self, listener: Callable[[VflError], None]) -> None:
        """Call ``listener`` with the error once the end is asked for (at once if it already is)."""
        with self._lock:
            self._listeners.append(listener)
            error = self._error
        if error is not None:
            listener(error)

    def forget(self, listener: Callable[[VflError], None]) -> None:
        """Call ``listener`` no more, and hold no reference to it."""
        with self._lock:
            self._listeners.remove(listener)

    def check(self) -> None:
        """Raise the error if the end is asked for."""
        if self._error is not None:
            raise self._error

    def wait(self, timeout_s: float) -> None:
        """Sleep up to ``timeout_s``, and raise at once when the end is asked for."""
        self._event.wait(timeout_s)
        self.check()


class LiveProgress:
    """Implements :class:`vfl_node.progress.Progress`: folds events into the live view of a job, and logs its milestones.

    Args:
        job_id: of the job, for the log.
        stop: its owner's wish, raised by events of work.
        trace: when this party waits and sends; None: that is not known.
    """

    def __init__(self, job_id: str, stop: Stop, trace: Trace | None = None) -> None:
        self._log = log.bind(job=job_id)
        self._stop = stop
        self._lock = threading.Lock()
        self._view = AT_REST | {"phase": "waiting"}
        self._details = Details(trace or Trace())
        self._watch = Stopwatch()
        self._steps = 0
        self._logged = -1

    def emit(self, event: Event) -> None:
        """Take ``event`` into the view. During long work this is where a stop is heard."""
        if isinstance(event, WorkEvent):
            self._stop.check()
        with self._lock:
            milestone = self._is_milestone(event)
            self._view |= changes(self._view, event)
            self._details.add(event, self._view, milestone=milestone)
            self._steps += isinstance(event, PhaseBegan | Advanced)
            self._measure(event)
        if milestone:
            self._write(event)

    def _measure(self, event: Event) -> None:
        """Take the time of phases and waits, for metrics."""
        match event:
            case Queued() | OwnersAsked() | HoursAwaited() | MemoryAwaited() | PeersAwaited():
                self._watch.wait(WAITS[type(event)])
            case _ if isinstance(event, WorkEvent) and self._view["phase"] != "waiting":
                self._watch.begin(self._view["phase"])

    def _write(self, event: Event) -> None:
        """Tell of a milestone in the node's log."""
        match event:
            case PhaseBegan(phase, total, unit):
                self._log.info("phase", phase=phase, total=total, unit=unit)
            case EpochTrained(loss, attacks, judged, validation_loss):
                # names of columns are not for the log; labels are those of the newest epoch that is judged
                self._log_figures(_known_figures(loss, attacks, judged, validation_loss, self._view["labels"]))
            case PredictionsAudited(attacks, judged, labels):
                self._log_figures(_known_figures(None, attacks, judged, labels=labels))
            case LocalEpochTrained(loss):
                self._log_figures({"local_loss": loss})
            case TrainingCostKnown(text):
                self._log.info(text)
            case OverlapDoubted(text) | ResultDoubted(text):
                self._log.warning(text)
            case PeersAwaited() | OwnersAsked() | HoursAwaited() | MemoryAwaited() | InputRefused():
                self._log.info(_note(event))

    def rest(self) -> None:
        """Nothing more happens for now: the job has ended, or this attempt has."""
        with self._lock:
            self._watch.begin("")

    @property
    def steps(self) -> int:
        """Changes whenever the job gets on."""
        return self._steps

    def snapshot(self) -> dict[str, Any]:
        """The view as it is now; it does not change any more."""
        with self._lock:
            return dict(self._view)

    def details(self) -> dict[str, Any]:
        """What happened so far (:meth:`vfl_node.execution.details.Details.copy`); it does not change any more."""
        with self._lock:
            return self._details.copy(self._view)

    @contextmanager
    def conversing(self, channels: Collection[Channel]) -> Iterator[None]:
        """A context in which what moves over ``channels`` is this job's traffic; after it the job rests."""
        self._details.traffic = lambda: total(dict(channel.traffic) for channel in channels)
        try:
            yield
        finally:
            moved = self._details.traffic()
            with self._lock:
                self._details.traffic = lambda: moved
                self._details.end()
            self.rest()

    def _is_milestone(self, event: Event) -> bool:
        """Whether the log tells of ``event``, which is not in the view yet."""
        match event:
            case PhaseBegan():
                self._logged = -1
                return True
            case EpochTrained():
                return self._further()
            case LocalEpochTrained(_, epoch, epochs):
                return epoch in (1, epochs)
            case PeersAwaited() | OwnersAsked() | HoursAwaited() | MemoryAwaited() | InputRefused():
                return _note(event) != self._view["note"]  # a wait is told of again and again
        return isinstance(event, PredictionsAudited | TrainingCostKnown | OverlapDoubted | ResultDoubted)

    def _further(self) -> bool:
        """Whether the phase is a tenth further than where its figures were last logged: the log of a long one stays short."""
        before, total = self._logged, self._view["total"]
        self._logged = 10 * self._view["done"] // total if total else before + 1
        return self._logged != before

    def _log_figures(self, figures: Mapping[str, Any]) -> None:
        if figures:
            self._log.info("progress", **round_numbers(figures))


def changes(view: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """What ``event`` changes in ``view``, whose keys are those of :data:`AT_REST`: figures stay until newer ones are known."""
    match event:
        case PhaseBegan(phase, total, unit):
            return {"phase": phase, "done": 0, "total": total, "unit": unit, "note": "", "alone": {}}
        case Advanced(steps):
            return {"done": view["done"] + steps, "alone": {}}
        case EpochTrained(loss, attacks, judged, validation_loss, rebuilt, labels):
            figures = _known_figures(loss, attacks, judged, validation_loss, labels) | {"note": "", "alone": {}}
            figures |= {"meters": {**view["meters"], **live_meters(attacks, labels, rebuilt)}}
            return figures | ({"rebuilt": {name: dict(rebuilt[name]) for name in worst_first(rebuilt)}} if rebuilt else {})
        case EpochJudged(labels):
            return {"labels": dict(labels), "meters": {**view["meters"], **live_meters({}, labels, {})}}
        case PredictionsAudited(attacks, judged, labels):
            return _known_figures(None, attacks, judged, labels=labels) | {"note": ""}
        case LocalEpochTrained(_, epoch, epochs):
            return {"note": ALONE, "alone": {"epoch": epoch, "epochs": epochs}}
        case TrainingCostKnown(text):
            return {"remark": text}
        case OverlapDoubted() | ResultDoubted():  # for the log and the report: a remark on the cost of training comes at once
            return {}
        case Queued(place):
            return {"phase": "waiting", "note": f"waiting for its turn, {place} in the queue"}
        case OwnersAsked() | HoursAwaited() | MemoryAwaited():
            return {"phase": "waiting", "note": _note(event)}
        case PeersAwaited() | InputRefused():
            return {"note": _note(event)}


def _known_figures(
    loss: float | None, attacks: Attacks, judged: Judged, validation_loss: float | None = None, labels: Attacks = NO_ATTACKS
) -> dict[str, Any]:
    """The figures of an epoch that this party knows."""
    audits = {"attacks": dict(attacks), "judged": dict(judged), "labels": dict(labels)}
    figures = {"loss": loss, "validation_loss": validation_loss, **audits}
    return {name: value for name, value in figures.items() if value not in (None, {})}


def _note(event: Wait) -> str:
    """The line for the owner that holds until the job goes on."""
    match event:
        case PeersAwaited(peers, interruption, most_s):
            before = f"{interruption}; " if interruption else ""
            at_most = "" if most_s is None else f" up to {most_s:.0f} s"
            return f"{before}waiting{at_most} for {' and '.join(peers)}"
        case OwnersAsked(parties):
            who = "its owner is" if len(parties) == 1 else "their owners are"
            return f"waiting for {' and '.join(parties)}: {who} asked"
        case HoursAwaited():
            return "waiting for the hours of this node's policy"
        case MemoryAwaited():
            return "waiting for memory that other jobs have"
        case InputRefused(reason):
            return reason
