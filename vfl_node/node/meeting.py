"""The conversations of one attempt at a job: with every other party, begun one by one, ended together.

A party that was met is held while the next is waited for. Where one leaves, and be it while
nobody listens to it, all conversations end, and whoever is left is told why.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from vfl_node.crypto.processes import Processes
from vfl_node.errors import Paused, PeerError, PeerLost, VflError
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.peers import Peers
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat, Cancel, Notice
from vfl_node.transport.streams import StreamPipe

NOTICE_S = 0.2
"""How soon it is noticed that a party has left to which nobody listens just then."""

LAST_PHASE = "finish"
"""A party that leaves in this phase has had all it needs."""


class Meeting:
    """The parties met so far. A context manager: it tells them what is raised, and ends the conversations.

    Args:
        job_id: of the job.
        others: its other parties, in the order in which they are met.
        peers: where they are.
        stop: the owner's wish.
        progress: told whom the job waits for.
        lost: how the attempt before ended, for the owner.

    Attributes:
        channels: peer → the conversation with it, in the order in which they were met.
    """

    def __init__(
        self, job_id: str, others: Sequence[str], peers: Peers, stop: Stop, progress: LiveProgress, *, lost: str = ""
    ) -> None:
        self.channels: dict[str, Channel] = {}
        self._job_id = job_id
        self._others = others
        self._peers = peers
        self._stop = stop
        self._progress = progress
        self._before = f"{lost}; " if lost else ""
        self._pipes: dict[str, StreamPipe] = {}

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is not None:
                self._tell(error if isinstance(error, VflError) else VflError("internal error"))
        finally:
            for channel in self.channels.values():
                channel.close()

    def add(self, peer: str, pipe: StreamPipe) -> None:
        """The conversation with ``peer`` has begun; the owner's wish to stop ends it."""
        self._pipes[peer] = pipe
        self.channels[peer] = Channel(pipe, peer=peer, job_id=self._job_id)
        self._stop.listen(pipe.cancel)

    def check(self) -> None:
        """Raise the owner's wish to stop, or why a party that was met has left; say who is waited for otherwise."""
        self._stop.check()
        for peer in self._left():
            raise self._last_word(peer)
        missing = self._missing()
        absent = [peer for peer in missing if not self._peers.online(peer)]  # whom the next one waits for, too
        self._progress.say(f"{self._before}waiting for {' and '.join(map(self._peers.describe, absent or missing[:1]))}")

    def wait(self, timeout_s: float) -> None:
        """Sleep up to ``timeout_s``, and raise at once when the owner wants the end."""
        self._stop.wait(timeout_s)

    def play(self, protocols: Sequence[Coroutine[Any, Any, None]], processes: Processes) -> None:
        """Run what this party does in its conversations, side by side, each on a thread of its own.

        The first that fails ends the others, and so does a party that leaves while this one listens to another or computes.

        Args:
            protocols: one for each conversation, in their order, or one for all of them.
            processes: where they compute; closed here.

        Raises:
            Exception: the first failure; a loss only if nothing worse is known, since it may be an echo of that.
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
            for number, pipe in enumerate(self._pipes.values()):
                if not (pipe.ended or min(number, len(threads) - 1) in over):
                    pipe.cancel(interruption or PeerLost("another conversation of this job has ended"))
        processes.close()  # who still computes for a conversation that is over hears nothing else
        for thread in threads:
            thread.join()
        if failures or interruption:
            self._stop.check()
            later = [ended.get()[1] for _ in range(len(threads) - len(over))]
            failures += [error for error in later if isinstance(error, PeerError)]  # others come of closed processes
            failures += [self._last_word(peer) for peer in self._left()] + ([interruption] if interruption else [])
            raise min(failures, key=lambda error: isinstance(error, PeerLost))

    def _missing(self) -> list[str]:
        """Parties not met yet."""
        return [peer for peer in self._others if peer not in self._pipes]

    def _left(self) -> list[str]:
        """Parties met that have left."""
        return [peer for peer, pipe in self._pipes.items() if pipe.ended]

    def _interruption(self) -> VflError | None:
        """What ends the conversations from outside: the owner's wish, or a party that has left before the last phase."""
        try:
            self._stop.check()
        except VflError as wish:
            return wish
        left = (peer for peer in self._left() if self.channels[peer].phase_name != LAST_PHASE)
        return next((self._pipes[peer].ended for peer in left), None)

    def _last_word(self, peer: str) -> VflError:
        """Why ``peer`` has left: to speak to one that has raises what it said last."""
        try:
            run(self.channels[peer].send(Beat()))
        except VflError as error:
            return error
        return PeerLost(f"{peer} has left")

    def _tell(self, error: VflError) -> None:
        """Tell the others why this party leaves, and whether it comes back."""
        returns = isinstance(error, PeerLost | Paused) or error.code in ("E_DISK_FULL", "E_WORKER", "E_JOB_ENDED")
        if isinstance(error, PeerLost):
            lost = " and ".join(self._left() or self._missing()) or "another party"
            error = PeerLost(error.message, code=error.code, for_peer=f"it lost {lost}")
        elif isinstance(error, PeerError) and error.code == PeerError.default_code:  # what a peer said is for all of them
            error = PeerError(error.message, for_peer=error.message)
        for channel in self.channels.values():
            run(channel.abort(error, resumable=returns))
        if not returns:
            for peer in self._missing():
                self._peers.tell(peer, Notice(cancel=Cancel(job_id=self._job_id)))
