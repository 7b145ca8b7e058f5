"""The jobs on which a node works at the moment: begun, resumed, watched, and paused when the node stops.

What one of them does while it lives is in :mod:`vfl_node.node.work`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import structlog

from vfl_node.errors import Paused, PolicyError, StateError, UsageError, VflError
from vfl_node.estimate.budget import Budget
from vfl_node.job import Job
from vfl_node.node.draining import Draining
from vfl_node.node.endings import conclude, node_stopping, quarantine_error
from vfl_node.node.faults import explain
from vfl_node.node.peers import Peers
from vfl_node.node.predictions import check_coordinator
from vfl_node.node.pruning import HourlyPruning
from vfl_node.node.record import Record
from vfl_node.node.releases import release_ended
from vfl_node.node.room import check_room
from vfl_node.node.states import UNFINISHED, State
from vfl_node.node.store import Store
from vfl_node.node.turns import Turns
from vfl_node.node.usage import Usage
from vfl_node.node.work import Work
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import Settings
from vfl_node.settings.retention import Retention
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice

log = structlog.get_logger()

PRUNE_S = 3600.0
"""How often jobs are removed that the settings no longer keep."""

WATCH_S = 1.0
"""How often the watch checks that every job under way has a thread, and that the end of every other one is stored."""


class Works:
    """The work on every job that is under way. Safe to use from several threads.

    Args:
        settings: of this node.
        store: its jobs.

    Attributes:
        budget: the memory that they have reserved.
        on_hour: called every hour, by the watch.
        draining: whether no job may begin.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._works: dict[str, Work] = {}
        self._back: dict[str, str] = {}  # job with a stored part → the party that is back, for which it may have waited
        self._usage = Usage(store, settings)
        self.budget = Budget(settings.resources.memory_mib, settings.models, settings.protection)
        fitting = self.budget.count_fitting if settings.queue.max_running == "auto" else None
        self._turns = Turns(settings.queue.places, self._usage.places_of, self._usage.spent_s, fitting)
        self.draining = Draining(settings.state_dir, self._turns)
        self._lock = threading.RLock()  # one change of a job's state at a time
        self._peers: Peers | None = None
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.on_hour: Callable[[], None] = lambda: None
        self._pruning = HourlyPruning(settings.retention, self.prune, store)

    def attach(self, peers: Peers) -> None:
        """Set the peers with which jobs are run, before any of them may call."""
        self._peers = peers
        peers.steps = self._steps

    def _steps(self, peer: str) -> dict[str, int]:
        """As :attr:`vfl_node.node.peers.Peers.steps`; takes no lock."""
        works = [work for work in list(self._works.values()) if not work.ended]
        return {work.record.id: work.progress.steps for work in works if peer in work.others.names}

    def start(self) -> None:
        """Go on with jobs that were unfinished when the node last stopped; destroy the secrets of those that are over."""
        for record in self._store.records():
            if record.over:
                self._store.destroy_secrets(record)
        release_ended(self._store)
        self._usage.load()
        for record in self._store.standing(*UNFINISHED):
            self._go_on(record.id)
        self._watcher = threading.Thread(target=self._watch, name="jobs", daemon=True)
        self._watcher.start()

    def stop(self, timeout_s: float) -> None:
        """Pause what runs, tell the peers, and wait for the threads."""
        self._stopping.set()
        with self._lock:
            works = list(self._works.values())
        for work in works:
            work.stop.ask(node_stopping())
        limit = time.monotonic() + timeout_s
        for work in works:
            work.join(max(0.0, limit - time.monotonic()))
            if work.alive:  # in the middle of long work: breaking it off does not count as a death of the process
                with suppress(StateError):
                    self._store.pause(work.record.id)
        if self._watcher:
            self._watcher.join(max(WATCH_S, limit - time.monotonic()))

    def get(self, job_id: str) -> Work | None:
        """The work on a job, if it is under way."""
        return work if (work := self.latest(job_id)) and work.alive else None

    def latest(self, job_id: str) -> Work | None:
        """The same, or the work that ended not long ago."""
        with self._lock:
            return self._works.get(job_id)

    def places(self) -> dict[str, int]:
        """As :meth:`vfl_node.node.turns.Turns.usage`."""
        return self._turns.usage()

    def waits(self) -> Counter[str]:
        """What jobs wait for, one of :data:`vfl_node.node.reasons.KINDS` → how many do; takes no lock."""
        works = [work for work in list(self._works.values()) if work.alive and not work.ended]
        return Counter(queue["kind"] for work in works if (queue := work.queue))

    def expects(self, peer: str, job_id: str) -> bool:
        """Whether ``peer`` may open a conversation about ``job_id`` now, or a moment later."""
        work = self.get(job_id)
        return work is not None and peer in work.others.names

    def tell(self, peer: str, notice: Notice) -> bool:
        """As :meth:`vfl_node.node.peers.Peers.tell`."""
        return bool(self._peers and self._peers.tell(peer, notice))

    def check_versions(self, job: Job) -> None:
        """Raise PeerError (``E_VERSION``) if a party of a job speaks another version of the protocol."""
        assert self._peers is not None
        for peer in job.parties.peers_of(self._settings.name):
            self._peers.check_version(peer)

    def check_coordinator(self, job: Job) -> None:
        """Raise PeerError (``E_COORDINATOR``) if a job of predictions needs a coordinator that is away."""
        assert self._peers is not None
        if job.predict:
            check_coordinator(job, self._peers)

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """A context in which a job may begin: no other does, and the node does not stop. Raises Paused if it is stopping."""
        with self._lock:
            if self._stopping.is_set():
                raise node_stopping()
            yield

    def check_room(self, submitter: str, *, serves: bool, stored: bool = False, asks: bool = False) -> None:
        """Check that there is room for one more job.

        Args:
            submitter: of the job.
            serves: whether it is a service of predictions.
            stored: whether it is in the index already.
            asks: whether it is to wait for this node's owner.

        Raises:
            PolicyError: there is none (``E_BUSY``).
        """
        if serves and not stored:
            self.draining.check()  # it needs no turn
        with self._lock:
            works = [work for work in self._works.values() if work.alive and not work.ended]
        others = 0 if stored else self._store.count(submitter)
        asked = len(self._store.standing("asked", submitter=submitter)) if asks else 0
        check_room(self._settings, works, others, submitter, serves=serves, asked=asked)

    def begin(self, record: Record) -> None:
        """Begin to work on a job; nothing happens if it is under way.

        Raises:
            VflError: it cannot begin; the job has ended with this error.
        """
        assert self._peers is not None
        with self._lock:
            before = self._works.get(record.id)
            if before is not None:
                if before.alive and not before.ended:
                    return
                before.join()  # the job has ended, and the thread is about to
            try:
                work = Work(self._settings, self._store, self._peers, self.budget, self._turns, self._usage, record)
            except (VflError, OSError) as cause:  # written by another version, or the disk refuses
                error = explain(cause)
                if isinstance(cause, UsageError):
                    message, hint = f"this version cannot read it: {error.message}", "submit it again"
                    error = StateError(message, code="E_STATE_VERSION", hint=hint)
                if conclude(self._settings, self._store, record.fail(error)).state == "done":
                    return
                raise error from None
            alive = {job_id: other for job_id, other in self._works.items() if other.alive}
            self._works = alive | {record.id: work}
            work.start()

    def resume(self, job_id: str, *, by_owner: bool = True) -> Record:
        """Go on with a job that failed because a peer was lost; the peers go on when they are asked.

        Args:
            job_id: of the job.
            by_owner: whether this node's owner asks for it; then deaths of the process are counted anew.

        Raises:
            UsageError: no such job, or one that cannot go on.
            PolicyError: too many are under way (``E_BUSY``); it may go on later.
        """
        with self.beginning():
            record = self._store.record(job_id)
            if record.state in UNFINISHED and (record.state != "paused" or self.get(job_id)):
                return record
            if not (record.resumable or record.state == "paused"):
                hint = "vfl-node show JOB" if record.state == "asked" else "submit it again as a new job"
                raise UsageError(f"job {job_id} cannot be resumed ({record.state})", code="E_JOB_ENDED", hint=hint)
            if record.code == "E_STALLED" and any(thread.name == f"job-{job_id}" for thread in threading.enumerate()):
                raise UsageError(f"the work on job {job_id} still hangs", code="E_STALLED", hint="restart the node first")
            self.check_room(record.submitter, serves=record.is_service, stored=True)
            deaths = 0 if by_owner else record.deaths
            anew: dict[str, Any] = {
                "state": "waiting",
                "finished": None,
                "code": None,
                "message": None,
                "hint": None,
                "deaths": deaths,
            }
            record = self._store.update(record, **anew)
            self.begin(record)
        return record

    def go_on_with(self, peer: str, job_id: str) -> None:
        """``peer`` is back: go on with a job that waits for it, now or once the work that is under way has ended unconfirmed.

        That work may have waited too long by a moment. Where there is no room now, :meth:`_watch` tries again.
        """
        with self._lock:
            self._back[job_id] = peer
        self.go_on_with_unconfirmed()

    def go_on_with_unconfirmed(self) -> None:
        """Go on with those jobs of :meth:`go_on_with` whose work has ended; once for each time that a party came back."""
        with self._lock:
            for job_id, peer in list(self._back.items()):
                record = self._store.get(job_id)
                if record is not None and record.state in UNFINISHED:
                    continue
                if record is not None and record.state == "unconfirmed" and self._peers and self._peers.online(peer):
                    try:
                        self.resume(job_id, by_owner=False)
                    except PolicyError:  # no room at the moment
                        continue
                    except VflError as error:
                        log.warning("job cannot go on yet", job=job_id, code=error.code, reason=error.message)
                del self._back[job_id]

    def forget(self, record: Record, message: str, *, state: State = "cancelled", code: str = "E_CANCELLED") -> Record | None:
        """End a job with which nobody works: what it needs to go on is destroyed.

        Args:
            record: the job.
            message: why, for this node's owner.
            state: in which it ends.
            code: of why it ends.

        Returns:
            The job as it has ended; None if somebody works on it by now.
        """
        with self._lock:
            if self.get(record.id):
                return None
            record = replace(record, state=state, finished=utc_now(), code=code, message=message, hint=None)
            return conclude(self._settings, self._store, record)

    def pause_with(self, peer: str, error: VflError) -> list[str]:
        """Pause the jobs under way in which ``peer`` takes part, for ``error``; returns their ids."""
        with self._lock:
            works = [work for work in self._works.values() if work.alive and peer in work.others.names]
        for work in works:
            work.stop.ask(Paused(error.message, code=error.code, hint=error.hint, for_peer=error.for_peer))
        return [work.record.id for work in works]

    def prune(self, limits: Retention, *, models: bool, dry: bool) -> list[str]:
        """As :meth:`vfl_node.node.store.Store.prune`, while no job begins."""
        with self._lock:
            removed = self._store.prune(limits, models=models, dry=dry)
        if removed and not dry:
            log.info("jobs pruned", jobs=len(removed))
        return removed

    def _go_on(self, job_id: str) -> None:
        """Go on with a job that was unfinished when the node stopped, unless a peer has asked for that meanwhile."""
        with self.beginning():
            record = self._store.get(job_id)
            if record is None or record.state not in UNFINISHED or self.get(job_id):
                return
            confirmed = self._store.outcome(record).confirmed  # it ends at once
            if record.state == "running" and not confirmed:  # neither ended nor paused: the process died in it
                record = replace(record, deaths=record.deaths + 1)
                if record.deaths >= self._settings.quarantine_after:
                    conclude(self._settings, self._store, record.fail(quarantine_error(record.deaths)))
                    log.warning("job put aside", job=job_id, code="E_QUARANTINED", deaths=record.deaths)
                    return
                with suppress(StateError):  # on a full disk this death is not counted
                    self._store.update(record)
            log.info("job goes on", job=job_id, state=record.state)
            with suppress(VflError):  # with which it has ended
                self.begin(record)

    def _watch(self) -> None:
        """Store ends that could not be stored before, end jobs whose thread has gone, and prune."""
        due = 0.0
        while not self._stopping.wait(WATCH_S):
            try:
                self._store.settle()
                with self._lock:
                    works = list(self._works.values())
                for work in works:
                    work.check()
                self._usage.measure()
                if loss := self._store.loss():
                    for work in works:
                        work.stop.ask(loss)
                self.go_on_with_unconfirmed()
                if time.monotonic() > due:
                    due = time.monotonic() + PRUNE_S
                    self.on_hour()
                    self._pruning.run()
            except StateError as error:
                log.warning("jobs cannot be pruned yet", code=error.code, reason=error.message)
            except Exception:
                log.exception("internal error")  # the watch must outlive it
