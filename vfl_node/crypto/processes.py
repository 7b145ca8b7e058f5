"""Block-parallel work in processes: for arithmetic that holds Python's lock, such as ``x * y % m``.

A child is this interpreter started afresh (never a fork: grpc and fork do not mix). It holds one
end of a pipe and nothing else of this process, takes one block at a time, and lives as long as the
other end is open: when this process closes it, or is gone for whatever reason, the child ends at
once, in the middle of a block if need be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from vfl_node.errors import VflError

Result = TypeVar("Result")

_AHEAD = 4  # blocks begun before their turn, for each process
_PROGRAM = "import sys; end, *sys.path = sys.argv[1:]; from vfl_node.crypto.processes import serve; serve(int(end))"


class Processes(Protocol):
    """Whatever can apply a function to blocks of arguments outside Python's lock.

    Attributes:
        processes: how many blocks are computed side by side.
    """

    processes: int

    def map(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], *, background: bool = False
    ) -> Iterator[Result]:
        """Call ``function(*block)`` for every block; the results come in order.

        Blocks not yet begun are dropped when the iterator is closed or forgotten, or when a block
        fails.

        Args:
            function: of a module that children can import, and that should not import torch.
            blocks: arguments, 10 ms of work or more each; they and the results are pickled.
            background: begin all blocks now, but let others that are not in the background go
                first. Otherwise a few blocks for each process are begun before their turn.

        Raises:
            Exception: what ``function`` raised for the earliest block that failed.
        """

    def close(self) -> None:
        """Drop all work and end the processes. Nothing can be mapped afterwards."""


class InProcess:
    """The same contract in the calling thread, each block when its result is asked for: for tests and tiny work."""

    processes = 1

    def map(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Processes.map`; nothing runs in the background."""
        return (function(*block) for block in blocks)

    def close(self) -> None:
        """There is nothing to end."""


class ProcessWorkers:
    """Children of this process, started at the first :meth:`map` and kept until :meth:`close`.

    A child that nobody can use any more (this object was closed or forgotten, this process ended
    or was killed) ends at once. Any thread may call any method.

    Args:
        processes: how many.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._jobs = _Jobs()
        self._children: list[_Child] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _end, processes, self._jobs, self._children)

    def map(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Processes.map`. Work begins at the call, not at the first ``next``.

        Raises:
            VflError: a child ended before its block was done, for want of memory perhaps (``E_WORKER``).
            RuntimeError: the workers were closed.
        """
        results = self._results(function, blocks, background)
        next(results)  # begins the work; a generator that has not begun would cancel nothing when closed
        return results

    def close(self) -> None:
        """As :meth:`Processes.close`; returns when the children are gone."""
        with self._lock:
            self._end()
        for thread in self._threads:
            thread.join()

    def _results(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], background: bool
    ) -> Iterator[Result]:
        work = (self._submit(function, block, background) for block in blocks)
        begun = deque(work if background else islice(work, _AHEAD * self.processes))
        try:
            yield cast("Result", None)  # to map
            while begun:
                result = begun.popleft().result()
                begun.extend(islice(work, 1))
                yield result
        finally:
            for future in begun:
                future.cancel()

    def _submit(self, function: Callable[..., Result], block: tuple[Any, ...], background: bool) -> Future[Result]:
        with self._lock:
            if not self._end.alive:
                raise RuntimeError("these workers were closed")
            job = _Job(function, block)
            self._jobs.put(job, background)
            if len(self._threads) < self.processes:
                thread = threading.Thread(target=_tend, args=(self._jobs, self._children), name="processes", daemon=True)
                self._threads.append(thread)
                thread.start()
        return job.future


class _Job:
    """One block, and what will become of it."""

    def __init__(self, function: Callable[..., Any], block: tuple[Any, ...]) -> None:
        self.function = function
        self.block = block
        self.future: Future[Any] = Future()


