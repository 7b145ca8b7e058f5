"""Jobs by a clock: what becomes of each planned time of a node's schedules, over any number of restarts.

The id of a job follows from its planned time, and the index has no id twice: so whatever a crash leaves, a time is submitted at
most once. What became of it is written down after it. Should that be lost, the next start finds the job in the index.

The clock is looked at on a thread of its own, which may read a table. A time later than :data:`LATE` counts as missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import structlog

from vfl_node.errors import Paused, StateError, UsageError
from vfl_node.job import Job
from vfl_node.node.endings import OWN_WISH
from vfl_node.node.faults import explain
from vfl_node.node.record import Record
from vfl_node.node.schedule_states import ScheduleState, ScheduleStates
from vfl_node.node.states import STANDING
from vfl_node.node.store import Store
from vfl_node.session.memory import mark_secret
from vfl_node.settings.node import Settings
from vfl_node.settings.schedules import JobSchedule

log = structlog.get_logger()

RESUMABLE, CANCELLED = "resumable", "cancelled here"
"""How a job may have ended that was neither done nor refused."""

LOOK_S = 5.0
"""How often the clock is looked at."""

AGAIN = timedelta(minutes=1)
"""What cannot be done now is tried again so much later."""

LATE = timedelta(minutes=10)
"""So long after its time a job is still on time."""

MOST_REFUSALS = 3
"""After so many in a row a schedule pauses."""


class Submit(Protocol):
    """Registers a job."""

    def __call__(self, job: Job, *, job_id: str, person: str | None, schedule: str) -> Record:
        """As :meth:`vfl_node.node.jobs.Jobs.submit`."""


class Schedules:
    """The schedules of one node. Safe to use from several threads.

    Args:
        settings: of the node.
        store: its jobs.
        submit: registers a job.
        clock: tells the time, in UTC.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        submit: Submit,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._settings, self._store, self._submit, self._clock = settings, store, submit, clock
        self._schedules = {schedule.name: schedule for schedule in settings.schedules}
        self._states = ScheduleStates(settings.state_dir, self._schedules, clock)
        self._waiting: dict[str, tuple[str, datetime]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="schedules", daemon=True)  # it may read a table for long

    def start(self) -> None:
        """Begin to look at the clock, where there is a schedule."""
        if self._schedules:
            self._thread.start()

    def stop(self) -> None:
        """Submit nothing more."""
        self._stopping.set()

    def _watch(self) -> None:
        while True:
            self.look()
            if self._stopping.wait(LOOK_S):
                return

    def look(self) -> None:
        """Do what is due. What cannot be done now, because a disk is full or the queue, is tried again."""
        for name, schedule in self._schedules.items():
            code, since = self._waiting.get(name, ("", None))
            if since and timedelta() <= self._clock() - since < AGAIN:
                continue
            try:
                self._count_end(name)
                self._look_at(schedule)
                self._waiting.pop(name, None)
            except Exception as cause:  # the schedules after it must outlive it
                error = explain(cause)
                if code != error.code:
                    defect = error.code == "E_INTERNAL"
                    log.warning("a schedule waits", schedule=name, code=error.code, reason=error.message, exc_info=defect)
                self._waiting[name] = (error.code, self._clock())

    def describe(self) -> list[dict[str, Any]]:
        """Each schedule in the order of the settings: its keys, and how it stands.

        name, job (the file), at, zone, until; next (planned time, UTC; None: there is none), waits (code of what is tried again
        or None), became (of the last one), paused, refusals, reason, last_job and ended; tells (what others learn by it) and
        warnings, sentences for the owner.

        Raises:
            StateError: what was kept is damaged (``E_STATE_CORRUPT``).
        """
        from vfl_node.node.schedule_words import describe_schedule  # what it loads only an owner who asks needs

        described = []
        for name, schedule in self._schedules.items():
            state = self._states.find(name)
            planned = None if state.paused else next(schedule.list_after(datetime.fromisoformat(state.handled)), None)
            described.append(
                {
                    **schedule.model_dump(mode="json", include={"name", "job", "at", "zone", "until"}),
                    "next": planned and planned.isoformat(),
                    "waits": self._waiting.get(name, (None,))[0],
                    **state.describe(),
                    **describe_schedule(self._settings, schedule, self._clock()),
                }
            )
        return described

    def outline(self) -> list[dict[str, Any]] | None:
        """name of each and how it stands (:meth:`ScheduleState.describe`); None where what was kept is damaged."""
        try:
            return [{"name": name, **state.describe()} for name, state in self.find_states().items()]
        except (StateError, OSError):
            return None

    def find_states(self) -> dict[str, ScheduleState]:
        """Schedule → how it stands. Raises StateError as :meth:`describe`."""
        return {name: self._states.find(name) for name in self._schedules}

    def pause(self, name: str) -> None:
        """Submit nothing by this schedule until its owner resumes it. Raises UsageError: there is none (``E_SCHEDULE``)."""
        self._find(name)
        self._states.change(name, paused="owner")

    def resume(self, name: str) -> None:
        """Submit by this schedule from its next time on. Raises UsageError as :meth:`pause`."""
        self._find(name)
        self._states.change(name, paused="", refusals=0, handled=self._clock())

    def run(self, name: str, person: str | None = None) -> str:
        """Submit a schedule's job now, whatever its conditions say and also while it is paused; returns the job's id.

        Raises:
            UsageError: as :meth:`pause`.
            VflError: as :meth:`vfl_node.node.jobs.Jobs.submit`.
        """
        schedule = self._find(name)
        job_id = schedule.job_id(self._clock(), by_hand=True)
        self._submit(schedule.read_job(), job_id=job_id, person=person, schedule=name)
        self._states.change(name, job=job_id, ended="", became=f"{job_id} was submitted by hand")
        return job_id

    def _look_at(self, schedule: JobSchedule) -> None:
        """Deal with the last planned time that has come. Raises VflError or OSError: it is tried again."""
        name, now = schedule.name, self._clock()
        state = self._states.find(name)
        handled = datetime.fromisoformat(state.handled)
        if handled > now + timedelta(hours=1):  # the clock was set back; no job can be submitted twice
            handled = now
            self._states.change(name, handled=now)
        planned = None if state.paused else schedule.find_last(handled, now)
        if planned is None or now < (due := schedule.draw_out(planned, self._settings.name)):
            return
        job_id = schedule.job_id(planned)
        if self._was_submitted(job_id):  # and the process died before that was written down
            self._settle(schedule, planned, f"{job_id} was submitted", job=job_id, ended="")
        elif schedule.is_over(now):
            self._settle(schedule, planned, f"missed: its last day was {schedule.until}")
        elif now - due > LATE and schedule.catch_up == "none":
            self._settle(schedule, planned, f"missed: no job could be submitted until {now:%Y-%m-%d %H:%M} UTC")
        else:
            self._fire(schedule, planned, job_id)

    def _fire(self, schedule: JobSchedule, planned: datetime, job_id: str) -> None:
        """Submit the job of a planned time unless a condition says no. Raises as :meth:`_look_at`."""
        try:
            if reason := self._find_reason(schedule, job := schedule.read_job()):
                self._settle(schedule, planned, f"skipped: {reason}")
            elif not (
                self._states.find(schedule.name).paused or self._stopping.is_set()
            ):  # a table may have been read for long
                self._submit(job, job_id=job_id, person=None, schedule=schedule.name)
                self._settle(schedule, planned, f"{job_id} was submitted", job=job_id, ended="")
        except Exception as cause:
            error = explain(cause)
            if isinstance(error, Paused | StateError) or error.code == "E_BUSY":
                raise
            became = f"refused: {error.code}: {error.message}"
            with self._states.lock:
                self._settle(schedule, planned, became, **self._count_refusal(schedule.name, error.code))

    def _find_reason(self, schedule: JobSchedule, job: Job) -> str:
        """Why no job is submitted now; empty: one is. Raises VflError or OSError where the own table cannot be read."""
        state = self._states.find(schedule.name)
        if schedule.if_running == "skip" and state.job and self._end_of(state.job) is None:
            return f"{state.job} has not ended"
        before = self._states.read_marks(schedule.name) if schedule.compares else None
        if before is None:
            return ""
        from vfl_node.data.marks import Marks
        from vfl_node.execution.inputs import read_input

        self._store.check_there()
        secret = mark_secret(self._store.partner(job.parties.others(self._settings.name)[0]))
        growth = before.compare(Marks.from_table(read_input(self._settings, job), secret))
        if schedule.skip_unchanged and growth.word == "same" and state.ended in ("", "done"):
            return "the own table is as the last job read it"
        new = growth.after - growth.common
        return f"{new:,} new records, and least_new is {schedule.least_new:,}" if new < schedule.least_new else ""

    def _count_end(self, name: str) -> None:
        """Note how a schedule's last job has ended."""
        with self._states.lock:
            state = self._states.find(name)
            if not state.job or state.ended not in ("", RESUMABLE) or (end := self._end_of(state.job)) in (None, state.ended):
                return
            changes: dict[str, Any] = {"refusals": 0} if end == "done" else {}
            if end not in ("done", RESUMABLE, CANCELLED):
                changes = self._count_refusal(name, str(end))
            self._states.change(name, ended=end, **changes)

    def _count_refusal(self, name: str, code: str) -> dict[str, Any]:
        """What changes by one more job that was refused or has failed for good, with this code."""
        refusals = self._states.find(name).refusals + 1
        if refusals < MOST_REFUSALS:
            return {"refusals": refusals}
        log.warning("a schedule pauses", schedule=name, refusals=refusals, code=code, hint=f"vfl-node schedule resume {name}")
        return {"refusals": refusals, "paused": "refusals"}

    def _end_of(self, job_id: str) -> str | None:
        """How a job has ended: ``done``, :data:`RESUMABLE`, :data:`CANCELLED` or an error's code; None: it has not."""
        record = self._store.get(job_id)
        if record is None:  # nobody knows any more why it ended otherwise
            return "done" if self._store.pruned_state(job_id) == "done" else CANCELLED
        if record.state in STANDING:
            return None
        if record.state == "done":
            return "done"
        if not record.over:
            return RESUMABLE
        return CANCELLED if record.message == OWN_WISH else record.code or record.state

    def _was_submitted(self, job_id: str) -> bool:
        record = self._store.get(job_id)
        own = record is not None and (record.damaged or record.submitter == self._settings.name)
        return own or self._store.pruned_state(job_id) is not None

    def _find(self, name: str) -> JobSchedule:
        if name not in self._schedules:
            known = ", ".join(self._schedules) or "none"
            raise UsageError(f"there is no schedule {name[:80]!r}", code="E_SCHEDULE", hint=f"in this node's settings: {known}")
        return self._schedules[name]

    def _settle(self, schedule: JobSchedule, planned: datetime, became: str, **changes: Any) -> None:
        """Something has become of a planned time."""
        self._states.change(schedule.name, handled=planned, became=became, **changes)
        log.info("schedule", schedule=schedule.name, planned=planned.isoformat(timespec="minutes"), became=became)
