"""Block-parallel work in processes: for arithmetic that holds Python's lock, such as ``x * y % m``.

A child is a new process of this interpreter (never a fork: grpc does not support forks). It has one
end of a pipe and nothing else of this process, and takes one block at a time. It lives as long as the
other end is open. When this process closes it, or ends for any reason, the child ends at
once, even in the middle of a block.
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

_AHEAD = 4  # blocks started ahead, for each process
_PROGRAM = "import sys; end, *sys.path = sys.argv[1:]; from vfl_node.crypto.processes import serve; serve(int(end))"


class Processes(Protocol):
    """Interface: applies a function to blocks of arguments outside Python's lock.

    Attributes:
        processes: how many blocks are computed at the same time.
    """

    processes: int

    def map(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], *, background: bool = False
    ) -> Iterator[Result]:
        """Call ``function(*block)`` for every block; the results come in order.

        Blocks that have not started are dropped when the iterator is closed or garbage-collected, or when a block
        fails.

        Args:
            function: from a module that children can import; the module should not import torch.
            blocks: arguments, 10 ms of work or more each; they and the results are pickled.
            background: start all blocks now, but with lower priority than work that is not in the
                background. Otherwise a few blocks for each process are started ahead.

        Raises:
            Exception: what ``function`` raised for the earliest block that failed.
        """

    def close(self) -> None:
        """Drop all work and end the processes. Nothing can be mapped afterwards."""


class InProcess:
    """The same interface in the calling thread; each block is computed when its result is needed. For tests and small work."""

    processes = 1

    def map(
        self, function: Callable[..., Result], blocks: Iterable[tuple[Any, ...]], *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Processes.map`; nothing runs in the background."""
        return (function(*block) for block in blocks)

    def close(self) -> None:
        """Does nothing."""


class ProcessWorkers:
    """Children of this process, started at the first :meth:`map` and kept until :meth:`close`.

    A child ends at once when it is no longer needed: this object was closed or garbage-collected, or this process ended
    or was killed. Any thread may call any method.

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
            VflError: a child ended before its block was done, perhaps because memory was full (``E_WORKER``).
            RuntimeError: the workers were closed.
        """
        results = self._results(function, blocks, background)
        next(results)  # starts the work; closing a generator that has not started would cancel nothing
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
    """One block and the future of its result."""

    def __init__(self, function: Callable[..., Any], block: tuple[Any, ...]) -> None:
        self.function = function
        self.block = block
        self.future: Future[Any] = Future()


class _Jobs:
    """The waiting blocks. A finalizer may call :meth:`drop` inside any other method, so it must not wait for a lock."""

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
        """Wait for the next job; None: there are no more."""
        while self._tokens.get():
            with self._lock, suppress(IndexError):  # it was dropped
                return (self._foreground or self._background).popleft()
        return None

    def drop(self, threads: int) -> None:
        """Cancel waiting jobs and release ``threads`` callers of :meth:`get`."""
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
                | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # one core each, without an idle pool of threads
                start_new_session=True,  # a terminal's Ctrl-C is for the parent
            )
        self.lost = False

    def call(self, job: _Job) -> object:
        try:
            self._connection.send((job.function, job.block))
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
    """Give one child its jobs. Each child has such a thread; the threads do not keep the :class:`ProcessWorkers` alive."""
    child: _Child | None = None
    while job := jobs.get():
        if not job.future.set_running_or_notify_cancel():
            continue
        try:
            if child is None:
                child = _Child()
                children.append(child)
                if jobs.dropped:  # it was closed while the child started and could not be killed
                    child.kill()
            job.future.set_result(child.call(job))
        except BaseException as error:  # noqa: BLE001 - raised to the caller that waits for the future
            job.future.set_exception(error)
        del job  # so that this waiting thread does not keep the result alive
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
    """The main function of a child: answer each job on the pipe, in order, until the other end is closed.

    To stop the node, its parent process is stopped. A signal to the whole group must not
    end the children while the parent is still finishing its work.

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
        with suppress(OSError):  # the parent is gone, so this process ends, too
            connection.send_bytes(answer)


def _receive(connection: Connection, jobs: SimpleQueue[bytes]) -> None:
    """Forward jobs until the parent closes the pipe or is gone; then nobody waits for the current result."""
    try:
        while True:
            jobs.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)
    finally:  # for example, memory is full: a child that cannot receive is of no use
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