class _Jobs:
    """The blocks that wait. :meth:`drop` may run inside any other method, as finalizers do, and must not wait for a lock."""

    def __init__(self) -> None:
        self._foreground: deque[_Job] = deque()
        self._background: deque[_Job] = deque()
        self._tokens: SimpleQueue[bool] = SimpleQueue()  # True for each job put, False for each thread to end
        self._lock = threading.Lock()
        self.dropped = False

    def put(self, job: _Job, background: bool) -> None:
        (self._background if background else self._foreground).append(job)
        self._tokens.put(True)

    def get(self) -> _Job | None:
        """Wait for the next job; None: there will be no more."""
        while self._tokens.get():
            with self._lock, suppress(IndexError):  # dropped meanwhile
                return (self._foreground or self._background).popleft()
        return None

    def drop(self, threads: int) -> None:
        """Cancel what waits and let ``threads`` callers of :meth:`get` go."""
        self.dropped = True
        for jobs in (self._foreground, self._background):
            with suppress(IndexError):
                while True:
                    jobs.popleft().future.cancel()
        for _ in range(threads):
            self._tokens.put(False)


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
                | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # one core each, and no idle pool of threads
                start_new_session=True,  # a terminal's Ctrl-C is for the parent
            )
        self.lost = False

    def call(self, job: _Job) -> object:
        try:
            self._connection.send((job.function, job.block))
            result, error, trace = self._connection.recv()
        except (EOFError, OSError, MemoryError):  # after any of them the two ends may be out of step
            self.lost = True
            self.kill()
            raise VflError(
                f"a worker process ended before its work was done (exit status {self._process.wait()})",
                code="E_WORKER",
                hint="if memory ran out, set group_threads lower (as many processes are started); then resume the job",
            ) from None
        if error is not None:
            raise error from _Remote(trace)
        return result

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


class _Remote(Exception):
    """The cause of an exception that was raised in a child: its traceback there."""

    def __str__(self) -> str:
        return f"in a worker process\n{self.args[0]}"


def _tend(jobs: _Jobs, children: list[_Child]) -> None:
    """Hand one child its jobs. There is such a thread for each child; none keeps the :class:`ProcessWorkers` alive."""
    child: _Child | None = None
    while job := jobs.get():
        if not job.future.set_running_or_notify_cancel():
            continue
        try:
            if child is None:
                child = _Child()
                children.append(child)
                if jobs.dropped:  # while it started, when nobody could kill it
                    child.kill()
            job.future.set_result(child.call(job))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the future
            job.future.set_exception(error)
        del job  # the result is the caller's alone, not also this waiting thread's
        if child is not None and child.lost:
            children.remove(child)
            child.end()
            child = None
    if child is not None:
        child.end()


def _end(threads: int, jobs: _Jobs, children: list[_Child]) -> None:
    jobs.drop(threads)
    for child in list(children):
        child.kill()


def serve(end: int) -> None:
    """What a child does: answer each job on the pipe, in order, until the other end is closed.

    Whoever stops the node stops its parent process; a signal sent to the whole group must not
    take the children away from a parent that is putting its work in order.

    Args:
        end: file descriptor of the child's end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(end)
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    while True:
        answer = _answer(jobs.get())
        with suppress(OSError):  # the parent is gone, and so will this process be
            connection.send_bytes(answer)


def _receive(connection: Connection, jobs: SimpleQueue[bytes]) -> None:
    """Pass jobs on until the parent closes the pipe or is gone; then nobody waits for what is being computed."""
    try:
        while True:
            jobs.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)
    finally:  # for want of memory, for one: a child that hears nothing any more is of no use
        os._exit(1)


def _answer(message: bytes) -> bytes:
    """The pickled (result, exception, traceback) of a job."""
    try:
        function, block = ForkingPickler.loads(message)
        return bytes(ForkingPickler.dumps((function(*block), None, "")))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        trace = traceback.format_exc()
        try:
            answer = bytes(ForkingPickler.dumps((None, error, trace)))
            ForkingPickler.loads(answer)
        except Exception:  # noqa: BLE001 - an exception that does not survive pickling
            return bytes(ForkingPickler.dumps((None, RuntimeError(f"{type(error).__name__} in a worker process"), trace)))
        return answer
