"""The jobs of one node: submitted here or offered by a peer, resumed, cancelled, looked at.

What a job does while it lives is in :mod:`vfl_node.node.work`.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

import structlog

from vfl_node.errors import Paused, PeerError, PolicyError, UsageError, VflError, peer_text
from vfl_node.files import write_whole
from vfl_node.job import Job, parse_job
from vfl_node.node import predictions
from vfl_node.node.live import AT_REST
from vfl_node.node.peers import Peers
from vfl_node.node.requests import Asked, Records, Requests
from vfl_node.node.store import UNFINISHED, Record, Store
from vfl_node.node.work import Work, conclude, peers_of
from vfl_node.settings import Settings, role_in
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer, OfferReply

log = structlog.get_logger()

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

MOST_AT_ONCE = 16
"""Jobs with a thread; a peer that may submit jobs must not be able to exhaust the node."""

MOST_JOB_BYTES = 1 << 16
"""Largest job a peer may offer."""


class Jobs:
    """Everything this node does, has done, or waits to do."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._works: dict[str, Work] = {}
        self._lock = threading.RLock()  # one change of a job's state at a time
        self._peers: Peers | None = None

    def attach(self, peers: Peers) -> None:
        """The peers that jobs are run with; before any of them may call."""
        self._peers = peers

    def start(self) -> None:
        """Go on with what was unfinished when the node last stopped, and forget the secrets of what was not."""
        for record in self._store.all():
            if record.over:
                self._store.destroy_secrets(record)
        for record in self._store.unfinished():
            try:
                log.info("job goes on", job=record.id, state=record.state)
                self._begin(record)
            except VflError as error:  # written by another version
                message = f"this version cannot read it: {error.message}"
                self._store.update(record, state="failed", code="E_STATE", message=message, hint="submit it again")

    def submit(self, job: Job, *, request: bytes | None = None) -> Record:
        """Register a job of this node's owner and offer it to the peers.

        Args:
            job: the job.
            request: CSV of the new records that it predicts, if it does.

        Raises:
            UsageError: the job does not name this node in its role, or names an unknown peer; this node is a coordinator.
            VflError: it predicts, and cannot (:func:`vfl_node.node.predictions.check`).
        """
        self._check_roles(job)
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
        with self._lock:
            self._check_room()
            record = self._store.add(job, submitter=self._settings.name)
            if request is not None:
                write_whole(self._store.job_folder(record).request, request)
            log.info("job submitted", job=record.id)
            self._begin(record)
        return record

    def predict(self, model: str, request: bytes) -> Asked:
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

    def resume(self, job_id: str) -> Record:
        """Go on with a job that failed because a peer was lost; the peers go on when they are asked.

        Raises:
            UsageError: no such job, or one that cannot go on.
        """
        with self._lock:
            record = self._known(job_id)
            if record.state in UNFINISHED:
                return record
            if not record.resumable:
                hint = "submit it again as a new job"
                raise UsageError(f"job {job_id} cannot be resumed ({record.state})", code="E_JOB_ENDED", hint=hint)
            record = self._store.update(record, state="waiting", finished=None, code=None, message=None, hint=None)
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
            record = self._forget(record)
        else:
            raise UsageError(f"job {job_id} has already ended ({record.state})", code="E_JOB_ENDED")
        if self._peers:
            for peer in peers_of(record, self._settings.name):
                self._peers.tell(peer, Notice(cancel=Cancel(job_id=job_id)))
        return record

    def _forget(self, record: Record) -> Record:
        """Nobody waits for this job any more: what it kept to be resumed is destroyed."""
        return conclude(self._settings, self._store, replace(record, state="cancelled"))

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
            work = self._work(notice.cancel.job_id)
            if work is not None and peer in work.record.parties:
                work.stop.ask(PeerError(f"{peer} cancelled the job", code="E_CANCELLED", for_peer=f"{peer} cancelled the job"))
            elif work is None:
                record = self._store.get(notice.cancel.job_id)
                if record is not None and record.resumable and peer in record.parties:
                    self._forget(record)
            return None
        offer = notice.offer
        try:
            self._accept(peer, offer)
            reply = OfferReply(job_id=offer.job_id, accepted=True)
        except VflError as error:
            log.warning("job refused", job=peer_text(offer.job_id, 63), peer=peer, code=error.code, reason=error.message)
            reply = OfferReply(job_id=offer.job_id, accepted=False, code=error.peer_code, reason=error.for_peer)
        except Exception:
            log.exception("internal error", job=peer_text(offer.job_id, 63), peer=peer)  # the link must outlive it
            reply = OfferReply(job_id=offer.job_id, accepted=False, code="E_INTERNAL", reason=VflError("").for_peer)
        return Notice(offer_reply=reply)

    def stop(self, timeout_s: float) -> None:
        """Pause what runs, tell the peers, and wait for the threads."""
        with self._lock:
            works = list(self._works.values())
        for work in works:
            work.stop.ask(Paused("this node is stopping", for_peer="its node is stopping and will come back"))
        limit = time.monotonic() + timeout_s
        for work in works:
            work.join(max(0.0, limit - time.monotonic()))

    def _accept(self, peer: str, offer: Offer) -> None:
        """Take part in a peer's job, if this node's settings allow it; go on with one already begun."""
        known = self._store.get(offer.job_id)
        if known is not None:
            if known.spec != offer.job_json or peer not in known.parties:
                raise PolicyError(f"{peer} offers another job under a known id", for_peer="this id belongs to another job")
            if known.over:
                ended = f"the job has already ended there ({known.state})"
                raise PeerError(f"job {known.id} has already ended here ({known.state})", code="E_JOB_ENDED", for_peer=ended)
            self.resume(known.id)
            return
        if peer not in self._settings.accept_jobs_from:
            raise PolicyError(
                f"{peer} is not in accept_jobs_from",
                hint=f"to let {peer}'s jobs run without asking, add it to accept_jobs_from in this node's configuration",
                for_peer=f"its settings do not accept jobs from {peer} (accept_jobs_from)",
            )
        if len(offer.job_json) > MOST_JOB_BYTES or not JOB_ID.fullmatch(offer.job_id):
            raise PolicyError(f"{peer} offers a job of unusable size or id", for_peer="the job's size or id is not usable")
        job = parse_job(offer.job_json, source=f"the job offered by {peer}")
        self._check_roles(job)
        if peer not in job.parties.all:
            raise PolicyError(f"{peer} takes no part in the job it offers", for_peer="the submitter takes no part in the job")
        if job.predict:
            predictions.check(self._store, job, peer)
        with self._lock:
            self._check_room()
            record = self._store.add(job, submitter=peer, job_id=offer.job_id)
            log.info("job accepted", job=record.id, peer=peer)
            self._begin(record)

    def _check_roles(self, job: Job) -> None:
        own, role = self._settings.name, self._settings.role
        if role_in(job.parties, own) != role:
            raise UsageError(
                f"job {job.name!r} does not name {own!r} as {role}",
                code="E_ROLE",
                hint="its parties are " + ", ".join(f"{role_in(job.parties, name)}: {name}" for name in job.parties.all),
                for_peer=f"the job does not name it as {role}",
            )
        if job.align.protocol not in self._settings.limits.protocols:
            raise PolicyError(
                f"job {job.name!r} aligns by {job.align.protocol}, which this node's settings do not allow",
                hint="see limits.protocols",
                for_peer=f"its settings do not allow alignment by {job.align.protocol} (limits.protocols)",
            )
        if unknown := sorted(set(job.parties.all) - {own} - set(self._settings.peers)):
            raise UsageError(
                f"job {job.name!r} names {unknown[0]!r}, which is not among this node's peers",
                code="E_UNKNOWN_PEER",
                hint=f"add it under peers (known: {', '.join(sorted(self._settings.peers)) or 'none'})",
                for_peer="the job names a party that it does not know",
            )

    def _check_room(self) -> None:
        with self._lock:
            alive = sum(work.alive for work in self._works.values())
        if alive >= MOST_AT_ONCE:
            busy = f"it has {MOST_AT_ONCE} jobs under way already"
            raise PolicyError(
                f"{MOST_AT_ONCE} jobs are under way already", code="E_BUSY", hint="wait or cancel one", for_peer=busy
            )

    def _begin(self, record: Record) -> None:
        assert self._peers is not None
        with self._lock:
            before = self._works.get(record.id)
            if before is not None:
                before.join()  # it has stored its end, and is about to go
            work = Work(self._settings, self._store, self._peers, record)
            self._works = {job_id: of for job_id, of in self._works.items() if of.alive} | {record.id: work}
            work.start()

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
            "predict": record.predict,
            "report": self._store.job_folder(record).kept,
            **(work.progress.snapshot() if work else AT_REST),
        }
