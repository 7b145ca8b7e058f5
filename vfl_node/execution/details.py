"""What happened in a job so far, for its page: made of the same events as the newest figures, and never larger than a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vfl_node.execution.history import Curves, Lines, Pace, Spans
from vfl_node.progress import (
    Advanced,
    EpochJudged,
    EpochTrained,
    Event,
    InputRefused,
    LocalEpochTrained,
    OverlapDoubted,
    PeersAwaited,
    PhaseBegan,
    PredictionsAudited,
    Queued,
    ResultDoubted,
    TrainingCostKnown,
)
from vfl_node.report.meters import live_meters
from vfl_node.report.words import join_names
from vfl_node.transport.pipe import Traffic
from vfl_node.transport.trace import Trace

FIGURES = ("loss", "validation_loss", "auc", "validation_auc", "seconds")
"""Figures of an epoch that a curve shows as they are in :class:`vfl_node.progress.EpochTrained`."""


class Details:
    """Curves, spans of time, pace, log and traffic of one job. Not safe to use from several threads at once.

    Args:
        trace: when this party waits and sends.
    """

    def __init__(self, trace: Trace) -> None:
        self.traffic: Callable[[], Mapping[str, Traffic]] = dict
        self._curves, self._spans, self._pace, self._lines = Curves(), Spans(), Pace(trace), Lines()
        self._repeat = 1

    def add(self, event: Event, view: Mapping[str, Any], *, milestone: bool) -> None:
        """Take an event.

        Args:
            event: what has happened.
            view: of the job, with the event (:data:`vfl_node.execution.live.AT_REST`).
            milestone: whether the event is one that the log tells of.
        """
        self._pass_time(event, view)
        if isinstance(event, EpochTrained):
            self._add_epoch(event)
        elif isinstance(event, EpochJudged) and self._repeat == 1:
            self._curves.add(self._curves.epoch, _levels({}, event.labels, {}))
        if milestone:
            self._lines.add(self._line(event, view))

    def end(self) -> None:
        """Nothing more happens."""
        self._spans.end()
        self._pace.restart()

    def copy(self, view: Mapping[str, Any]) -> dict[str, Any]:
        """All as JSON.

        It has reached (phase, done, total, unit) and meters as in the view, also once that is at rest; epoch, repeat, curves,
        spans, rate (steps a second), step (where the seconds of one go), left_s (of the phase), bytes (by phase) and log.
        """
        left = view["total"] - view["done"]
        busy = bool(left or not view["total"])
        rate = self._pace.rate(view["done"]) if busy else None
        traffic = list(self.traffic().items())
        return {
            "reached": {key: view[key] for key in ("phase", "done", "total", "unit")},
            "meters": view["meters"],
            "epoch": self._curves.epoch,
            "repeat": self._repeat,
            "curves": self._curves.copy(),
            "spans": self._spans.copy(),
            "rate": rate,
            "step": self._pace.step(view["done"]) if busy else None,
            "left_s": left / rate if rate and left > 0 else None,
            "bytes": {phase: {"sent": each.bytes_sent, "received": each.bytes_received} for phase, each in traffic},
            "log": self._lines.copy(),
        }

    def _pass_time(self, event: Event, view: Mapping[str, Any]) -> None:
        match event:
            case PhaseBegan(phase):
                self._spans.begin("work", phase)
                self._pace.restart()
            case Advanced():
                self._spans.go_on()
                self._pace.mark(view["done"])
            case LocalEpochTrained():
                self._spans.begin("alone", "own model alone")
                self._pace.restart()
            case PeersAwaited(peers):
                self._spans.begin("wait", join_names([peer.split()[0] for peer in peers]))
            case Queued():
                self._spans.begin("wait", "its turn")

    def _add_epoch(self, event: EpochTrained) -> None:
        """Curves are of the first repeat, as in a report."""
        self._spans.go_on()
        self._repeat = event.repeat
        if event.repeat == 1:
            figures = {name: getattr(event, name) for name in FIGURES}
            number = event.number or self._curves.epoch + 1
            self._curves.add(number, figures | _levels(event.attacks, event.labels, event.rebuilt))

    def _line(self, event: Event, view: Mapping[str, Any]) -> str:
        """What the log says of an event: facts, and no name of a column."""
        match event:
            case PhaseBegan(phase, total, unit):
                return f"{phase} begins: {total:,} {unit}" if total else f"{phase} begins"
            case EpochTrained(loss):
                again = f" of repeat {self._repeat}" if self._repeat > 1 else ""
                number = event.number or self._curves.epoch
                told = "" if loss is None else f": loss {loss:.4g}"
                kept = "" if event.validation_loss is None else f", on validation rows {event.validation_loss:.4g}"
                return f"epoch {number}{again} trained{told}{kept}"
            case LocalEpochTrained(loss, epoch, epochs):
                return f"own model alone, epoch {epoch} of {epochs}: loss {loss:.4g}"
            case PredictionsAudited():
                return "what was sent for predictions is judged"
            case InputRefused():  # its words may name a column
                return "this party's input cannot be used; its node's log says why"
            case TrainingCostKnown(text) | OverlapDoubted(text) | ResultDoubted(text):
                return text
        return view["note"]


def _levels(attacks: Mapping[str, float | None], labels: Mapping[str, float | None], rebuilt: Any) -> dict[str, float | None]:
    """Meter → its value, of those of which an epoch shows something."""
    return {name: meter["value"] for name, meter in live_meters(attacks, labels, rebuilt).items()}
