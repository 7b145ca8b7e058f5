"""Row-parallel work, such as one group operation on each of a million elements."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

from vfl_node.crypto.rows import Rows

_AHEAD = 64  # blocks started ahead; with 15 ms each, a second of one core
_SWITCH_S = 5e-5


class Workers(Protocol):
    """Interface: applies a function to blocks of rows. Here with threads; another engine could use many machines."""

    def map_rows(self, function: Callable[[Rows], Rows], rows: Rows, *, block_rows: int) -> Iterator[Rows]:
        """Apply ``function`` to consecutive blocks of ``rows``; the results come in order.

        Work begins at the call, not at the first ``next``, so that a caller may start
        several columns, or receive the next one during the work. The division into blocks
        depends only on ``block_rows``, never on the number of workers. Work that has not started
        is dropped when the iterator is closed or garbage-collected.

        Args:
            function: uint8[k, width] → uint8[k, any width]; it benefits from threads only if it releases Python's lock.
            rows: uint8[n, width].
            block_rows: largest number of rows per call.

        Raises:
            Exception: what ``function`` raised for the earliest block that failed.
        """


class ThreadWorkers:
    """Workers that are threads of this process.

    Threads that take Python's lock after every ladder of 30 µs would wait for it up to 5 ms
    each time while another thread hashes, and so would hardly run at all. Therefore the interval after which
    a thread must release the lock is set to 50 µs, for the whole process.

    Args:
        threads: how many.
    """

    def __init__(self, threads: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rows")
        # Enough to keep all threads busy while the caller prepares the next chunk, but not more:
        # a cancelled job must not leave minutes of work behind.
        self._ahead = max(_AHEAD, 2 * threads)

    def map_rows(self, function: Callable[[Rows], Rows], rows: Rows, *, block_rows: int) -> Iterator[Rows]:
        """As :meth:`Workers.map_rows`."""
        results = self._results(function, rows, block_rows)
        next(results)  # starts the work; closing a generator that has not started would cancel nothing
        return results

    def _results(self, function: Callable[[Rows], Rows], rows: Rows, block_rows: int) -> Iterator[Rows]:
        blocks = (rows[start : start + block_rows] for start in range(0, len(rows), block_rows))
        work = (self._pool.submit(function, block) for block in blocks)
        begun = deque(islice(work, self._ahead))
        try:
            yield rows[:0]  # to map_rows
            while begun:
                result = begun.popleft().result()
                begun.extend(islice(work, 1))
                yield result
        finally:
            for future in begun:
                future.cancel()
