"""The life of one job at one node: read the table, meet the peer, play the part, wait for a lost peer.

A lost peer is waited for and the conversation begun again from what both have stored; because
every secret of this party derives from the job's stored seed, a repeated attempt sends the
same bytes.
"""

from __future__ import annotations

import errno
import threading
import time
from typing import Any

import structlog

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table, read_table
from vfl_node.errors import Cancelled, DataError, Paused, PeerError, PeerLost, StateError, VflError, peer_text
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.party import Part, play
from vfl_node.node.peers import Peers
from vfl_node.node.store import UNFINISHED, Record, State, Store, now
from vfl_node.settings import Settings
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer
from vfl_node.transport.streams import StreamPipe

log = structlog.get_logger()

TELL_PEER_S = 15.0
"""How long a job that cannot start tries to reach its peer to say so."""

STEADY_S = 1.0
"""A conversation that lasted this long got somewhere: when it breaks, a new wait begins."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0
"""How long to wait before meeting a lost peer again; twice as long each time that it ends soon, as on a full disk."""


class Work:
    """One job's thread.

    Attributes:
        record: the job as stored last.
        stop: the way to end it.
        progress: how far it is.
    """

    def __init__(self, settings: Settings, store: Store, peers: Peers, record: Record) -> None:
        self.record = record
        self.stop = Stop()
        self.progress = LiveProgress(record.id, self.stop)
        self._settings = settings
        self._store = store
        self._peers = peers
        self._job = record.job
        self._peer = peer_of(record, settings.name)
        self._folder = store.job_folder(record)
        self._thread = threading.Thread(target=self._live, name=f"job-{record.id}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def _live(self) -> None:
        """Run the job, and store how it ended. What a resumed job needs is kept, and destroyed otherwise."""
        try:
            self._run()
            self._end("done")
        except Paused:
            self._end("paused")
        except Cancelled as error:
            self._end("cancelled", error)
        except VflError as error:
            self._end("failed", error)
        except Exception as error:
            log.exception("internal error", job=self.record.id)  # a defect of ours: say so, keep the node alive
            self._end("failed", VflError(f"internal error: {type(error).__name__}", hint="see the node's log"))

    def _run(self) -> None:
        """From the table to the report."""
        if self._job.align.group == "modp2048":
            log.warning("modp2048 is below today's recommended strength; prefer curve25519 or modp3072", job=self.record.id)
        table = self._table()
        deadline = time.monotonic() + self._settings.peer_wait_s
        lost, pause_s = "", FIRST_PAUSE_S
        while True:
            try:
                pipe = self._meet(deadline)
            except PeerLost as error:
                if self._folder.kept:
                    log.warning("the peer has not confirmed that it kept its half", job=self.record.id, peer=self._peer)
                    return
                if not lost:
                    raise
                raise PeerLost(f"{lost}; {error.message}", hint=error.hint) from None
            except PeerError as error:
                if self._folder.kept and error.code == "E_JOB_ENDED":  # it is done, so it had this party's word
                    return
                raise
            started = time.monotonic()
            try:
                self._converse(table, pipe)
                return
            except PeerLost as error:
                self.stop.check()
                lost = error.message
                wait_s = self._settings.peer_wait_s
                self.progress.say(f"{lost}; waiting up to {wait_s:.0f} s for {self._peer}", peer=self._peer)
                lasted = time.monotonic() - started
                if lasted > STEADY_S:
                    deadline = time.monotonic() + wait_s
                if time.monotonic() > deadline:
                    raise
                pause_s = FIRST_PAUSE_S if lasted > MOST_PAUSE_S else min(2 * pause_s, MOST_PAUSE_S)
                self.stop.wait(pause_s)

    def _table(self) -> Table:
        """This party's table; if it cannot be used the peer is told before the job fails."""
        try:
            if self._settings.data is None:
                raise DataError("this node has no data", code="E_CONFIG", hint="set data.path in its configuration")
            return read_table(
                self._settings.data,
                id_form=self._job.align.id_form,
                needs_label=self._settings.role == "active" and self._job.train is not None,
                party=self._settings.name,
            )
        except VflError as error:
            self.progress.say(error.message)
            try:
                channel = self._channel(self._meet(time.monotonic() + TELL_PEER_S))
                run(channel.abort(error))
                channel.close()
            except VflError:
                log.info("the peer could not be told", job=self.record.id)
            raise error from None

    def _meet(self, deadline: float) -> StreamPipe:
        """A conversation with the peer, offering the job first where it was submitted here."""
        peer, job_id = self._peer, self.record.id
        self.progress.say(f"waiting for {self._peers.describe(peer)}", peer=peer)
        if self.record.submitter == self._settings.name or self._folder.kept:
            offer = Notice(offer=Offer(job_id=job_id, submitter=self._settings.name, job_json=self.record.spec))
            reply = self._peers.ask(peer, offer, key=job_id, stop=self.stop, deadline=deadline).offer_reply
            if not reply.accepted:
                code = "E_JOB_ENDED" if reply.code == "E_JOB_ENDED" else "E_REFUSED"
                reason = f"{peer_text(reply.reason)} ({peer_text(reply.code, 40)})"
                raise PeerError(f"{peer} refused the job: {reason}", code=code, hint=f"ask the owner of {peer}")
        return self._peers.conversation(peer, job_id, stop=self.stop, deadline=deadline)

    def _converse(self, table: Table, pipe: StreamPipe) -> None:
        """One attempt over one conversation."""
        self.stop.listen(pipe.cancel)
        channel = self._channel(pipe)
        try:
            own = Randomness(self._folder.seed(first=self.record.attempt == 0))
            attempt = self.record.attempt + 1
            self.record = self._store.update(self.record, state="running", attempt=attempt)
            memory = self._store.partner(self._peer)
            part = Part.on_this_machine(
                self._settings, self._job, self.record.id, table, own, self._folder, self.progress, attempt, memory
            )
            run(play(part, channel))
        except Paused as error:
            run(channel.abort(error, resumable=True))
            raise
        except PeerError:  # the peer knows, or is gone
            raise
        except VflError as error:
            run(channel.abort(error, resumable=error.code == "E_DISK_FULL"))  # seen before a list was begun
            raise
        except OSError as error:
            stored = _not_stored(error)
            run(channel.abort(stored, resumable=stored.code == "E_DISK_FULL"))
            raise stored from None
        except Exception:
            run(channel.abort(VflError("internal error")))
            raise
        finally:
            channel.close()

    def _channel(self, pipe: StreamPipe) -> Channel:
        return Channel(pipe, peer=self._peer, job_id=self.record.id)

    def _end(self, state: State, error: VflError | None = None) -> None:
        changes: dict[str, Any] = {"state": state, "finished": None if state in UNFINISHED else now()}
        if error is not None:
            changes |= {"code": error.code, "message": error.message, "hint": error.hint or None}
        self.record = self._store.update(self.record, **changes)
        if state not in UNFINISHED and not self.record.resumable:
            self._folder.destroy_secrets()
        line = log.error if state == "failed" else log.info
        line(f"job {state}", job=self.record.id, **({"code": error.code, "reason": error.message} if error else {}))


def _not_stored(error: OSError) -> StateError:
    if error.errno == errno.ENOSPC:
        hint = "free space, then go on: vfl-node resume JOB"
        return StateError("the disk is full", code="E_DISK_FULL", hint=hint, for_peer="its disk is full")
    return StateError(f"cannot store: {error.strerror or error}", hint="see state_dir", for_peer="it cannot store its state")


def peer_of(record: Record, own: str) -> str:
    """The other party of a job of two."""
    return next(name for name in record.job.parties.all if name != own)
