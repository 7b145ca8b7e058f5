"""The contract of an engine: it applies a named operation to blocks, several at the same time. And the one without workers.

A worker may be a thread, a process or another machine. So an operation is a function of a
module: every worker can import it by its name. It gets all its inputs as arguments: a *key*, which
the blocks have in common, and one block. A closure is refused, because it would also carry
everything that it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import ismethod
from typing import Any, Protocol, TypeVar

Key = TypeVar("Key")
Block = TypeVar("Block")
Result = TypeVar("Result")


class Engine(Protocol):
    """Computes on blocks. Any thread may call any method.

    Attributes:
        workers: how many blocks are computed at the same time.
        grain: callers make blocks so many times larger than for threads, where the division changes no byte of the results.
    """

    workers: int
    grain: int

    def map(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, *, background: bool = False
    ) -> Iterator[Result]:
        """``operation(key, block)`` for every block; the results come in order.

        Work begins at the call, not at the first ``next``, so that a caller may start several
        columns, or receive the next one during the work. A few blocks for each worker are started
        ahead; each result that is taken starts another block. Blocks that have not started are
        dropped when the iterator is closed or garbage-collected, or when a block fails.

        Args:
            operation: a function of a module. Its result follows from its arguments alone: it draws no random numbers and
                changes nothing else, since a block is computed again if its worker was lost. Random numbers that it needs
                are in its block.
            blocks: 10 ms of work or more each.
            key: what all blocks have in common, such as a secret exponent. It is immutable. Only
                the engine's workers receive it.
            background: start all blocks now, but with lower priority than work that is not in the
                background.

        Raises:
            ValueError: the operation is a closure, a lambda or a method.
            Exception: what ``operation`` raised for the earliest block that failed.
            VflError: a worker ended before its block was done (``E_WORKER``).
            RuntimeError: the engine was closed.
        """

    def close(self) -> None:
        """Drop all work and end the workers; returns when they are gone. Idempotent. Nothing can be mapped afterwards."""


def check_named(operation: Callable[..., Any]) -> None:
    """Refuse an operation that cannot be found by its name. Raises ValueError."""
    name = getattr(operation, "__qualname__", "<object>")
    if "<" in name or ismethod(operation):  # <lambda>, <locals>
        raise ValueError(f"{name} is not a function of a module, so that a worker could not find it")


def block_size(count: int, engine: Engine, least: int, most: int) -> int:
    """How many of ``count`` items are a block: an equal part for every worker, from ``least`` to ``most``."""
    return min(most, max(least, -(-count // engine.workers)))


class Inline:
    """Computes each block in the calling thread, when its result is needed: for tests and small work."""

    workers = grain = 1

    def map(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Engine.map`, but nothing begins before the first ``next``, or runs in the background."""
        check_named(operation)
        return (operation(key, block) for block in blocks)

    def close(self) -> None:
        """Does nothing."""
