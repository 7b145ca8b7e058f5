"""The jobs of one node: submitted here or offered by a peer, resumed, cancelled, looked at.

What a job does while it lives is in :mod:`vfl_node.node.work`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import structlog

from vfl_node import failpoints
from vfl_node.errors import GaveWay, Paused, PeerError, PolicyError, StateError, UsageError, VflError, peer_text
from vfl_node.estimate.budget import Budget
from vfl_node.job import Job, parse_job
from vfl_node.logs import Seldom
from vfl_node.machine import now
from vfl_node.node import predictions
from vfl_node.node.admission import check_allowed, check_room
from vfl_node.node.faults import explain
from vfl_node.node.peers import Peers
from vfl_node.node.states import UNFINISHED, State
from vfl_node.node.store import Record, Store
from vfl_node.node.turns import Turns
from vfl_node.node.work import OWN_WISH, Work, conclude, peers_of
from vfl_node.run.live import AT_REST
from vfl_node.run.requests import PredictionRequest, Records, Requests
from vfl_node.settings import Settings
from vfl_node.transport.bounds import MOST_JOB_BYTES
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer, OfferReply

log = structlog.get_logger()

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

PRUNE_S = 3600.0
"""How often jobs are removed that the settings no longer keep."""

WATCH_S = 1.0
"""How often it is looked whether every job that is under way has a thread, and whether what ended is stored."""

MOST_TOLD_AGAIN = 64
"""Cancelled jobs, the newest, of which a peer is told whenever its link is up again."""


class Jobs:
    """Everything this node does, has done, or waits to do."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._works: dict[str, Work] = {}
        self._turns = Turns(settings.jobs_at_once)
        self._refusals: dict[str, Seldom] = {}
        self._lock = threading.RLock()  # one change of a job's state at a time
        self._peers: Peers | None = None
        self._budget = Budget(settings.limits, settings.models)
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def attach(self, peers: Peers) -> None:
        """The peers that jobs are run with; before any of them may call."""
        self._peers = peers
        peers.steps = lambda: sum(work.progress.steps for work in list(self._works.values()))
        peers.on_up = self._tell_cancelled

    def start(self) -> None:
        """Go on with what was unfinished when the node last stopped, and forget the secrets of what was not."""
        for record in self._store.all():
            if record.over:
                self._store.destroy_secrets(record)
        for record in self._store.unfinished():
            self._go_on(record.id)
        self._watcher = threading.Thread(target=self._watch, name="jobs", daemon=True)
        self._watcher.start()

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """While a job is begun: nothing else is, and the node does not stop. Raises Paused where it is stopping."""
        with self._lock:
            if self._stopping.is_set():
                raise _stopping()
            yield

    def _go_on(self, job_id: str) -> None:
        """Go on with a job that was unfinished when the node stopped, unless a peer's offer has had it go on meanwhile."""
        with self._beginning():
            record = self._store.get(job_id)
            if record is None or record.state not in UNFINISHED or self._work(job_id):
                return
            if record.state == "running":  # neither ended nor paused: the process died in it
                record = replace(record, deaths=record.deaths + 1)
                if record.deaths >= self._settings.quarantine_after:
                    self._store.end(self._ended(record, _quarantined(record)))
                    log.warning("job put aside", job=job_id, code="E_QUARANTINED", deaths=record.deaths)
                    return
                with suppress(StateError):  # a full disk: then it dies once more before it is put aside
                    self._store.update(record)
            log.info("job goes on", job=job_id, state=record.state)
            with suppress(VflError):  # with which it has ended
                self._begin(record)

    def submit(self, job: Job, *, request: bytes | None = None) -> Record:
        """Register a job of this node's owner and offer it to the peers.

        Args:
            job: the job.
            request: CSV of the new records that it predicts, if it does.

        Raises:
            UsageError: the job does not name this node in its role, or names an unknown peer; this node is a coordinator.
            VflError: it predicts, and cannot (:func:`vfl_node.node.predictions.check`).
        """
        check_allowed(self._settings, job)
        if self._settings.role == "coordinator":
            raise UsageError(
                "this node is a coordinator, which has no data and submits no jobs",
                code="E_ROLE",
                hint=f"have it submitted at {' or '.join((job.parties.active, *job.parties.passive))}",
            )
        if self._settings.data is None:
            raise UsageError("this node has no data", code="E_CONFIG", hint="set data.path in its configuration")
        if job.predict:
            predictions.check(self._store, job, self._settings.name)
            if job.predict.rows == "new" and request is None:
                raise UsageError(
                    "this job predicts new records, and there are none", hint="vfl-node predict JOB --align --data FILE"
                )
        with self._beginning():
            self._check_room(self._settings.name, serves=job.is_service)
            failpoints.reach("submit")
            record = self._store.add(job, submitter=self._settings.name, request=request)
            log.info("job submitted", job=record.id)
            self._begin(record)
        return record

    def predict(self, model: str, request: bytes) -> PredictionRequest:
        """Ask for predictions of known records by the model of job ``model``; the service that runs is used, or one begun.

        Raises:
            UsageError: no such job.
            DataError: the request cannot be read.
            VflError: as :meth:`submit`; too many requests wait (``E_BUSY``).
        """
        job, records = self._wanted(model, request, new=False)
        with self._lock:
            return self._service(job).ask(records)

    def predict_new(self, model: str, request: bytes) -> Record:
        """Submit a job that aligns the records of ``request`` and predicts them. Raises as :meth:`predict`."""
        job, _ = self._wanted(model, request, new=True)
        return self.submit(job, request=request)

    def _wanted(self, model: str, request: bytes, *, new: bool) -> tuple[Job, Records]:
        job = predictions.job_for(self._store, self._known(model).id, self._settings.role, new=new)
        predictions.check(self._store, job, self._settings.name)
        return job, predictions.read_request(self._settings, self._store, job, request)

    def _service(self, job: Job) -> Requests:
        """Those of ``job``, if it is under way, or of a new run; of one that has ended since, they say why."""
        wanted = job.canonical()
        for record in self._store.all():
            if record.spec == wanted and not record.over:
                self.resume(record.id)
                work = self._works.get(record.id)
                if work and work.requests and not work.requests.closed:
                    return work.requests
        record = self.submit(job)
        requests = self._works[record.id].requests
        assert requests is not None
        return requests

    def resume(self, job_id: str, *, by_owner: bool = True) -> Record:
        """Go on with a job that failed because a peer was lost; the peers go on when they are asked.

        Args:
            job_id: of it.
            by_owner: whether this node's owner wishes so, after which deaths of the process are counted anew.

        Raises:
            UsageError: no such job, or one that cannot go on.
            PolicyError: too many are under way (``E_BUSY``); it may go on later.
        """
        with self._beginning():
            record = self._known(job_id)
            if record.state in UNFINISHED and (record.state != "paused" or self._work(job_id)):
                return record
            if not (record.resumable or record.state == "paused"):
                hint = "submit it again as a new job"
                raise UsageError(f"job {job_id} cannot be resumed ({record.state})", code="E_JOB_ENDED", hint=hint)
            if record.code == "E_STALLED" and any(thread.name == f"job-{job_id}" for thread in threading.enumerate()):
                raise UsageError(f"the work on job {job_id} still hangs", code="E_STALLED", hint="restart the node first")
            self._check_room(record.submitter, serves=record.is_service, known=True)
            deaths = 0 if by_owner else record.deaths
            begun = {"state": "waiting", "finished": None, "code": None, "message": None, "hint": None, "deaths": deaths}
            record = self._store.update(record, **begun)
            self._begin(record)
        return record

    def cancel(self, job_id: str) -> Record:
        """End a job here and at its peers.

        Raises:
            UsageError: no such job, or it has ended.
        """
        record = self._known(job_id)
        work = self._work(job_id)
        if work is not None:
            if not work.cancel():
                return record
        elif record.resumable:
            record = self._forget(record, OWN_WISH)
        else:
            raise UsageError(f"job {job_id} has already ended ({record.state})", code="E_JOB_ENDED")
        if self._peers:
            for peer in peers_of(record, self._settings.name):
                self._peers.tell(peer, Notice(cancel=Cancel(job_id=job_id)))
        return record

    def _tell_cancelled(self, peer: str) -> None:
        """Tell a peer that is there again what this owner cancelled meanwhile; it passes over what it has heard."""
        assert self._peers is not None
        ours = (r for r in self._store.all() if r.state == "cancelled" and r.message == OWN_WISH and peer in r.parties)
        for record in islice(ours, MOST_TOLD_AGAIN):
            self._peers.tell(peer, Notice(cancel=Cancel(job_id=record.id)))

    def _forget(self, record: Record, message: str, *, state: State = "cancelled", code: str = "E_CANCELLED") -> Record:
        """Nobody waits for this job any more: what it kept to be resumed is destroyed."""
        ended = replace(record, state=state, finished=now(), code=code, message=message, hint=None)
        conclude(self._settings, self._store, ended)
        return ended

    def views(self) -> list[dict[str, Any]]:
        """Every job as the board and the command line show it, newest first."""
        return [self._view(record) for record in self._store.all()]

    def view(self, job_id: str) -> dict[str, Any] | None:
        """One job, or None."""
        record = self._store.get(job_id)
        return self._view(record) if record else None

    def hear(self, peer: str, notice: Notice) -> Notice | None:
        """Answer an offer or a cancellation that ``peer`` sent over its link."""
        if notice.WhichOneof("body") == "cancel":
            self._hear_end(peer, notice.cancel)
            return None
        offer = notice.offer
        try:
            self._accept(peer, offer)
            work = self._work(offer.job_id)
            if work and offer.ready:
                work.invite(peer)
            reply = OfferReply(job_id=offer.job_id, accepted=True, waits=bool(work and work.place))
        except VflError as error:
            if self._refusals.setdefault(peer, Seldom()).lets((offer.job_id, error.code)):
                log.warning("job refused", job=peer_text(offer.job_id, 63), peer=peer, code=error.code, reason=error.message)
            reply = OfferReply(job_id=offer.job_id, accepted=False, code=error.peer_code, reason=error.for_peer)
        except Exception:
            log.exception("internal error", job=peer_text(offer.job_id, 63), peer=peer)  # the link must outlive it
            reply = OfferReply(job_id=offer.job_id, accepted=False, code="E_INTERNAL", reason=VflError("").for_peer)
        return Notice(offer_reply=reply)

    def expects(self, peer: str, job_id: str) -> bool:
        """Whether ``peer`` may open a conversation about ``job_id`` now, or a moment later."""
        work = self._work(job_id)
        return work is not None and peer in work.record.parties

    def _hear_end(self, peer: str, cancel: Cancel) -> None:
        """A peer says that a job has ended, as its owner wished or because it failed."""
        said = f"{peer}'s owner cancelled the job"
        if cancel.failed:
            said = f"{peer} stopped: {peer_text(cancel.reason) or 'the job failed there'}"
        state: State = "failed" if cancel.failed else "cancelled"
        code = PeerError.default_code if cancel.failed else "E_CANCELLED"
        work = self._work(cancel.job_id)
        if work is not None:
            if peer in work.record.parties:
                work.stop.ask(PeerError(said, code=code, for_peer=said))
            return
        record = self._store.get(cancel.job_id)
        if record is not None and record.resumable and peer in record.parties:
            self._forget(record, said, state=state, code=code)

    def stop(self, timeout_s: float) -> None:
        """Pause what runs, tell the peers, and wait for the threads."""
        self._stopping.set()
        with self._lock:
            works = list(self._works.values())
        for work in works:
            work.stop.ask(_stopping())
        limit = time.monotonic() + timeout_s
        for work in works:
            work.join(max(0.0, limit - time.monotonic()))
            if work.alive:  # in the middle of long work: that it is broken off is no death
                with suppress(StateError):
                    self._store.pause(work.record.id)
        if self._watcher:
            self._watcher.join(max(WATCH_S, limit - time.monotonic()))

    def _accept(self, peer: str, offer: Offer) -> None:
        """Take part in a peer's job, if this node's settings allow it; go on with one already begun."""
        known = self._store.get(offer.job_id)
        if known is not None:
            if known.damaged or known.code in ("E_QUARANTINED", "E_NO_PROGRESS"):
                raise StateError(
                    known.message or "", code=known.code or "", for_peer="it waits for its owner to see to the job"
                )
            if known.spec != offer.job_json or peer not in known.parties:
                raise PolicyError(f"{peer} offers another job under a known id", for_peer="this id belongs to another job")
            if known.over:
                ended, code = f"the job has already ended there ({known.state})", "E_JOB_ENDED"
                if known.state == "failed" and (work := self._works.get(known.id)):
                    ended = work.for_peer or ended
                if known.state == "cancelled":
                    heard = known.message or "it was cancelled"  # of another party: who it was
                    ended, code = "its owner cancelled the job" if heard == OWN_WISH else heard, "E_CANCELLED"
                raise PeerError(f"job {known.id} has already ended here ({known.state})", code=code, for_peer=ended)
            try:
                self.resume(known.id, by_owner=False)
            except PolicyError as full:
                raise GaveWay(full.message, for_peer=full.for_peer) from None
            return
        if self._store.pruned(offer.job_id):
            ended = "the job has already ended there"
            raise PeerError(f"job {offer.job_id} has ended here, and was pruned", code="E_JOB_ENDED", for_peer=ended)
        if peer not in self._settings.accept_jobs_from:
            raise PolicyError(
                f"{peer} is not in accept_jobs_from",
                hint=f"to let {peer}'s jobs run without asking, add it to accept_jobs_from in this node's configuration",
                for_peer=f"its settings do not accept jobs from {peer} (accept_jobs_from)",
            )
        if len(offer.job_json) > MOST_JOB_BYTES or not JOB_ID.fullmatch(offer.job_id):
            raise PolicyError(f"{peer} offers a job of unusable size or id", for_peer="the job's size or id is not usable")
        job = parse_job(offer.job_json, source=f"the job offered by {peer}")
        check_allowed(self._settings, job)
        if peer not in job.parties.all:
            raise PolicyError(f"{peer} takes no part in the job it offers", for_peer="the submitter takes no part in the job")
        if job.predict:
            predictions.check(self._store, job, peer)
        with self._beginning():
            self._check_room(peer, serves=job.is_service)
            failpoints.reach("accept")
            record = self._store.add(job, submitter=peer, job_id=offer.job_id)
            log.info("job accepted", job=record.id, peer=peer)
            failpoints.reach("accepted")
            self._begin(record)

    def _check_room(self, submitter: str, *, serves: bool, known: bool = False) -> None:
        with self._lock:
            works = [work for work in self._works.values() if work.alive and not work.ended]
        kept = 0 if known else self._store.count(submitter)
        check_room(self._settings, works, kept, self._turns.waiting, submitter, serves=serves)

    def _begin(self, record: Record) -> None:
        """Work on a job; one that is worked on is left as it is. Raises VflError, with which it has ended."""
        assert self._peers is not None
        with self._lock:
            before = self._works.get(record.id)
            if before is not None:
                if before.alive and not before.ended:
                    return
                before.join()  # it has its end, and is about to go
            try:
                work = Work(self._settings, self._store, self._peers, self._budget, self._turns, record)
            except (VflError, OSError) as cause:  # written by another version, or the disk refuses
                error = explain(cause)
                if isinstance(cause, UsageError):
                    message, hint = f"this version cannot read it: {error.message}", "submit it again"
                    error = StateError(message, code="E_STATE_VERSION", hint=hint)
                self._store.end(self._ended(record, error))
                raise error from None
            self._works = {job_id: of for job_id, of in self._works.items() if of.alive} | {record.id: work}
            work.start()

    @staticmethod
    def _ended(record: Record, error: VflError) -> Record:
        return replace(record, state="failed", finished=now(), code=error.code, message=error.message, hint=error.hint)

    def _watch(self) -> None:
        """Store what could not be stored before, and let no job stay without an end whose thread has gone."""
        due = 0.0
        while not self._stopping.wait(WATCH_S):
            try:
                self._store.settle()
                with self._lock:
                    works = list(self._works.values())
                for work in works:
                    work.check()
                self._pause_where_lost(works)
                days, keep = self._settings.keep_days, self._settings.keep_jobs
                if not (days is None and keep is None) and time.monotonic() > due:
                    due = time.monotonic() + PRUNE_S
                    self.prune(days=days, keep=keep, models=False, dry=False)
            except StateError as error:
                log.warning("jobs cannot be pruned yet", code=error.code, reason=error.message)
            except Exception:
                log.exception("internal error")  # the watch must outlive it

    def prune(self, *, days: float | None, keep: int | None, models: bool, dry: bool) -> list[str]:
        """As :meth:`vfl_node.node.store.Store.prune`."""
        with self._lock:
            removed = self._store.prune(days=days, keep=keep, models=models, dry=dry)
        if removed and not dry:
            log.info("jobs pruned", jobs=len(removed))
        return removed

    def _pause_where_lost(self, works: list[Work]) -> None:
        """Jobs stop where the state folder is gone: what they did would be lost."""
        try:
            self._store.check_there()
        except StateError as error:
            for work in works:
                work.stop.ask(Paused(error.message, code=error.code, hint=error.hint, for_peer=error.for_peer))

    def _work(self, job_id: str) -> Work | None:
        with self._lock:
            work = self._works.get(job_id)
        return work if work is not None and work.alive else None

    def _known(self, job_id: str) -> Record:
        record = self._store.get(job_id)
        if record is None:
            raise UsageError(f"no job {job_id!r} here", code="E_UNKNOWN_JOB", hint="`vfl-node jobs` lists them")
        return record

    def _view(self, record: Record) -> dict[str, Any]:
        work = self._work(record.id)
        error = {"code": record.code, "message": record.message, "hint": record.hint} if record.code else None
        return {
            "id": record.id,
            "name": record.name,
            "state": record.state,
            "parties": record.parties,
            "submitter": record.submitter,
            "attempt": record.attempt,
            "submitted": record.submitted,
            "finished": record.finished,
            "error": error,
            "resumable": record.resumable,
            "place": work.place if work else 0,
            "predict": record.predict,
            "report": self._store.has_report(record),
            **(work.progress.snapshot() if work else AT_REST),
        }


def _stopping() -> Paused:
    return Paused("this node is stopping", for_peer="its node is stopping and will come back")


def _quarantined(record: Record) -> StateError:
    return StateError(
        f"this node's process has died {record.deaths} times while it ran this job, and does not begin it by itself again",
        code="E_QUARANTINED",
        hint="see the node's log and the system's (out of memory?), then go on: vfl-node resume JOB",
    )
