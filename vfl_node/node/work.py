"""The life of one job at one node: read the table, meet the other parties, play the part, wait for a lost one.

A job has its turn when the node has a place for it (:mod:`vfl_node.node.turns`). A lost party is waited for and all
conversations are begun again from what everyone has stored; because every secret of this party derives from the job's stored
seed, a repeated attempt sends the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import structlog

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import Cancelled, GaveWay, Paused, PeerError, PeerLost, StateError, UsageError, VflError, peer_text
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import frame_bytes
from vfl_node.machine import now
from vfl_node.node.faults import NOT_NOW, explain
from vfl_node.node.meeting import Meeting
from vfl_node.node.peers import Peers
from vfl_node.node.predictions import account, prepare
from vfl_node.node.states import UNFINISHED, State
from vfl_node.node.store import Record, Store
from vfl_node.node.turns import Turn, Turns
from vfl_node.run.conversations import conversations
from vfl_node.run.inputs import announce, read_input
from vfl_node.run.live import LiveProgress, Stop
from vfl_node.run.requests import Requests
from vfl_node.run.run import set_up
from vfl_node.run.serving import Predicting
from vfl_node.settings import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer
from vfl_node.transport.streams import PIECE_BYTES

log = structlog.get_logger()

TELL_PEER_S = 15.0
"""How long a job that cannot start tries to reach its peers to say so."""

ASK_AGAIN_S = 5.0
"""How often a peer that does not come to its conversation is asked whether it still means to."""

QUEUE_LOOK_S = 1.0
"""How often a job that waits for its turn looks what has become of it."""

ASK_QUEUED_S = 30.0
"""How often the others are asked meanwhile whether they still have it."""

ANNOUNCE_S = 2.0
"""How long each of them is waited for then."""

INVITED_S = 20.0
"""How long it is believed that another party has a place for the job, and comes."""

PATIENCE_S, REST_S = 30.0, 10.0
"""How long a place is kept for a job that waits in another party's queue, while others could go on; how long it then rests."""

STEADY_S = 1.0
"""An attempt that lasted this long was one: when it breaks off, a new wait begins."""

