"""Whether a job may begin: in the hours of the policy, by what the policy says now, and when it has a place and memory.

A job has begun at a data party once something of it is stored there, and at a coordinator once all have met. From then on it
goes on at any hour, and under another policy; limits of numbers bind each attempt. Where the policy lets a job be prepared
before its hours (``allow_preparation``), its training waits for them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from vfl_node.errors import GaveWay, PeerError
from vfl_node.estimate.budget import Budget, MemoryShort
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.hours import NOT_YET, mark_begin, must_wait
from vfl_node.execution.live import Stop
from vfl_node.node.consents import Consents
from vfl_node.node.others import ASK_QUEUED_S, Others
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.node.turns import Turn
from vfl_node.process.tensors import begin_loading
from vfl_node.progress import HoursAwaited, MemoryAwaited, Progress, Queued
from vfl_node.settings.node import Settings
from vfl_node.trust.manifest import VALID_DAYS, parse_manifest

LOOK_S = 1.0
"""How often a job that waits looks whether it may begin, or is cancelled."""

_NOTHING = (0, False, "")


class JobStart:
    """Whether one job may begin.

    Args:
        settings: of this node.
        store: its jobs.
        record: the job.
        folder: of the job.
        others: its other parties.
        budget: the memory of all jobs.
    """

    def __init__(
        self, settings: Settings, store: Store, record: Record, folder: JobFolder, others: Others, budget: Budget
    ) -> None:
        self._settings, self._store, self._record, self._folder, self._others = settings, store, record, folder, others
        self._budget, self._lacking = budget, 0.0
        self._partners = record.job.parties.others(settings.name)

    @property
    def begun(self) -> bool:
        """Whether the job has begun here."""
        return self._others.begun if self._settings.role == "coordinator" else self._folder.extent != _NOTHING

    @property
    def closed(self) -> bool:
        """Whether it waits for the hours of the policy: to begin, or to train once all is made ahead."""
        return must_wait(self._settings, self._record.job, self._folder, begun=self.begun)

    @property
    def opens(self) -> str:
        """When the policy lets the job begin, in words of its zone; empty if that is not known, or now."""
        return self._settings.rules.opens(self._partners) if self.closed else ""

    @property
    def short(self) -> tuple[float, float] | None:
        """Bytes that the job needs and that are free, while those do not suffice; else None."""
        free = self._budget.free_bytes if self._lacking else 0.0
        return (self._lacking, free) if self._lacking > free else None

    def wait_for_memory(self, error: Exception, turn: Turn | None) -> None:
        """Raise GaveWay if ``error`` is that other jobs have the memory: :meth:`await_open` then waits for it."""
        if turn and isinstance(error, MemoryShort) and error.passes:
            self._lacking = error.needed
            raise GaveWay("other jobs have the memory", for_peer="other jobs have its memory")

    def give_way(self, turn: Turn | None, since: float) -> None:
        """Raise GaveWay if this job, which has not met all parties, gives its place back: to another one, or until its hours.

        ``since``: when it got the place or last had all its parties, monotonic seconds.
        """
        if turn is None or turn.place:
            return
        if self.closed:  # where all is made ahead, its partner may have been the first to leave
            raise GaveWay("the hours of the policy are awaited", for_peer=NOT_YET)
        queueing, leads = bool(self._others.queueing), self._record.active == self._settings.name
        if turn.must_yield(since, able=self._others.able, queueing=queueing, leads=leads):
            raise GaveWay("another job goes first", for_peer="another job goes first at its node")

    def check(self, turn: Turn | None) -> None:
        """Refuse a job that has not begun and that the policy does not allow by now; ``turn``: of one that hours bind.

        Raises:
            GaveWay: the hours have ended while it waited for its parties.
            PolicyError: it does not (``E_POLICY``).
            VflError: as :func:`vfl_node.execution.allowed.check_allowed`.
        """
        if self.begun:
            return
        if turn and self.closed:
            raise GaveWay("the hours of the policy have ended", for_peer=NOT_YET)
        job, submitter = self._record.job, self._record.submitter
        by_peer = submitter != self._settings.name
        check_allowed(self._settings, job, by_peer=by_peer)
        if by_peer:
            document = self._others.consents.manifest
            manifest = parse_manifest(document) if document else None
            Consents(self._settings, self._store).decide(job, submitter, manifest, self._record)
        if turn:
            mark_begin(self._settings, job, self._folder)

    def await_open(
        self, turn: Turn, stop: Stop, progress: Progress, on_wait: Callable[[], object], announce: Callable[[], None]
    ) -> None:
        """Wait until the policy lets the job begin and there is memory for it, or an owner must be asked first.

        Args:
            turn: of the job, which wants no place meanwhile.
            stop: the owner's wish.
            progress: follows the job.
            on_wait: called again and again meanwhile.
            announce: called from time to time: offers the job to the other parties, and hears whether they refuse it.

        Raises:
            PeerError: its consents end before (``E_CONSENT``), or as ``announce``.
            VflError: the owner wants it to end.
        """
        again = time.monotonic() + ASK_QUEUED_S
        if self.begun:
            gc.collect()  # what was raised holds the frames that it came through, and with them the memory of the job
        with turn.held_back(short=self.short is not None and not self.closed):
            while (self.closed or self.short) and not self._others.undecided:
                progress.emit(HoursAwaited() if self.closed else MemoryAwaited())
                if self._others.consents.expired:
                    text = f"the job has not begun within {VALID_DAYS} days"
                    hint = "look at the hours of both parties' policies, then submit it again"
                    raise PeerError(text, code="E_CONSENT", hint=hint, for_peer=text)
                stop.wait(LOOK_S)
                on_wait()
                if time.monotonic() > again:
                    announce()
                    again = time.monotonic() + ASK_QUEUED_S
        self._lacking = 0.0

    def await_turn(
        self, turn: Turn, stop: Stop, progress: Progress, on_wait: Callable[[], object], announce: Callable[[], None]
    ) -> None:
        """Wait for a place for the job, and begin to load torch if the job needs it.

        Args and Raises as :meth:`await_open`, and GaveWay where an owner is asked first.
        """
        again = time.monotonic() + ASK_QUEUED_S
        while not turn.take(LOOK_S):
            stop.check()
            on_wait()
            progress.emit(Queued(turn.place))
            if time.monotonic() > again:
                announce()
                again = time.monotonic() + ASK_QUEUED_S
            if self._others.undecided:
                raise GaveWay("an owner is asked")
        stop.check()
        if self._record.job.needs_torch:
            begin_loading()
