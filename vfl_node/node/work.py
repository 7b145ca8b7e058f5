"""The life of one job at one node: read the table, meet the other parties, play the part, wait for a lost one.

A lost party is waited for and all conversations are begun again from what everyone has stored;
because every secret of this party derives from the job's stored seed, a repeated attempt sends
the same bytes.
"""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import Cancelled, Paused, PeerError, PeerLost, StateError, UsageError, VflError, peer_text
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.meeting import Meeting
from vfl_node.node.party import Part, conversations
from vfl_node.node.peers import Peers
from vfl_node.node.predictions import Predicting, account, prepare, read_input
from vfl_node.node.requests import Requests
from vfl_node.node.store import UNFINISHED, Record, State, Store, now
from vfl_node.settings import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer

log = structlog.get_logger()

TELL_PEER_S = 15.0
"""How long a job that cannot start tries to reach its peers to say so."""

ASK_AGAIN_S = 5.0
"""How often a peer that does not come to its conversation is asked whether it still means to."""

STEADY_S = 1.0
"""An attempt that lasted this long got somewhere: when it breaks off, a new wait begins."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0
"""How long to wait before meeting a lost peer again; twice as long each time that it ends soon, as on a full disk."""


class Work:
    """One job's thread.

    Attributes:
        record: the job as stored last.
        stop: the way to end it.
        progress: how far it is.
        requests: of this node's owner; None where the job takes none.
    """

    def __init__(self, settings: Settings, store: Store, peers: Peers, record: Record) -> None:
        self.record = record
        self.stop = Stop()
        self.progress = LiveProgress(record.id, self.stop)
        self._settings = settings
        self._store = store
        self._peers = peers
        self._job = record.job
        self._others = peers_of(record, settings.name)
        self._folder = store.job_folder(record)
        predict = self._job.predict
        takes = predict is not None and predict.rows == "known" and predict.to == settings.role
        self.requests = Requests() if takes else None
        self._conversing = False
        if self._folder.cancelled:  # before this node was last killed
            self.requests.close() if self.requests else self.stop.ask(_cancelled())
        self._thread = threading.Thread(target=self._live, name=f"job-{record.id}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def cancel(self) -> bool:
        """End, also after a restart: predictions under way when all requests are answered, anything else at once.

        Returns:
            Whether it ends at once, so that the peers should be told.
        """
        with suppress(OSError):  # on a full disk a job can be cancelled all the same
            self._folder.cancel()
        if self.requests and self._conversing and not self.requests.closed:
            self.requests.close()
            return False
        self.stop.ask(_cancelled())
        return True

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
        table, predicting = self._inputs()
        deadline = time.monotonic() + self._settings.peer_wait_s
        lost, pause_s = "", FIRST_PAUSE_S
        while True:
            started = None
            try:
                with self._meeting(lost) as meeting:
                    self._meet(meeting, deadline)
                    started = time.monotonic()
                    self._converse(table, predicting, meeting)
                return
            except PeerLost as error:
                if self.requests and self.requests.closed:
                    self.stop.ask(_cancelled())
                self.stop.check()
                if error.code == "E_PEER_ABSENT":
                    if self._folder.kept and self._settings.role != "coordinator":  # whose key the others may still need
                        text = "not every party has confirmed that it kept its half"
                        log.warning(text, job=self.record.id, reason=error.message)
                        return
                    if not lost:
                        raise
                    raise PeerLost(f"{lost}; {error.message}", hint=error.hint) from None
                lost = error.message
                wait_s = self._settings.peer_wait_s
                self.progress.say(f"{lost}; waiting up to {wait_s:.0f} s for {' and '.join(self._others)}")
                lasted = time.monotonic() - started if started else 0.0
                if lasted > STEADY_S:
                    deadline = time.monotonic() + wait_s
                if time.monotonic() > deadline:
                    raise
                pause_s = FIRST_PAUSE_S if lasted > MOST_PAUSE_S else min(2 * pause_s, MOST_PAUSE_S)
                self.stop.wait(pause_s)
            except PeerError as error:
                # Who is done had the last word of everyone, so that everyone has kept theirs: nobody is waited for.
                if self._folder.kept and error.code == "E_JOB_ENDED":
                    return
                raise

    def _inputs(self) -> tuple[Table | None, Predicting | None]:
        """This party's table, and what it predicts with; where they cannot be used the others are told before the job fails."""
        if self._settings.role == "coordinator":
            return None, None
        try:
            if self._job.predict:
                return prepare(self._settings, self._store, self._job, self._folder, self.requests)
            return read_input(self._settings, self._job), None
        except VflError as error:
            self.progress.say(error.message)
            with suppress(VflError), self._meeting() as meeting:
                with suppress(PeerError):  # as many as come within the time
                    self._meet(meeting, time.monotonic() + TELL_PEER_S)
                raise error
            raise error from None

    def _meeting(self, lost: str = "") -> Meeting:
        return Meeting(self.record.id, self._others, self._peers, self.stop, self.progress, lost=lost)

    def _meet(self, meeting: Meeting, deadline: float) -> None:
        """Begin a conversation with each of the others.

        Nobody waits in a circle, since all meet in one order: that of pairs, (active, passive), (active, coordinator),
        (passive, coordinator), in which each party finds its own in the order of the job's parties. Of the pairs that
        have not met, the first is the next one of both its parties.
        """
        for peer in self._others:
            while peer not in meeting.channels:
                self._ask(peer, meeting, deadline)
                until = min(deadline, time.monotonic() + ASK_AGAIN_S)
                try:
                    pipe = self._peers.conversation(peer, self.record.id, waiting=meeting, deadline=until)
                except PeerLost as error:
                    if error.code != "E_PEER_ABSENT" or until == deadline:
                        raise
                else:
                    meeting.add(peer, pipe)

    def _ask(self, peer: str, meeting: Meeting, deadline: float) -> None:
        """Offer the job to ``peer``, or ask whether it goes on with it: where it has ended, nobody comes to a conversation."""
        own, submitter = self._settings.name, self.record.submitter
        if not self.record.attempt and submitter not in (own, peer):
            return  # it may not have heard of it yet
        offer = Notice(offer=Offer(job_id=self.record.id, submitter=own, job_json=self.record.spec))
        reply = self._peers.ask(peer, offer, key=self.record.id, waiting=meeting, deadline=deadline).offer_reply
        ended = reply.code == "E_JOB_ENDED"
        if not reply.accepted and (ended or own == submitter):
            raise PeerError(
                f"{peer} refused the job: {peer_text(reply.reason)} ({peer_text(reply.code, 40)})",
                code="E_JOB_ENDED" if ended else "E_REFUSED",
                hint=f"ask the owner of {peer}",
                for_peer=f"{peer} refused the job",
            )

    def _converse(self, table: Table | None, predicting: Predicting | None, meeting: Meeting) -> None:
        """One attempt, with everyone there."""
        own = Randomness(self._folder.seed(first=self.record.attempt == 0))
        attempt = self.record.attempt + 1
        self.record = self._store.update(self.record, state="running", attempt=attempt)
        partner = next((name for name in self._others if name != self._job.parties.coordinator), "")
        memory = self._store.partner(partner) if table is not None else None
        try:
            part = Part.on_this_machine(
                self._settings, self._job, self.record.id, table, own, self._folder, self.progress, attempt, memory, predicting
            )
            self._conversing = True
            meeting.play(conversations(part, meeting.channels), part.processes)
        except OSError as error:
            raise _not_stored(error) from None
        finally:
            self._conversing = False

    def _end(self, state: State, error: VflError | None = None) -> None:
        changes: dict[str, Any] = {"state": state, "finished": None if state in UNFINISHED else now()}
        if error is not None:
            changes |= {"code": error.code, "message": error.message, "hint": error.hint or None}
        self.record = conclude(self._settings, self._store, replace(self.record, **changes))
        if self.requests:
            self.requests.end(
                error or UsageError(f"the predictions have ended ({state})", code="E_JOB_ENDED", hint="ask again")
            )
        line = log.error if state == "failed" else log.info
        line(f"job {state}", job=self.record.id, **({"code": error.code, "reason": error.message} if error else {}))


def conclude(settings: Settings, store: Store, record: Record) -> Record:
    """Store how a job ended. Where that is for good, its secrets are destroyed, and what it disclosed is reported before."""
    folder = store.job_folder(record)
    if record.over:
        try:
            account(settings, record, folder)
        except (VflError, OSError, ValueError) as error:
            log.warning("what was predicted could not be reported", job=record.id, reason=str(error))
    stored = store.update(record)
    if stored.over:
        store.destroy_secrets(stored)
    return stored


def _cancelled() -> Cancelled:
    return Cancelled("cancelled by this node's owner", for_peer="its owner cancelled the job")


def _not_stored(error: OSError) -> StateError:
    if error.errno == errno.ENOSPC:
        hint = "free space, then go on: vfl-node resume JOB"
        return StateError("the disk is full", code="E_DISK_FULL", hint=hint, for_peer="its disk is full")
    return StateError(f"cannot store: {error.strerror or error}", hint="see state_dir", for_peer="it cannot store its state")


def peers_of(record: Record, own: str) -> list[str]:
    """The other parties, in the order of the job: active, passive, coordinator."""
    return [name for name in record.parties if name != own]