MOST_FRUITLESS = 8
"""Attempts in a row that keep nothing: a job with more, and none that did for ``peer_wait_s``, waits for its owner."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0
"""How long to wait before meeting a lost peer again; twice as long each time that it ends soon, as on a full disk."""


class Work:
    """One job's thread.

    Attributes:
        record: the job as stored last.
        stop: the way to end it.
        progress: how far it is.
        requests: of this node's owner; None where the job takes none.
        for_peer: why it failed, for a peer that asks; empty where it did not.
        turn: None for a service of predictions, which is idle as a rule and needs no place.
    """

    def __init__(self, settings: Settings, store: Store, peers: Peers, budget: Budget, turns: Turns, record: Record) -> None:
        self.record = record
        self.stop = Stop()
        self.progress = LiveProgress(record.id, self.stop)
        self._settings = settings
        self._store = store
        self._peers = peers
        self._budget = budget
        self._frame_bytes = 2 * PIECE_BYTES  # until it is known what the job needs
        self._job = record.job
        self._others = peers_of(record, settings.name)
        self._folder = store.job_folder(record)
        predict = self._job.predict
        takes = self._job.is_service and predict is not None and predict.to == settings.role
        self.requests = Requests() if takes else None
        self._conversing = self._ended = False
        self.for_peer = ""
        self._invited: dict[str, float] = {}  # party → when it last said that it has a place for the job
        self._queued_at: set[str] = set()
        self._lost, self._deadline, self._since = "", 0.0, 0.0
        if self._folder.cancelled:  # before this node was last killed
            self.requests.close() if self.requests else self.stop.ask(_cancelled())
        self._thread = threading.Thread(target=self._live, name=f"job-{record.id}", daemon=True)
        self.turn = None if self._job.is_service else turns.enter(self._able)  # last: nobody leaves it where this fails

    def start(self) -> None:
        """Begin; where there is no thread to be had the job has ended at once, and may be resumed."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._end("failed", explain(error))

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def check(self) -> None:
        """End the job, so that it may be resumed, if its thread has gone without a word."""
        if self._thread.ident is not None and not self.alive and not self._ended:
            hint = "see the node's log, then go on: vfl-node resume JOB"
            self._end("failed", StateError("the job's thread has ended without a word", code="E_THREAD", hint=hint))

    @property
    def alive(self) -> bool:
        """Whether its thread lives: for a moment longer than the job."""
        return self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether it has its end, which is stored, or is about to be."""
        return self._ended

    @property
    def place(self) -> int:
        """In the queue; 0 where it does not wait for its turn."""
        return self.turn.place if self.turn else 0

    def invite(self, peer: str) -> None:
        """``peer`` says that it has a place for the job and comes."""
        self._invited[peer] = time.monotonic()

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
            with self._unless_kept():
                self._run()
            self._end("done")
        except Paused as error:
            self._end("paused", error if error.code != Paused.default_code else None)
        except Exception as error:
            known = explain(error)
            if known.code == VflError.default_code:
                log.exception("internal error", job=self.record.id)  # a defect of ours: say so, keep the node alive
            self._end("cancelled" if known.code == Cancelled.default_code else "failed", known)

    @contextmanager
    def _unless_kept(self) -> Iterator[None]:
        """Pass over that the job has ended elsewhere where this party has kept its report.

        Who is done had the last word of everyone, so that everyone has kept theirs: nobody is waited for.
        """
        try:
            yield
        except PeerError as error:
            if error.code != "E_JOB_ENDED" or not self._folder.whole:
                raise

    def _run(self) -> None:
        """From the queue to the report, in as many turns as it takes."""
        if self._job.align.group == "modp2048":
            log.warning("modp2048 is below today's recommended strength; prefer curve25519 or modp3072", job=self.record.id)
        self._deadline = time.monotonic() + self._settings.peer_wait_s
        if self.turn is None:
            self._go_on()
            return
        self._announce()
        while True:
            self._await_turn(self.turn)
            try:
                self._go_on()
                return
            except GaveWay:
                log.info("job waits for another turn", job=self.record.id)
                self._budget.release(self.record.id)
                self.turn.give_back(REST_S if self._able() else 0.0)  # one that cannot go on is passed over anyway

    def _announce(self) -> None:
        """Tell those who are there of the job, or ask whether they go on with it. Raises PeerError where one does not."""
        with self._meeting() as meeting:
            for peer in filter(self._peers.online, self._others):
                with suppress(PeerLost):
                    self._ask(peer, meeting, time.monotonic() + ANNOUNCE_S)

    def _await_turn(self, turn: Turn) -> None:
        """Wait until there is a place for the job. Raises as :meth:`_announce`, and PeerLost where a party is away too long."""
        asked = time.monotonic()
        while not turn.take(QUEUE_LOOK_S):
            self.stop.check()
            if self.record.state != "waiting":
                self.record = self._store.update(self.record, state="waiting")
            self.progress.queued(turn.place)
            absent = [peer for peer in self._others if not self._peers.online(peer)]
            if not absent:
                self._deadline = time.monotonic() + self._settings.peer_wait_s
            elif time.monotonic() > self._deadline:
                raise PeerLost(f"no word from {' and '.join(map(self._peers.describe, absent))}", code="E_PEER_ABSENT")
            if time.monotonic() - asked > ASK_QUEUED_S:
                self._announce()
                asked = time.monotonic()
        self.stop.check()
        self._since = time.monotonic()
        for peer in self._others:
            if self._may_know(peer):
                self._peers.tell(peer, self._offer())

    def _able(self) -> bool:
        """Whether all others are there, and one before this party in the job's order, if any is, has a place for it."""
        parties = self.record.parties
        lately = time.monotonic() - INVITED_S
        before = parties[: parties.index(self._settings.name)]
        invited = not before or any(self._invited.get(peer, -INVITED_S) > lately for peer in before)
        return invited and all(map(self._peers.online, self._others))

    def _give_way(self) -> None:
        """Raises GaveWay where another job could go on in the place of this one, which has not met everyone."""
        if self.place or not (self.turn and self.turn.wanted):
            return
        patient = not self._queued_at or time.monotonic() - self._since < PATIENCE_S
        if not (patient and self._able()):
            raise GaveWay("another job goes first", for_peer="another job goes first at its node")

    def _go_on(self) -> None:
        """From the table to the report."""
        table, predicting = self._inputs()
        pause_s, fruitless, got_on = FIRST_PAUSE_S, 0, time.monotonic()
        while True:
            started, before = None, self._folder.extent
            try:
                with self._meeting(self._lost) as meeting:
                    self._meet(meeting, self._deadline, wait_in_queues=True)
                    started = time.monotonic()
                    self._converse(table, predicting, meeting)
                return
            except PeerLost as error:
                self._since = time.monotonic()
                if self.requests and self.requests.closed:
                    self.stop.ask(_cancelled())
                self.stop.check()
                if error.code == "E_PEER_ABSENT":
                    if self._folder.whole and self._settings.role != "coordinator":  # whose key the others may still need
                        text = "not every party has confirmed that it kept its half"
                        log.warning(text, job=self.record.id, reason=error.message)
                        return
                    if not self._lost:
                        raise
                    raise PeerLost(f"{self._lost}; {error.message}", hint=error.hint) from None
                self._lost = error.message
                wait_s = self._settings.peer_wait_s
                self.progress.say(f"{self._lost}; waiting up to {wait_s:.0f} s for {' and '.join(self._others)}")
                lasted = time.monotonic() - started if started else 0.0
                if lasted > STEADY_S:
                    self._deadline = time.monotonic() + wait_s
                    fruitless += 1
                if self._folder.extent != before or self.turn is None or self._settings.role == "coordinator":
                    fruitless, got_on = 0, time.monotonic()  # a service, or a party that keeps nothing: the others see to it
                if fruitless > MOST_FRUITLESS and time.monotonic() - got_on > wait_s:
                    raise _fruitless(self._lost, fruitless) from None
                if time.monotonic() > self._deadline:
                    raise
                pause_s = FIRST_PAUSE_S if lasted > MOST_PAUSE_S else min(2 * pause_s, MOST_PAUSE_S)
                self._give_way()
                self.stop.wait(pause_s)

    def _inputs(self) -> tuple[Table | None, Predicting | None]:
        """This party's table, and what it predicts with; where they cannot be used the others are told before the job fails."""
        table, predicting = None, None
        try:
            if self._settings.role != "coordinator" and self._job.predict:
                table, predicting = prepare(self._settings, self._store, self._job, self._folder, self.requests)
            elif self._settings.role != "coordinator":
                table = read_input(self._settings, self._job)
                announce(self.progress, self._job, {self._settings.role: table})
            model = predicting.model.job if predicting else None
            self._budget.reserve(self.record.id, self._job, self._settings.role, table, model)
            self._frame_bytes = frame_bytes(self._job, model)
            return table, predicting
        except (VflError, OSError) as cause:
            error = explain(cause)
            self.progress.say(error.message)
            with suppress(VflError), self._meeting() as meeting:
                with suppress(PeerError):  # as many as come within the time
                    self._meet(meeting, time.monotonic() + TELL_PEER_S)
                raise error from None
            raise error from None

    def _meeting(self, lost: str = "") -> Meeting:
        return Meeting(
            self.record.id,
            self._others,
            self._peers,
            self.stop,
            self.progress,
            lost=lost,
            give_way=self._give_way,
            stall_s=None if self._job.is_service else self._settings.stall_s,  # a service waits for requests
        )

    def _meet(self, meeting: Meeting, deadline: float, *, wait_in_queues: bool = False) -> None:
        """Begin a conversation with each of the others.

        Nobody waits in a circle, since all meet in one order: that of pairs, (active, passive), (active, coordinator),
        (passive, coordinator), in which each party finds its own in the order of the job's parties. Of the pairs that
        have not met, the first is the next one of both its parties.
        """
        for peer in self._others:
            while peer not in meeting.channels:
                self._ask(peer, meeting, deadline)
                if wait_in_queues and peer in self._queued_at:
                    deadline = self._deadline = time.monotonic() + self._settings.peer_wait_s
                until = min(deadline, time.monotonic() + ASK_AGAIN_S)
                try:
                    pipe = self._peers.conversation(peer, self.record.id, waiting=meeting, deadline=until)
                except PeerLost as error:
                    if error.code != "E_PEER_ABSENT" or until == deadline:
                        raise
                else:
                    pipe.most_bytes = self._frame_bytes
                    meeting.add(peer, pipe)

    def _ask(self, peer: str, meeting: Meeting, deadline: float) -> None:
        """Offer the job to ``peer``, or ask whether it goes on with it: where it has ended, nobody comes to a conversation."""
        own, submitter = self._settings.name, self.record.submitter
        if not self._may_know(peer):
            return
        failpoints.reach("offer")
        reply = self._peers.ask(peer, self._offer(), key=self.record.id, waiting=meeting, deadline=deadline).offer_reply
        (self._queued_at.add if reply.waits else self._queued_at.discard)(peer)
        if reply.code == Cancelled.default_code and not reply.accepted and not self._folder.kept:
            said = f"{peer_text(reply.reason)} ({peer} says)"
            raise PeerError(said, code=Cancelled.default_code, for_peer=said)
        ended = reply.code in ("E_JOB_ENDED", Cancelled.default_code)
        if not reply.accepted and reply.code in NOT_NOW:  # such as a full disk: it may be able to, later
            raise PeerLost(f"{peer} cannot take part now: {peer_text(reply.reason)} ({reply.code})")
        if not reply.accepted and ended:
            said = f"{peer} stopped: {peer_text(reply.reason)}"
            raise PeerError(said, code="E_JOB_ENDED", hint=f"ask the owner of {peer}", for_peer=said)
        if not reply.accepted and own == submitter:
            raise PeerError(
                f"{peer} refused the job: {peer_text(reply.reason)} ({peer_text(reply.code, 40)})",
                code="E_REFUSED",
                hint=f"ask the owner of {peer}",
                for_peer=f"{peer} refused the job",
            )

    def _may_know(self, peer: str) -> bool:
        """Whether the job may be spoken of: who has not heard of it hears of it from its submitter."""
        return bool(self.record.attempt) or self.record.submitter in (self._settings.name, peer)

    def _offer(self) -> Notice:
        own, ready = self._settings.name, self.turn is None or (not self.place and self._able())
        return Notice(offer=Offer(job_id=self.record.id, submitter=own, job_json=self.record.spec, ready=ready))

    def _converse(self, table: Table | None, predicting: Predicting | None, meeting: Meeting) -> None:
        """One attempt, with everyone there."""
        failpoints.reach("met")
        own = Randomness(self._folder.seed(first=self.record.attempt == 0))
        attempt = self.record.attempt + 1
        self.record = self._store.update(self.record, state="running", attempt=attempt, code=None, message=None, hint=None)
        partners = [name for name in self._others if name != self._job.parties.coordinator]
        memories = {name: self._store.partner(name) for name in partners} if table is not None else {}
        try:
            run = set_up(
                self._settings,
                self._job,
                self.record.id,
                table,
                own,
                self._folder,
                self.progress,
                attempt,
                memories,
                meeting.channels,
                predicting,
            )
            self._conversing = True
            meeting.play(conversations(run), run.session.processes)
        finally:
            self._conversing = False

    def _end(self, state: State, error: VflError | None = None) -> None:
        """Keep how the job ended and tell who waits for it. Never raises: whatever the disk does, every job has an end."""
        changes: dict[str, Any] = {"state": state, "finished": None if state in UNFINISHED else now()}
        if error is not None:
            changes |= {"code": error.code, "message": error.message, "hint": error.hint or None}
        with suppress(OSError):
            failpoints.reach("finished")
        self.record = replace(self.record, **changes)
        self._ended = True
        self.for_peer = error.for_peer if error else ""
        self._budget.release(self.record.id)
        if self.turn:
            self.turn.leave()
        conclude(self._settings, self._store, self.record)
        if self.requests:
            self.requests.end(
                error or UsageError(f"the predictions have ended ({state})", code="E_JOB_ENDED", hint="ask again")
            )
        line = log.error if state == "failed" else log.info
        line(f"job {state}", job=self.record.id, **({"code": error.code, "reason": error.message} if error else {}))


def conclude(settings: Settings, store: Store, record: Record) -> None:
    """Keep how a job ended. Where that is for good, its secrets are destroyed, and what it disclosed is reported before."""
    if record.over:
        try:
            account(settings, record, store.job_folder(record))
        except (VflError, OSError, ValueError) as error:
            log.warning("what was predicted could not be reported", job=record.id, reason=str(error))
    store.end(record)


OWN_WISH = "cancelled by this node's owner"


def _cancelled() -> Cancelled:
    return Cancelled(OWN_WISH, for_peer="its owner cancelled the job")


def _fruitless(lost: str, attempts: int) -> StateError:
    return StateError(
        f"{attempts} attempts in a row broke off before anything more of the job was kept; the last one: {lost}",
        code="E_NO_PROGRESS",
        hint="see the logs of both nodes and the line between them, then go on: vfl-node resume JOB",
        for_peer="its attempts break off again and again",
    )


def peers_of(record: Record, own: str) -> list[str]:
    """The other parties, in the order of the job: active, passive, coordinator."""
    return [name for name in record.parties if name != own]
