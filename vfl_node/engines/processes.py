"""The engine whose workers are processes: for arithmetic that holds Python's lock, such as ``x * y % m``.

A child is a new process of this interpreter (never a fork: grpc does not support forks). It has one
end of a pipe and nothing else of this process, and takes one block at a time. It lives as long as the
other end is open. When this process closes it, or ends for any reason, the child ends at
once, even in the middle of a block.

A child receives a key with the first of its blocks, and no second time while the key stays the same
object. It keeps the newest key until it receives another one or ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from multiprocessing.connection import Pipe
from typing import Any

from vfl_node.engines.queued import BlockTask, Queue, QueuedEngine, RemoteTrace
from vfl_node.errors import VflError

_AHEAD = 4  # blocks started ahead, for each process
_PROGRAM = "import sys; end, *sys.path = sys.argv[1:]; from vfl_node.engines.child import serve; serve(int(end))"


class Processes(QueuedEngine):
    """Children of this process, started with the first blocks and kept until :meth:`close`.

    A child ends at once when it is no longer needed: this engine was closed or garbage-collected, or this process ended
    or was killed. Operations, keys, blocks and results are pickled. The module of an operation should not import torch.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        children: list[_Child] = []
        super().__init__(workers, ahead=_AHEAD * workers, tend=partial(_tend, children), interrupt=partial(_kill_all, children))


class _Child:
    """The parent's end of a child."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            end = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(end), *sys.path],
                pass_fds=[end],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # one core each, without an idle pool of threads
                start_new_session=True,  # a terminal's Ctrl-C is for the parent
            )
        self._key: tuple[Any, ...] = ()  # the one that the child has; empty: none
        self.lost = False

    def compute(self, task: BlockTask) -> Any:
        known = any(key is task.key for key in self._key)
        try:
            self._connection.send((task.operation, () if known else (task.key,), task.block))
            result, error, trace = self._connection.recv()
        except (EOFError, OSError, MemoryError):  # after any of these errors the two ends may be out of step
            self.lost = True
            self.kill()
            raise VflError(
                f"a worker process ended before its work was done (exit status {self._process.wait()})",
                code="E_WORKER",
                hint="if memory ran out, set group_threads lower (as many processes are started); then resume the job",
            ) from None
        if error is not None:
            self._key = ()  # the child may not have read it
            raise error from RemoteTrace(trace)
        self._key = (task.key,)
        return result

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _tend(children: list[_Child], queue: Queue) -> None:
    """Give one child its work. Each child has such a thread; the threads do not keep the engine alive."""
    child: _Child | None = None

    def compute(task: BlockTask) -> Any:
        nonlocal child
        if child is None:
            child = _Child()
            children.append(child)
            if queue.dropped:  # it was closed while the child started and could not be killed
                child.kill()
        return child.compute(task)

    while task := queue.get():
        task.do(compute)
        del task  # so that this waiting thread does not keep the result alive
        if child is not None and child.lost:
            children.remove(child)
            child.end()
            child = None
    if child is not None:
        child.end()


def _kill_all(children: list[_Child]) -> None:
    for child in list(children):
        child.kill()
