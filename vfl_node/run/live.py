"""The live side of a job: how far it is, and the owner's wish to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog

from vfl_node.errors import VflError
from vfl_node.progress import Attacks, Judged

log = structlog.get_logger()

AT_REST: dict[str, Any] = {
    "phase": "",
    "done": 0,
    "total": 0,
    "unit": "",
    "note": "",
    "remark": "",
    "loss": None,
    "attacks": {},
    "judged": {},
}
"""What is told of a job that nobody works on; while one does, :meth:`LiveProgress.snapshot` has the same keys."""

ALONE = "training the model of this party alone, for comparison"


class Stop:
    """A wish to end a job, heard at its next message or block of work."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: VflError | None = None
        self._listeners: list[Callable[[VflError], None]] = []
        self._lock = threading.Lock()

    def ask(self, error: VflError) -> None:
        """Ask for the end with ``error`` (Cancelled, Paused or a peer's word); the first wish counts."""
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
        """Call ``listener`` no more, nor keep what hangs on it."""
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
    """Implements :class:`vfl_node.progress.Progress`: keeps the newest figures and logs the milestones."""

    def __init__(self, job_id: str, stop: Stop) -> None:
        self._log = log.bind(job=job_id)
        self._stop = stop
        self._lock = threading.Lock()
        self._state = AT_REST | {"phase": "waiting"}
        self._steps = 0

    def phase(self, name: str, total: int, unit: str) -> None:
        """A phase begins."""
        self._stop.check()
        with self._lock:
            self._steps += 1
            self._state.update(phase=name, done=0, total=total, unit=unit, note="")
        self._log.info("phase", phase=name, total=total, unit=unit)

    def advance(self, steps: int) -> None:
        """``steps`` more of the phase are done; this is where a stop is heard during long work."""
        self._stop.check()
        with self._lock:
            self._steps += 1
            self._state["done"] += steps

    def note(
        self,
        *,
        loss: float | None = None,
        local_loss: float | None = None,
        attacks: Attacks | None = None,
        judged: Judged | None = None,
    ) -> None:
        """Figures of the owner's own side after an epoch; a stop is heard here too."""
        self._stop.check()
        known = {"loss": loss, "attacks": dict(attacks or {}), "judged": dict(judged or {})}
        told = {name: value for name, value in known.items() if value not in (None, {})}
        with self._lock:
            self._state.update(told, note="" if local_loss is None else ALONE)
        if local_loss is not None:
            told["local_loss"] = local_loss
        if told:
            self._log.info("progress", **told)

    def remark(self, text: str) -> None:
        """One line that stays while the job is worked on."""
        with self._lock:
            self._state["remark"] = text
        self._log.info(text)

    def say(self, text: str, **context: str) -> None:
        """One line for the owner, such as whom the job waits for."""
        with self._lock:
            if self._state["note"] == text:
                return
            self._state["note"] = text
        self._log.info(text, **context)

    def queued(self, place: int) -> None:
        """The job waits for its turn; how many are before it changes without a line in the log."""
        with self._lock:
            self._state.update(phase="waiting", note=f"waiting for its turn, {place} in the queue")

    @property
    def steps(self) -> int:
        """Changes whenever the job gets on."""
        return self._steps

    def snapshot(self) -> dict[str, Any]:
        """The newest figures."""
        with self._lock:
            return dict(self._state)
