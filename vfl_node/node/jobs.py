"""The jobs of one node: submitted here or offered by a peer, run, resumed, cancelled.

A job's thread goes: read the table → offer the job to the peer (if submitted here) →
converse → :func:`vfl_node.node.party.play`. A lost peer is waited for and the conversation
begun again from what both have stored; because every secret of this party derives from the
job's stored seed, a repeated attempt sends the same bytes.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table, read_table
from vfl_node.errors import Cancelled, DataError, Paused, PeerError, PeerLost, PolicyError, UsageError, VflError
from vfl_node.job import Job, parse_job
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.party import Part, play
from vfl_node.node.peers import Peers
from vfl_node.node.store import UNFINISHED, Record, State, Store, now
from vfl_node.settings import Settings
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer, OfferReply
from vfl_node.transport.streams import StreamPipe

log = structlog.get_logger()

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

AT_REST = {"phase": "", "done": 0, "total": 0, "unit": "", "note": "", "loss": None}

TELL_PEER_S = 15.0
"""How long a job that cannot start tries to reach its peer to say so."""


@dataclass
class _Live:
    """A job with a thread."""

    record: Record
    stop: Stop = field(default_factory=Stop)
    progress: LiveProgress = field(init=False)
    thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.progress = LiveProgress(self.record.id, self.stop)


class Jobs:
    """Everything this node does, has done, or waits to do."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._live: dict[str, _Live] = {}
        self._lock = threading.Lock()
        self.peers: Peers | None = None

    def resume(self, peers: Peers) -> None:
        """Go on with what was unfinished when the node last stopped."""
        self.peers = peers
        for record in self._store.unfinished():
            log.info("job goes on", job=record.id, state=record.state)
            self._begin(record)

    def submit(self, job: Job) -> Record:
        """Register a job of this node's owner and offer it to the peers.

        Raises:
            UsageError: the job does not name this node in its role, or names an unknown peer.
        """
        self._check_roles(job)
        if self._settings.data is None:
            raise UsageError("this node has no data", code="E_CONFIG", hint="set data.path in its configuration")
        record = self._store.add(job, submitter=self._settings.name)
        log.info("job submitted", job=record.id)
        self._begin(record)
        return record

    def cancel(self, job_id: str) -> Record:
        """End a job here and at the peer.

        Raises:
            UsageError: no such job, or it has ended.
        """
        record = self._store.get(job_id)
        if record is None:
            raise UsageError(f"no job {job_id!r} here", code="E_UNKNOWN_JOB", hint="`vfl-node jobs` lists them")
        with self._lock:
            live = self._live.get(job_id)
        if live is None or record.state not in UNFINISHED:
            raise UsageError(f"job {job_id} has already ended ({record.state})", code="E_JOB_ENDED")
        live.stop.ask(Cancelled("cancelled by this node's owner", for_peer="its owner cancelled the job"))
        if self.peers:
            self.peers.tell(self._peer_of(record.job), Notice(cancel=Cancel(job_id=job_id)))
        return record

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
            self._cancelled_by(peer, notice.cancel.job_id)
            return None
        offer = notice.offer
        try:
            self._accept(peer, offer)
            reply = OfferReply(job_id=offer.job_id, accepted=True)
        except VflError as error:
            log.warning("job refused", job=offer.job_id[:100], peer=peer, code=error.code, reason=error.message)
            reply = OfferReply(job_id=offer.job_id, accepted=False, code=error.code, reason=error.for_peer)
        return Notice(offer_reply=reply)

    def stop(self, timeout_s: float) -> None:
        """Pause what runs, tell the peers, and wait for the threads."""
        with self._lock:
            lives = list(self._live.values())
        for live in lives:
            live.stop.ask(Paused("this node is stopping", for_peer="its node is stopping and will come back"))
        limit = time.monotonic() + timeout_s
        for live in lives:
            if live.thread:
                live.thread.join(max(0.0, limit - time.monotonic()))

    def _accept(self, peer: str, offer: Offer) -> None:
        """Take part in a peer's job, if this node's settings allow it."""
        if peer not in self._settings.accept_jobs_from:
            raise PolicyError(
                f"{peer} is not in accept_jobs_from",
                hint=f"to let {peer}'s jobs run without asking, add it to accept_jobs_from in this node's configuration",
                for_peer=f"its settings do not accept jobs from {peer} (accept_jobs_from)",
            )
        job = parse_job(offer.job_json, source=f"the job offered by {peer}")
        self._check_roles(job)
        if peer not in job.parties.all:
            raise PolicyError(
                f"{peer} offers a job in which it takes no part", for_peer="the submitter takes no part in the job"
            )
        known = self._store.get(offer.job_id)
        if known is not None:
            if known.spec != job.canonical() or known.submitter != peer:
                raise PolicyError(f"{peer} offers another job under a known id", for_peer="this id belongs to another job")
            if known.state not in UNFINISHED:
                raise PeerError(
                    f"job {known.id} has already ended here ({known.state})",
                    code="E_JOB_ENDED",
                    for_peer=f"the job has already ended there ({known.state})",
                )
            return
        if not JOB_ID.fullmatch(offer.job_id):
            raise PolicyError(f"{peer} offers a job with an unusable id", for_peer="the job's id is not usable")
        record = self._store.add(job, submitter=peer, job_id=offer.job_id)
        log.info("job accepted", job=record.id, peer=peer)
        self._begin(record)

    def _check_roles(self, job: Job) -> None:
        own, role = self._settings.name, self._settings.role
        expected = job.parties.active if role == "active" else None
        if (role == "active" and expected != own) or (role == "passive" and own not in job.parties.passive):
            raise UsageError(
                f"job {job.name!r} does not name {own!r} as {role}",
                code="E_ROLE",
                hint=f"its parties are active: {job.parties.active}, passive: {', '.join(job.parties.passive)}",
                for_peer=f"the job does not name it as {role}",
            )
        if unknown := sorted(set(job.parties.all) - {own} - set(self._settings.peers)):
            raise UsageError(
                f"job {job.name!r} names {unknown[0]!r}, which is not among this node's peers",
                code="E_UNKNOWN_PEER",
                hint=f"add it under peers (known: {', '.join(sorted(self._settings.peers)) or 'none'})",
                for_peer="the job names a party that it does not know",
            )

    def _begin(self, record: Record) -> None:
        live = _Live(record)
        live.thread = threading.Thread(target=self._work, args=(live,), name=f"job-{record.id}", daemon=True)
        with self._lock:
            self._live[record.id] = live
        live.thread.start()

    def _work(self, live: _Live) -> None:
        """The thread of one job: run it, and store how it ended."""
        folder = self._store.job_folder(live.record)
        try:
            if not (folder.artefacts / "report.json").exists():
                self._run(live)
            self._end(live, "done")
            folder.destroy_secrets()
        except Paused:
            self._end(live, "paused")
        except Cancelled as error:
            self._end(live, "cancelled", error)
            folder.destroy_secrets()
        except PeerLost as error:  # state kept: `vfl-node` may be restarted to try again
            self._end(live, "failed", error)
        except VflError as error:
            self._end(live, "failed", error)
            folder.destroy_secrets()
        except Exception as error:  # a defect of ours: say so, keep the node alive
            log.exception("internal error", job=live.record.id)
            self._end(live, "failed", VflError(f"internal error: {type(error).__name__}", hint="see the node's log"))
        finally:
            with self._lock:
                self._live.pop(live.record.id, None)

    def _run(self, live: _Live) -> None:
        """From the table to the report; lost peers are waited for."""
        assert self.peers is not None
        job = live.record.job
        peer = self._peer_of(job)
        table = self._table(live, job, peer)
        deadline = time.monotonic() + self._settings.peer_wait_s
        while True:
            try:
                pipe = self._meet(live, peer, deadline)
            except PeerLost as error:
                raise PeerError(error.message, code=error.code, hint=error.hint) from None
            started = time.monotonic()
            try:
                self._converse(live, job, peer, table, pipe)
                return
            except PeerLost as error:
                live.stop.check()
                wait_s = self._settings.peer_wait_s
                live.progress.say(f"{error.message}; waiting up to {wait_s:.0f} s for {peer}", peer=peer)
                if time.monotonic() - started > 1.0:  # the conversation got somewhere: a new wait begins
                    deadline = time.monotonic() + wait_s
                if time.monotonic() > deadline:
                    raise
                live.stop.wait(0.2)

    def _table(self, live: _Live, job: Job, peer: str) -> Table:
        """This party's table; if it cannot be used the peer is told before the job fails."""
        try:
            if self._settings.data is None:
                raise DataError("this node has no data", code="E_CONFIG", hint="set data.path in its configuration")
            return read_table(
                self._settings.data,
                id_form=job.align.id_form,
                needs_label=self._settings.role == "active" and job.train is not None,
                party=self._settings.name,
            )
        except VflError as error:
            live.progress.say(error.message)
            try:
                channel = self._channel(live, peer, self._meet(live, peer, time.monotonic() + TELL_PEER_S))
                run(channel.abort(error))
                channel.close()
            except VflError:
                log.info("the peer could not be told", job=live.record.id)
            raise error from None

    def _meet(self, live: _Live, peer: str, deadline: float) -> StreamPipe:
        """A conversation with the peer, offering the job first where it was submitted here."""
        assert self.peers is not None
        live.progress.say(f"waiting for {self.peers.describe(peer)}", peer=peer)
        if live.record.submitter == self._settings.name:
            offer = Notice(
                offer=Offer(job_id=live.record.id, submitter=self._settings.name, job_json=live.record.job.canonical())
            )
            reply = self.peers.ask(peer, offer, key=live.record.id, stop=live.stop, deadline=deadline).offer_reply
            if not reply.accepted:
                raise PeerError(
                    f"{peer} refused the job: {reply.reason[:300]} ({reply.code[:40]})",
                    code="E_REFUSED",
                    hint=f"ask the owner of {peer}",
                )
        return self.peers.conversation(peer, live.record.id, stop=live.stop, deadline=deadline)

    def _channel(self, live: _Live, peer: str, pipe: StreamPipe) -> Channel:
        return Channel(pipe, peer=peer, job_id=live.record.id)

    def _converse(self, live: _Live, job: Job, peer: str, table: Table, pipe: StreamPipe) -> None:
        """One attempt over one conversation."""
        live.stop.listen(pipe.cancel)
        live.record = self._store.update(live.record, state="running", attempt=live.record.attempt + 1)
        folder = self._store.job_folder(live.record)
        channel = self._channel(live, peer, pipe)
        part = Part.on_this_machine(
            self._settings, job, live.record.id, table, Randomness(folder.seed()), folder, live.progress, live.record.attempt
        )
        try:
            run(play(part, channel))
        except Paused as error:
            run(channel.abort(error, resumable=True))
            raise
        except VflError as error:
            if not isinstance(error, PeerError):
                run(channel.abort(error))
            raise
        finally:
            channel.close()

    def _end(self, live: _Live, state: State, error: VflError | None = None) -> None:
        finished = None if state in UNFINISHED else now()
        changes: dict[str, Any] = {"state": state, "finished": finished}
        if error is not None:
            changes |= {"code": error.code, "message": error.message, "hint": error.hint or None}
        live.record = self._store.update(live.record, **changes)
        line = log.error if state == "failed" else log.info
        line(f"job {state}", job=live.record.id, **({"code": error.code, "reason": error.message} if error else {}))

    def _cancelled_by(self, peer: str, job_id: str) -> None:
        with self._lock:
            live = self._live.get(job_id)
        if live is not None and peer in live.record.job.parties.all:
            live.stop.ask(PeerError(f"{peer}'s owner cancelled the job", code="E_CANCELLED"))

    def _peer_of(self, job: Job) -> str:
        return next(name for name in job.parties.all if name != self._settings.name)

    def _view(self, record: Record) -> dict[str, Any]:
        with self._lock:
            live = self._live.get(record.id)
        error = {"code": record.code, "message": record.message, "hint": record.hint} if record.code else None
        folder = self._store.job_folder(record)
        return {
            "id": record.id,
            "name": record.name,
            "state": record.state,
            "parties": list(record.job.parties.all),
            "submitter": record.submitter,
            "attempt": record.attempt,
            "submitted": record.submitted,
            "finished": record.finished,
            "error": error,
            "report": (folder.artefacts / "report.json").exists(),
            **(
                live.progress.snapshot() if live else {"phase": "", "done": 0, "total": 0, "unit": "", "note": "", "loss": None}
            ),
        }
