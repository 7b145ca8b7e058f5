"""Row-parallel work, such as one group operation on each of a million elements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol

from vfl_node.crypto.rows import Rows


class Workers(Protocol):
    """Whatever can apply a function to blocks of rows: threads here, an engine for many machines elsewhere."""

    def map_rows(self, function: Callable[[Rows], Rows], rows: Rows, *, block_rows: int) -> Iterator[Rows]:
        """Apply ``function`` to consecutive blocks of ``rows``; the results come in order.

        Work begins at the call, not at the first ``next``, so that a caller may start
        several columns or receive the next one meanwhile. How rows are cut into blocks
        depends on ``block_rows`` alone, never on the number of workers.

        Args:
            function: uint8[k, width] → uint8[k, any width]; it must release Python's lock to gain from threads.
            rows: uint8[n, width].
            block_rows: most rows a call.

        Raises:
            Exception: what ``function`` raised for the earliest block that failed.
        """


class ThreadWorkers:
    """Workers that are threads of this process.

    Args:
        threads: how many.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rows")
        # Enough to keep all threads busy while the caller handles one result, and no more:
        # a cancelled job must not leave minutes of work behind.
        self._ahead = 2 * threads

    def map_rows(self, function: Callable[[Rows], Rows], rows: Rows, *, block_rows: int) -> Iterator[Rows]:
        """As :meth:`Workers.map_rows`."""
        work = (self._pool.submit(function, rows[start : start + block_rows]) for start in range(0, len(rows), block_rows))
        return _in_order(deque(islice(work, self._ahead)), work)


def _in_order(started: deque[Future[Rows]], work: Iterator[Future[Rows]]) -> Iterator[Rows]:
    try:
        while started:
            result = started.popleft().result()
            started.extend(islice(work, 1))
            yield result
    finally:
        for future in started:
            future.cancel()
