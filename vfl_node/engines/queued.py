"""The common part of engines with workers: blocks wait in one queue, and a thread for each worker takes them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any, cast

from vfl_node.engines.contract import Block, Key, Result, check_named


class BlockTask:
    """One block, and the future of its result."""

    def __init__(self, operation: Callable[[Any, Any], Any], key: Any, block: Any) -> None:
        self.operation = operation
        self.key = key
        self.block = block
        self.future: Future[Any] = Future()

    def do(self, compute: Callable[[BlockTask], Any]) -> None:
        """Settle the future by what ``compute`` returns or raises, unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(compute(self))
        except BaseException as error:  # noqa: BLE001 - raised to the caller that waits for the future
            self.future.set_exception(error)


class Queue:
    """The waiting blocks. A finalizer may call :meth:`drop` inside any other method, so it must not wait for a lock."""

    def __init__(self) -> None:
        self._foreground: deque[BlockTask] = deque()
        self._background: deque[BlockTask] = deque()
        self._tokens: SimpleQueue[bool] = SimpleQueue()  # True for each task put, False for each thread to end
        self._lock = threading.Lock()
        self.dropped = False

    def put(self, task: BlockTask, background: bool) -> None:
        """Add ``task``; a background task has lower priority."""
        (self._background if background else self._foreground).append(task)
        self._tokens.put(True)

    def get(self) -> BlockTask | None:
        """Wait for the next task; None: there are no more."""
        while self._tokens.get():
            with self._lock, suppress(IndexError):  # it was dropped
                return (self._foreground or self._background).popleft()
        return None

    def drop(self, threads: int) -> None:
        """Cancel waiting tasks and release ``threads`` callers of :meth:`get`."""
        self.dropped = True
        for waiting in (self._foreground, self._background):
            with suppress(IndexError):
                while True:
                    waiting.popleft().future.cancel()
        for _ in range(threads):
            self._tokens.put(False)


class RemoteTrace(Exception):
    """The cause of an exception that was raised in another process: its traceback there."""

    def __str__(self) -> str:
        return f"in a worker process\n{self.args[0]}"


class QueuedEngine:
    """An engine with a thread for each worker. The threads start with the first blocks.

    An engine that is garbage-collected is closed: neither ``tend`` nor ``interrupt`` may refer to it.

    Args:
        workers: how many.
        ahead: blocks of a call that are started ahead.
        tend: the main function of a thread: it takes tasks from the queue until :meth:`Queue.get` returns None.
        interrupt: ends current blocks when the engine is closed; without it they run to their end.
    """

    grain = 1

    def __init__(
        self, workers: int, *, ahead: int, tend: Callable[[Queue], None], interrupt: Callable[[], None] = lambda: None
    ) -> None:
        self.workers = workers
        self._ahead = ahead
        self._tend = tend
        self._queue = Queue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _end, workers, self._queue, interrupt)

    def map(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Engine.map`."""
        check_named(operation)
        results = self._results(operation, blocks, key, background)
        next(results)  # starts the work; closing a generator that has not started would cancel nothing
        return results

    def close(self) -> None:
        """As :meth:`Engine.close`."""
        with self._lock:
            self._end()
        for thread in self._threads:
            thread.join()

    def _results(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, background: bool
    ) -> Iterator[Result]:
        futures = (self._begin(BlockTask(operation, key, block), background) for block in blocks)
        begun = deque(futures if background else islice(futures, self._ahead))
        try:
            yield cast("Result", None)  # to map
            while begun:
                result = begun.popleft().result()
                begun.extend(islice(futures, 1))
                yield result
        finally:
            for future in begun:
                future.cancel()

    def _begin(self, task: BlockTask, background: bool) -> Future[Any]:
        with self._lock:
            if not self._end.alive:
                raise RuntimeError("this engine was closed")
            self._queue.put(task, background)
            if len(self._threads) < self.workers:
                thread = threading.Thread(target=self._tend, args=(self._queue,), name="engine", daemon=True)
                thread.start()
                self._threads.append(thread)
        return task.future


def _end(threads: int, queue: Queue, interrupt: Callable[[], None]) -> None:
    queue.drop(threads)
    interrupt()
