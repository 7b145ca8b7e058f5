"""The life of one job at one node: read the table, meet the other parties, run the protocols, wait for a party that is lost.

A job begins when the node has a place for it (:mod:`vfl_node.node.turns`). When a party is lost, the node waits for it, and
all conversations begin again from what everyone has stored. Every secret of this party is derived from the job's stored seed,
so a repeated attempt sends the same bytes.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import GaveWay, PeerError, PeerLost, StateError, UsageError, VflError
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import frame_bytes
from vfl_node.execution.conversations import conversations
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.node import retries
from vfl_node.node.consents import JobConsents
from vfl_node.node.ending import Ending
from vfl_node.node.endings import conclude, owner_cancellation
from vfl_node.node.faults import explain
from vfl_node.node.inputs import read_inputs
from vfl_node.node.job_start import JobStart
from vfl_node.node.meeting import Meeting
from vfl_node.node.others import Others
from vfl_node.node.peers import Peers
from vfl_node.node.predictions import trained_with
from vfl_node.node.reasons import enter, explain_wait
from vfl_node.node.record import Record
from vfl_node.node.reuse import list_kept
from vfl_node.node.states import UNFINISHED, State
from vfl_node.node.store import Store
from vfl_node.node.turns import REST_S, Turns
from vfl_node.node.usage import Usage, estimate_s
from vfl_node.node.wire import keep_wire, make_trace
from vfl_node.prediction.play import Coordinating, Predicting
from vfl_node.prediction.requests import Requests
from vfl_node.process import failpoints
from vfl_node.process.machine import utc_now
from vfl_node.progress import InputRefused, PeersAwaited, Silent
from vfl_node.settings.node import Settings
from vfl_node.transport.frames import PIECE_BYTES

log = structlog.get_logger()

TELL_PEER_S = 15.0
"""How long a job that cannot start tries to reach its peers to say so."""


class Work:
    """One job's thread.

    Attributes:
        record: the job as it was stored last.
        others: its other parties.
        stop: ends it when its owner or a peer asks for that.
        ending: how it ends here.
        progress: how far it is.
        trace: when this party sent, received and waited, since this node was started.
        requests: of this node's owner for predictions; None if the job takes none.
        ended: whether the job has ended; that is stored, or about to be.
        for_peer: why it failed, in words for a peer that asks; empty if it did not fail.
        turn: its turn in the queue; None for a service of predictions, which is mostly idle and needs no place.
        meter: what it takes.
    """

    def __init__(
        self, settings: Settings, store: Store, peers: Peers, budget: Budget, turns: Turns, usage: Usage, record: Record
    ) -> None:
        self.record, self.meter = record, usage.meter(record)
        self.stop, self.trace = Stop(), make_trace(settings, record)
        self.progress = LiveProgress(record.id, self.stop, self.trace)
        self._settings, self._store, self._peers, self._budget = settings, store, peers, budget
        self._frame_bytes = 2 * PIECE_BYTES  # until it is known what the job needs
        self._job, self._folder = record.job, store.job_folder(record)
        self.ending = Ending(record.active, settings.name, self._folder, self.stop)
        self.others = Others(settings.name, record, peers, self._is_ready, self.ending, JobConsents(settings, store, record.id))
        self._start = JobStart(settings, store, record, self._folder, self.others, budget)
        takes = self._job.is_service and self._job.asker == settings.name
        self.requests = Requests((record.predict or {}).get("model", "")) if takes else None
        self._conversing = self.ended = False
        self.for_peer, self._interruption, self._deadline, self._since = "", "", 0.0, 0.0
        if self._folder.cancelled:  # before this node was last killed
            self.requests.close() if self.requests else self.ending.end_with(owner_cancellation())
        self._thread = threading.Thread(target=self._live, name=f"job-{record.id}", daemon=True)
        # Last: were anything after this to fail, nobody would leave the turn.
        self.turn = None if self._job.is_service else enter(turns, lambda: self.others.able, record, settings, store)

    def start(self) -> None:
        """Begin. If no thread can be started, the job ends at once and may be resumed."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._end("failed", explain(error))

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def check(self) -> None:
        """If the thread has gone without storing the end of the job, store one from which it may be resumed."""
        if self._thread.ident is not None and not self.alive and not self.ended:
            hint = "see the node's log, then go on: vfl-node resume JOB"
            self._end("failed", StateError("the job's thread has ended without a word", code="E_THREAD", hint=hint))

    @property
    def alive(self) -> bool:
        """Whether its thread lives, which it does for a moment longer than the job."""
        return self._thread.is_alive()

    @property
    def place(self) -> int:
        """Its place in the queue; 0 if it does not wait for its turn."""
        return self.turn.place if self.turn else 0

    @property
    def queue(self) -> dict[str, Any] | None:
        """As :func:`vfl_node.node.reasons.explain_wait`; None if it does not wait."""
        if not self.turn or self.record.state != "waiting":
            return None
        return explain_wait(self.record, self._settings.name, self.turn, self.others, self._start, self._peers)

    def cancel(self) -> list[str]:
        """End the job, also after a restart. A service that answers requests ends once all are answered, any other job at once.

        Once this party has stored its part, the active party decides whether it is too late.

        Returns:
            The peers that should be told.

        Raises:
            UsageError: it is too late: all have stored theirs (``E_JOB_ENDED``).
        """
        with suppress(OSError):  # a job can be cancelled even if the disk is full
            self._folder.cancel()
        if self.requests and self._conversing and not self.requests.closed:
            self.requests.close()
            return []
        if self.ending.end_with(owner_cancellation()):
            return self.others.names
        if self.ending.decides:
            raise UsageError(f"job {self.record.id} is done: all parties have stored their parts", code="E_JOB_ENDED")
        return [self.record.active]

    def _live(self) -> None:
        """Run the job and store how it ended. What a job needs to be resumed stays; if it is over, that is destroyed."""
        try:
            self._run()
            self._end("done")
        except Exception as error:
            failure = self._store.loss() or explain(error)
            if failure.code == VflError.default_code:  # a defect of ours: say so, keep the node alive
                log.exception("internal error", job=self.record.id)
            self.ended = True  # whoever wants an end from now on finds the job as it is stored
            self._end(*self.ending.judge(failure))

    def _run(self) -> None:
        """Run the job from the queue to its report, in as many turns as it takes."""
        if self._folder.confirmed:  # before this node was last killed
            return
        if self._job.align.group == "modp2048":
            log.warning("modp2048 is below today's recommended strength; prefer curve25519 or modp3072", job=self.record.id)
        self._renew_deadline()
        if self._folder.whole and not self.ending.decides:
            self.others.await_word(self._meeting, self._deadline)
        if self.turn:
            self.others.announce_in(self._meeting)
        while True:
            if self.others.undecided:
                self.others.await_owners(lambda: self._meeting(quiet=True), self.stop, self.progress, self.turn)
                self._renew_deadline()
            try:
                if self.turn:
                    if self._start.closed and self.record.state == "running":  # it has met its parties before
                        self.record = self._store.update(self.record, state="waiting")
                    waits, announce = (self.turn, self.stop, self.progress), lambda: self.others.announce_in(self._meeting)
                    self._start.await_open(*waits, self._renew_deadline, announce)
                    self._start.await_turn(*waits, self._stay_in_line, announce)
                    self._since = time.monotonic()
                    self.progress.rest()
                    self.others.tell()
                with self.meter.counting():
                    self._go_on()
                return
            except GaveWay:
                log.info("job waits for another turn", job=self.record.id)
                self._budget.release(self.record.id)
                if self.turn:  # one that cannot go on is passed over anyway
                    self.turn.give_back(REST_S if self.others.able else 0.0)

    def _stay_in_line(self) -> None:
        """The job waits for a place. Raises PeerLost if a party is away for too long, and as checking their versions."""
        if self.record.state != "waiting":
            self.record = self._store.update(self.record, state="waiting")
        self.others.check_versions()
        if not (absent := self.others.absent):
            self._renew_deadline()
        elif time.monotonic() > self._deadline:
            raise PeerLost(f"no word from {' and '.join(self.others.describe(absent))}", code="E_PEER_ABSENT")

    def _give_way(self) -> None:
        self._start.give_way(self.turn, self._since)

    def _go_on(self) -> None:
        """Run the job from its table to its report, in as many attempts as it takes."""
        table, predicting = self._inputs()
        series = retries.Retries(self._settings.peer_wait_s)
        while True:
            started, extent = None, self._folder.extent
            try:
                with self._meeting(self._interruption) as meeting, self.ending.heeding():
                    deadline = self.others.await_links(meeting, self._deadline)
                    self.others.meet(meeting, deadline, frame_bytes=self._frame_bytes, on_queue=self._renew_deadline)
                    started = time.monotonic()
                    self._converse(table, predicting, meeting)
                return
            except PeerLost as error:
                self._since = time.monotonic()
                if self.requests and self.requests.closed:
                    self.ending.end_with(owner_cancellation())
                self.stop.check()
                if error.code == "E_PEER_ABSENT":
                    if not self._interruption:
                        raise
                    raise PeerLost(f"{self._interruption}; {error.message}", hint=error.hint) from None
                self._interruption = error.message
                self.progress.emit(PeersAwaited(tuple(self.others.names), self._interruption, self._settings.peer_wait_s))
                lasted = time.monotonic() - started if started else 0.0
                if lasted > retries.STEADY_S:
                    self._renew_deadline()
                storeless = self.turn is None or self._settings.role == "coordinator"  # a service, too: the others judge
                progressed = storeless or self._folder.extent != extent
                pause_s = series.pause_s(self._interruption, lasted, progressed=progressed)
                if time.monotonic() > self._deadline:
                    raise
                self._give_way()
                self.stop.wait(pause_s)

    def _inputs(self) -> tuple[Table | None, Predicting | Coordinating | None]:
        """This party's table and what it predicts with. If they cannot be used, the others are told before the job fails."""
        try:
            table, predicting = read_inputs(self._settings, self._store, self._job, self._folder, self.requests, self.progress)
            self.meter.expected_s = estimate_s(self._job, table)
            model = trained_with(self._store, self._job, self._settings.name)
            self._budget.reserve(
                self.record.id, self._job, self._settings.role, table, self._settings.limits_for(self._job), model
            )
            self._frame_bytes = frame_bytes(self._job, model)
            return table, predicting
        except (VflError, OSError) as cause:
            self._start.wait_for_memory(cause, self.turn)
            error = explain(cause)
            self.progress.emit(InputRefused(error.message))
            if not self._folder.sealed:  # otherwise it has done its part, and comes back
                with suppress(VflError), self._meeting() as meeting:
                    with suppress(PeerError):  # tell as many as come within the time
                        self.others.meet(meeting, time.monotonic() + TELL_PEER_S, frame_bytes=self._frame_bytes)
                    raise error from None
            raise error from None

    def _meeting(self, interruption: str = "", *, quiet: bool = False) -> Meeting:
        return Meeting(
            self.record.id,
            self.others.names,
            self._peers,
            self.stop,
            Silent() if quiet else self.progress,
            interruption=interruption,
            give_way=self._give_way,
            stall_s=None if self._job.is_service else self._settings.stall_s,  # a service waits for requests
            owed=lambda: self.turn is not None and self.turn.owed,
            trace=self.trace,
        )

    def _renew_deadline(self) -> float:
        """Wait for the other parties for ``peer_wait_s`` from now; until when that is."""
        self._deadline = time.monotonic() + self._settings.peer_wait_s
        return self._deadline

    def _is_ready(self) -> bool:
        """Whether this node has a place for the job and can go on with it."""
        return self.turn is None or (not self.place and self.others.able)

    def _converse(self, table: Table | None, predicting: Predicting | Coordinating | None, meeting: Meeting) -> None:
        """One attempt, with all parties connected."""
        self._start.check(self.turn)
        failpoints.reach("met")
        own, attempt = Randomness(self._folder.seed(first=self.record.attempt == 0)), self.record.attempt + 1
        self.record = self._store.update(self.record, state="running", attempt=attempt, code=None, message=None, hint=None)
        self.others.begun = True
        if self.turn:
            self.turn.begun = True
        memories = {name: self._store.partner(name) for name in self._job.remembered_parties(self._settings.name)}
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
                self.trace,
                self.others.consents.marks,
                list_kept(self._store, self._job),
            )
            self._conversing = True
            protocols = predicting.conversations(run) if predicting else conversations(run)
            with self.progress.conversing(meeting.channels.values()), self.meter.timing(whole=attempt == 1):
                meeting.play(protocols, run.session.machine.processes)
        except Exception:
            if not self._folder.confirmed:  # else it is done, and whoever has not heard so asks again
                raise
        finally:
            self._conversing = False

    def _end(self, state: State, error: VflError | None = None) -> None:
        """Store how the job ended and tell whoever waits for it. Never raises: every job ends, even if the disk is broken."""
        changes: dict[str, Any] = {"state": state, "finished": None if state in UNFINISHED else utc_now()}
        if error is not None:
            changes |= {"code": error.code, "message": error.message, "hint": error.hint or None}
        with suppress(OSError, StateError):
            failpoints.reach("finished")
            keep_wire(self.trace, self._folder, self.record.id)
        self.record = replace(self.record, **changes)
        self.ended, self.for_peer = True, error.for_peer if error else ""
        self.progress.rest()
        self._budget.release(self.record.id)
        if self.turn:
            self.turn.leave()
        self.record = conclude(self._settings, self._store, self.record)
        self.meter.finish(self.record)
        if self.requests:
            self.requests.end(error or UsageError(f"predictions have ended ({state})", code="E_JOB_ENDED", hint="ask again"))
        line = log.error if self.record.state == "failed" else log.info
        line(f"job {self.record.state}", job=self.record.id, **({"code": error.code, "reason": error.message} if error else {}))
