"""The conversations of one attempt at a job: with every other party, begun one by one, ended together.

The conversation with a party that was met stays open while the next party is waited for. When one party leaves, even while
nobody listens to it, all conversations end, and the remaining parties are told why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from vfl_node.engines.contract import Engine
from vfl_node.errors import Cancelled, PeerError, PeerLost, PolicyError, StateError, VflError
from vfl_node.execution.finish import CONFIRM
from vfl_node.execution.live import Stop
from vfl_node.node.faults import JOB_DONE, explain, returns
from vfl_node.node.peers import Peers
from vfl_node.node.pulse import threads_cpu_s
from vfl_node.progress import PeersAwaited, Progress
from vfl_node.report.words import join_names
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat, Cancel, Notice
from vfl_node.transport.streams import StreamPipe
from vfl_node.transport.trace import Trace

WORD_COUNTS = 12
"""A peer's word that it makes progress has it waited for without a byte, but for no more than so many times ``stall_s``."""

NOTICE_S = 0.2
"""How often it is checked whether a party has left to which nobody listens at the moment."""


class Meeting:
    """The parties met so far. A context manager: at its end it closes the conversations, and tells the parties of any error.

    Args:
        job_id: of the job.
        others: its other parties, in the order in which they are met.
        peers: where they are.
        stop: the owner's wish.
        progress: follows the job.
        interruption: how the attempt before broke off, for the owner; empty if none did.
        give_way: raises if the job should give its place to another one instead of waiting.
        stall_s: how long this party waits for another while none of the others makes progress; None: for ever.
        owed: says whether another job has a right to the place of this one, which then waits for bytes and for nobody's word.
        trace: records the messages of all conversations; None: a new one of each does.

    Attributes:
        channels: peer → the conversation with it, in the order in which they were met.
    """

    def __init__(
        self,
        job_id: str,
        others: Sequence[str],
        peers: Peers,
        stop: Stop,
        progress: Progress,
        *,
        interruption: str = "",
        give_way: Callable[[], None] = lambda: None,
        stall_s: float | None = None,
        owed: Callable[[], bool] = lambda: False,
        trace: Trace | None = None,
    ) -> None:
        self._give_way = give_way
        self.channels: dict[str, Channel] = {}
        self._job_id = job_id
        self._stall_s = stall_s
        self._owed, self._trace = owed, trace
        self._others = others
        self._peers = peers
        self._stop = stop
        self._progress = progress
        self._previous = interruption
        self._pipes: dict[str, StreamPipe] = {}
        self._awaited_by: dict[str, tuple[str, ...]] = {}
        self._lost: list[str] = []  # with whom a conversation broke off first, before all others were ended for it

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is not None:
                self._tell(explain(error))
        finally:
            for peer, pipe in self._pipes.items():
                self.channels[peer].close()
                self._stop.forget(pipe.cancel)  # a job may have many attempts

    def add(self, peer: str, pipe: StreamPipe) -> None:
        """The conversation with ``peer`` has begun; the owner's wish to stop ends it."""
        self._pipes[peer] = pipe
        pipe.job_id = self._job_id
        channel = self.channels[peer] = self._peers.channel(pipe, peer, self._job_id)
        channel.trace = self._trace or channel.trace
        self._stop.listen(pipe.cancel)

    def hears(self, peer: str, awaits: tuple[str, ...]) -> None:
        """``peer`` says for which other parties it waits itself."""
        self._awaited_by[peer] = awaits

    def absence(self, peer: str, error: PeerLost) -> PeerLost:
        """``error``, that there is no conversation with ``peer``; naming those for whom ``peer`` waits, if it does."""
        awaits = self._awaits(peer)
        if not awaits:
            return error
        hint = f"ask the owner of {join_names(awaits)}, then go on: vfl-node resume JOB"
        return PeerLost(f"no conversation with {self._describe(peer)}", code=error.code, hint=hint)

    def check(self) -> None:
        """Raise the owner's wish to stop, or why a party that was met has left; otherwise show who is waited for."""
        self._stop.check()
        self._give_way()
        for peer in self._find_left():
            raise self._last_word(peer)
        missing = self._missing()
        absent = [peer for peer in missing if not self._peers.online(peer)]  # whom the next one waits for, too
        self._progress.emit(PeersAwaited(tuple(map(self._describe, absent or missing[:1])), self._previous))

    def wait(self, timeout_s: float) -> None:
        """Sleep up to ``timeout_s``, and raise soon what :meth:`check` does."""
        limit = time.monotonic() + timeout_s
        while (left := limit - time.monotonic()) > 0:
            self._stop.wait(min(left, NOTICE_S))
            self.check()

    def play(self, protocols: Sequence[Coroutine[Any, Any, None]], processes: Engine) -> None:
        """Run what this party does in its conversations side by side, each on a thread of its own.

        All end when the first of them fails, or when a party leaves while this one listens to another or computes.

        Args:
            protocols: one for each conversation, in their order, or one for all of them.
            processes: where they compute; closed here.

        Raises:
            Exception: the first failure; the loss of a party only if there was no other failure, which may have caused it.
        """
        ended: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()

        def step(number: int, protocol: Coroutine[Any, Any, None]) -> None:
            try:
                run(protocol)
                ended.put((number, None))
            except BaseException as error:  # noqa: BLE001 - the owner's thread raises it
                ended.put((number, error))

        name = threading.current_thread().name
        threads = [threading.Thread(target=step, args=pair, name=name, daemon=True) for pair in enumerate(protocols)]
        for thread in threads:
            thread.start()
        over: set[int] = set()
        failures: list[BaseException] = []
        interruption: VflError | None = None
        while len(over) < len(threads) and not (failures or interruption):
            try:
                number, failure = ended.get(timeout=NOTICE_S)
            except Empty:
                interruption = self._interruption()
            else:
                over.add(number)
                failures += [failure] if failure else []
        if failures or interruption:
            self._lost = [peer for peer, pipe in self._pipes.items() if pipe.broken]
            for number, pipe in enumerate(self._pipes.values()):
                if not (pipe.ended or min(number, len(threads) - 1) in over):
                    pipe.cancel(interruption or PeerLost("another conversation of this job has ended"))
        processes.close()  # who still computes for a conversation that is over hears nothing else
        if not self._wind_up(threads):
            hint = "restart the node, then go on: vfl-node resume JOB"
            raise StateError("this party's own work on the job hangs", code="E_STALLED", hint=hint, for_peer="its work hangs")
        if failures or interruption:
            self._stop.check()
            later = [ended.get()[1] for _ in range(len(threads) - len(over))]
            # A refusal is what this party knows itself; other errors may come of closed processes.
            failures += [error for error in later if isinstance(error, PeerError | PolicyError)]
            failures += [self._last_word(peer) for peer in self._find_left()] + ([interruption] if interruption else [])
            raise min(failures, key=lambda error: isinstance(error, PeerLost))

    def _wind_up(self, threads: Sequence[threading.Thread]) -> bool:
        """Wait for threads whose conversations are over, for as long as they compute; False if they hang."""
        moved, spent = time.monotonic(), 0.0
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(NOTICE_S)
            if (now := threads_cpu_s(alive)) != spent:
                moved, spent = time.monotonic(), now
            if self._stall_s is not None and time.monotonic() - moved > self._stall_s:
                return False
        return True

    def _describe(self, peer: str) -> str:
        """``peer`` in words, and for whom it waits itself: this party may have no link with them."""
        awaits = self._awaits(peer)
        return self._peers.describe(peer) + (f", which waits for {join_names(awaits)}" if awaits else "")

    def _awaits(self, peer: str) -> tuple[str, ...]:
        """For whom ``peer`` waits, as it has said last; nobody while its own link is down."""
        return self._awaited_by.get(peer, ()) if self._peers.online(peer) else ()

    def _missing(self) -> list[str]:
        """Parties not met yet."""
        return [peer for peer in self._others if peer not in self._pipes]

    def _find_left(self) -> list[str]:
        """Parties met that have left."""
        return [peer for peer, pipe in self._pipes.items() if pipe.ended]

    def _interruption(self) -> VflError | None:
        """Why all conversations must end, if they must: the owner's wish, a party that left too early, or a stall."""
        try:
            self._stop.check()
        except VflError as wish:
            return wish
        going = (pipe for peer, pipe in self._pipes.items() if self.channels[peer].phase_name != CONFIRM)
        return next((pipe.broken for pipe in going if pipe.broken), None) or self._find_stalled()

    def _find_stalled(self) -> PeerLost | None:
        """The loss of a party for which this one waits while no other makes progress, though their links are up.

        Its conversation ends.
        """
        if self._stall_s is None:
            return None
        now = time.monotonic()
        moved, said = max(pipe.moved for pipe in self._pipes.values()), max(map(self._peers.last_progress, self._pipes))
        word = now - said <= self._stall_s
        limit_s = self._stall_s * (WORD_COUNTS if word and not self._owed() else 1)
        for peer, pipe in self._pipes.items():
            since = pipe.waiting_since
            if since is not None and now - max(since, moved) > limit_s:
                phase, but = self.channels[peer].phase_name, " and says that it works" if word else ""
                text = f"{peer} has not got on in phase {phase!r} for {limit_s:.0f} s, though it is connected{but}"
                lost = PeerLost(text, code="E_STALLED", hint=f"see the log of {peer}'s node; stall_s says how long to wait")
                pipe.cancel(lost)
                return lost
        return None

    def _last_word(self, peer: str) -> VflError:
        """Why ``peer`` has left: sending to it raises what it said last."""
        try:
            run(self.channels[peer].send(Beat()))
        except VflError as error:
            return error
        return PeerLost(f"{peer} has left")

    def _tell(self, error: VflError) -> None:
        """Tell the other parties why this one leaves, and whether it comes back."""
        comes_back = returns(error) or error.code in ("E_JOB_ENDED", JOB_DONE)
        if isinstance(error, PeerLost):
            lost = join_names(self._lost or self._find_left() or self._missing() or ["another party"])
            error = PeerLost(error.message, code=error.code, for_peer=f"it lost {lost}")
        elif isinstance(error, PeerError) and error.code in (PeerError.default_code, Cancelled.default_code, "E_VERSION"):
            error = PeerError(error.message, code=error.code, for_peer=error.message)  # what a peer said is for all of them
        for channel in self.channels.values():
            run(channel.abort(error, resumable=comes_back))
        # Of a cancellation the owner's own node tells everybody; for another version they would end the job for good.
        if not comes_back and error.code not in (Cancelled.default_code, "E_VERSION"):
            for peer in self._missing():
                self._peers.tell(peer, Notice(cancel=Cancel(job_id=self._job_id, failed=True, reason=error.for_peer[:300])))
