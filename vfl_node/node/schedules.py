"""Jobs by a clock: what becomes of each planned time of a node's schedules, over any number of restarts.

The id of a job follows from its planned time, and the index has no id twice: so whatever a crash leaves, a time is submitted at
most once. What became of it is written down after it. Should that be lost, the next start finds the job in the index.

The clock is looked at on a thread of its own, which may read a table. A time later than :data:`LATE` counts as missed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from vfl_node.errors import Paused, StateError, UsageError, VflError
from vfl_node.job import Job, load_job
from vfl_node.node.endings import OWN_WISH
from vfl_node.node.faults import explain
from vfl_node.node.record import SCHEDULE, Record
from vfl_node.node.states import STANDING
from vfl_node.process.files import private_folder, read_checked, write_checked
from vfl_node.session.memory import mark_secret

if TYPE_CHECKING:
    from vfl_node.data.marks import Marks
    from vfl_node.data.tables import Table
    from vfl_node.node.store import Store
    from vfl_node.settings.node import Settings
    from vfl_node.settings.schedules import Schedule

log = structlog.get_logger()

FOLDER, INDEX, MARKS = "schedules", "index.json", ".marks"
"""The folder in the state folder, the file in it with what became of each schedule, and how names of files of marks end."""

RESUMABLE, CANCELLED = "resumable", "cancelled here"
"""How a job may have ended that was neither done nor refused."""

LOOK_S = 5.0
"""How often the clock is looked at."""

LATE = timedelta(minutes=10)
"""So long after its time a job is still on time."""

MOST_REFUSALS = 3
"""After so many in a row a schedule pauses."""

_HINT = "put state/schedules back, or remove the folder: then each schedule begins anew at the next start, and none is paused"


class Submit(Protocol):
    """Registers a job."""

    def __call__(self, job: Job, *, job_id: str, person: str | None, schedule: str) -> Record:
        """As :meth:`vfl_node.node.jobs.Jobs.submit`."""


@dataclass(frozen=True)
class ScheduleState:
    """How a schedule stands.

    Attributes:
        handled: the last planned time of which something has become, or before which nothing is planned; UTC, ISO 8601.
        became: what, in words for the owner.
        paused: why it submits nothing: ``owner``, ``refusals``; empty: it does.
        refusals: how many jobs in a row were refused, or failed for good.
        job: the last one; empty: there was none.
        ended: how that one has ended, as far as it was counted.
    """

    handled: str
    became: str = "nothing yet"
    paused: str = ""
    refusals: int = 0
    job: str = ""
    ended: str = ""

    @property
    def reason(self) -> str:
        """Why the last job was refused, as far as that is known."""
        return self.became if self.became.startswith("refused") else f"{self.job} ended as {self.ended}"


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
        self._folder = settings.state_dir / FOLDER
        self._schedules = {schedule.name: schedule for schedule in settings.schedules}
        self._states: dict[str, ScheduleState] | None = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="schedules", daemon=True)  # it may read a table for long
        self._told: dict[str, str] = {}

    def start(self) -> None:
        """Begin to look at the clock, where there is a schedule."""
        if self._schedules:
            self._thread.start()

    def stop(self) -> None:
        """Submit nothing more."""
        self._stopping.set()

    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("internal error")  # the other schedules must outlive it
            if self._stopping.wait(LOOK_S):
                return

    def look(self) -> None:
        """Do what is due. Never raises a VflError: what cannot be done now is tried again."""
        for schedule in self._schedules.values():
            try:
                self._count_end(schedule.name)
                self._look_at(schedule)
                self._told.pop(schedule.name, None)
            except (VflError, OSError) as cause:
                error = explain(cause)
                if self._told.get(schedule.name) != error.code:
                    log.warning("a schedule waits", schedule=schedule.name, code=error.code, reason=error.message)
                self._told[schedule.name] = error.code

    def list(self) -> list[dict[str, Any]]:
        """Each schedule in the order of the settings: its keys, and how it stands.

        name, job (the file), at, zone, until; next (planned time, UTC; None: there is none); became (of the last one), paused,
        refusals, last_job and ended; tells (what others learn by it) and warnings, sentences for the owner.

        Raises:
            StateError: what was kept is damaged (``E_STATE_CORRUPT``).
        """
        from vfl_node.node.schedule_words import describe_schedule  # what it loads only an owner who asks needs

        listed = []
        for schedule in self._schedules.values():
            state = self._state(schedule.name)
            planned = None if state.paused else next(schedule.list_after(datetime.fromisoformat(state.handled)), None)
            listed.append(
                {
                    **schedule.model_dump(mode="json", include={"name", "at", "zone", "until"}),
                    "job": str(schedule.job),
                    "next": planned and planned.isoformat(),
                    "became": state.became,
                    "paused": state.paused,
                    "refusals": state.refusals,
                    "last_job": state.job,
                    "ended": state.ended,
                    **describe_schedule(self._settings, schedule, self._clock()),
                }
            )
        return listed

    def outline(self) -> list[dict[str, Any]] | None:
        """name, paused, refusals and last_job of each; None where what was kept is damaged."""
        try:
            states = self.stand()
        except (StateError, OSError):
            return None
        keys = ("paused", "refusals")
        return [
            {"name": name, **{key: getattr(each, key) for key in keys}, "last_job": each.job} for name, each in states.items()
        ]

    def stand(self) -> dict[str, ScheduleState]:
        """Schedule → how it stands. Raises StateError as :meth:`list`."""
        return {name: self._state(name) for name in self._schedules}

    def pause(self, name: str) -> None:
        """Submit nothing by this schedule until its owner resumes it. Raises UsageError: there is none (``E_SCHEDULE``)."""
        self._find(name)
        self._change(name, paused="owner")

    def resume(self, name: str) -> None:
        """Submit by this schedule from its next time on. Raises UsageError as :meth:`pause`."""
        self._find(name)
        self._change(name, paused="", refusals=0, handled=self._clock().isoformat(timespec="seconds"))

    def run(self, name: str, person: str | None = None) -> str:
        """Submit a schedule's job now, whatever its conditions say and also while it is paused; returns the job's id.

        Raises:
            UsageError: as :meth:`pause`.
            VflError: as :meth:`vfl_node.node.jobs.Jobs.submit`.
        """
        schedule = self._find(name)
        job_id = schedule.job_id(self._clock(), by_hand=True)
        self._submit(read_job(schedule), job_id=job_id, person=person, schedule=name)
        self._change(name, job=job_id, ended="", became=f"{job_id} was submitted by hand")
        return job_id

    def _look_at(self, schedule: Schedule) -> None:
        """Deal with the last planned time that has come. Raises VflError or OSError: it is tried again."""
        name, now = schedule.name, self._clock()
        state = self._state(name)
        handled = datetime.fromisoformat(state.handled)
        if handled > now + timedelta(hours=1):  # the clock was set back; no job can be submitted twice
            handled = now
            self._change(name, handled=now.isoformat(timespec="seconds"))
        planned = None if state.paused else schedule.find_last(handled, now)
        if planned is None or now < (due := schedule.draw_out(planned, self._settings.name)):
            return
        job_id = schedule.job_id(planned)
        if self._was_submitted(job_id):  # and the process died before that was written down
            self._settle(schedule, planned, f"{job_id} was submitted", job=job_id, ended="")
        elif now - due > LATE and schedule.catch_up == "none":
            self._settle(schedule, planned, f"missed: no job could be submitted until {now:%Y-%m-%d %H:%M} UTC")
        else:
            self._fire(schedule, planned, job_id)

    def _fire(self, schedule: Schedule, planned: datetime, job_id: str) -> None:
        """Submit the job of a planned time unless a condition says no. Raises as :meth:`_look_at`."""
        try:
            if reason := self._find_reason(schedule, job := read_job(schedule)):
                self._settle(schedule, planned, f"skipped: {reason}")
            elif not (self._state(schedule.name).paused or self._stopping.is_set()):  # a table may have been read for long
                self._submit(job, job_id=job_id, person=None, schedule=schedule.name)
                self._settle(schedule, planned, f"{job_id} was submitted", job=job_id, ended="")
        except VflError as error:
            if isinstance(error, Paused | StateError) or error.code == "E_BUSY":
                raise
            became = f"refused: {error.code}: {error.message}"
            self._settle(schedule, planned, became, **self._count_refusal(schedule.name, error.code))

    def _find_reason(self, schedule: Schedule, job: Job) -> str:
        """Why no job is submitted now; empty: one is. Raises VflError or OSError where the own table cannot be read."""
        state = self._state(schedule.name)
        if schedule.if_running == "skip" and state.job and self._end_of(state.job) is None:
            return f"{state.job} has not ended"
        before = self._read_marks(schedule.name) if schedule.compares else None
        if before is None:
            return ""
        from vfl_node.data.marks import Marks
        from vfl_node.execution.inputs import read_input

        growth = before.compare(Marks.from_table(read_input(self._settings, job), self._secret(job)))
        if schedule.skip_unchanged and growth.word == "same" and state.ended in ("", "done"):
            return "the own table is as the last job read it"
        new = growth.after - growth.common
        return f"{new:,} new records, and least_new is {schedule.least_new:,}" if new < schedule.least_new else ""

    def _count_end(self, name: str) -> None:
        """Note how a schedule's last job has ended."""
        state = self._state(name)
        if not state.job or state.ended not in ("", RESUMABLE):
            return
        end = self._end_of(state.job)
        if end == "done":
            self._change(name, ended=end, refusals=0)
        elif end in (RESUMABLE, CANCELLED) and end != state.ended:
            self._change(name, ended=end)
        elif end not in (None, state.ended):
            self._change(name, ended=end, **self._count_refusal(name, str(end)))

    def _count_refusal(self, name: str, code: str) -> dict[str, Any]:
        """What changes by one more job that was refused or has failed for good, with this code."""
        refusals = self._state(name).refusals + 1
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

    def _find(self, name: str) -> Schedule:
        if name not in self._schedules:
            known = ", ".join(self._schedules) or "none"
            raise UsageError(f"there is no schedule {name[:80]!r}", code="E_SCHEDULE", hint=f"in this node's settings: {known}")
        return self._schedules[name]

    def _settle(self, schedule: Schedule, planned: datetime, became: str, **changes: Any) -> None:
        """Something has become of a planned time."""
        self._change(schedule.name, handled=planned.isoformat(timespec="seconds"), became=became, **changes)
        log.info("schedule", schedule=schedule.name, planned=planned.isoformat(timespec="minutes"), became=became)

    def _state(self, name: str) -> ScheduleState:
        with self._lock:
            if self._states is None:
                self._states = self._read()
            if name not in self._states:  # before it there is no time that was missed
                self._change(name, handled=self._clock().isoformat(timespec="seconds"))
            return self._states[name]

    def _change(self, name: str, **changes: Any) -> None:
        """Store what has changed. Raises StateError or OSError; then it is as before."""
        with self._lock:
            states = self._read() if self._states is None else self._states
            changed = replace(states.get(name) or ScheduleState(changes["handled"]), **changes)
            states = {known: state for known, state in states.items() if known in self._schedules} | {name: changed}
            private_folder(self._folder)
            write_checked(self._folder / INDEX, json.dumps({key: asdict(state) for key, state in states.items()}).encode())
            self._states = states

    def _read(self) -> dict[str, ScheduleState]:
        try:
            document = json.loads(read_checked(self._folder / INDEX, hint=_HINT))
            return {name: ScheduleState(**state) for name, state in document.items()}
        except FileNotFoundError:
            return {}
        except (TypeError, ValueError):
            raise StateError(f"{self._folder / INDEX} is of another version", code="E_STATE_VERSION", hint=_HINT) from None

    def _secret(self, job: Job) -> bytes:
        return mark_secret(self._store.partner(job.parties.others(self._settings.name)[0]))

    def _read_marks(self, name: str) -> Marks | None:
        from vfl_node.data.marks import Marks

        with suppress(FileNotFoundError):
            return Marks.from_bytes(read_checked(self._folder / f"{name}{MARKS}", hint=_HINT))
        return None


def read_job(schedule: Schedule) -> Job:
    """The job of a schedule. Raises UsageError: it cannot be read, or predicts."""
    job = load_job(schedule.job)
    if job.predict:
        text = f"{schedule.job} makes predictions, and a schedule submits jobs that align or train"
        raise UsageError(text, code="E_CONFIG", hint="ask for predictions by a program of yours: vfl-node predict")
    return job


def keep_marks(settings: Settings, store: Store, job_id: str, table: Table, secret: bytes) -> None:
    """Keep marks of what a job has read, where a schedule submitted it that compares. Raises StateError or OSError."""
    name = store.documents(job_id).get(SCHEDULE, b"").decode()
    if any(schedule.name == name and schedule.compares for schedule in settings.schedules):
        from vfl_node.data.marks import Marks

        private_folder(store.folder / FOLDER)
        write_checked(store.folder / FOLDER / f"{name}{MARKS}", Marks.from_table(table, secret).to_bytes())
