"""The engine whose workers are threads of this process: for operations that release Python's lock, such as ladders."""

from __future__ import annotations

import sys
from typing import Any

from vfl_node.engines.queued import BlockTask, Queue, QueuedEngine

_AHEAD = 64  # blocks started ahead; with 15 ms each, a second of one core
_SWITCH_S = 5e-5


class Threads(QueuedEngine):
    """Threads of this process, started with the first blocks and kept until :meth:`close`.

    Threads that take Python's lock after every ladder of 30 µs would wait for it up to 5 ms
    each time while another thread hashes, and so would hardly run at all. Therefore the interval after which
    a thread must release the lock is set to 50 µs, for the whole process.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        # Enough to keep all threads busy while the caller prepares the next chunk, but not more:
        # a cancelled job must not leave minutes of work behind.
        super().__init__(workers, ahead=max(_AHEAD, 2 * workers), tend=_tend)


def _tend(queue: Queue) -> None:
    """Compute block after block."""
    while task := queue.get():
        task.do(_compute)
        del task  # so that this waiting thread does not keep the result alive


def _compute(task: BlockTask) -> Any:
    return task.operation(task.key, task.block)
