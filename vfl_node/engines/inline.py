"""The engine without workers: for tests and small work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vfl_node.engines.contract import Block, Key, Result, check_named


class Inline:
    """Computes each block in the calling thread, when its result is needed."""

    workers = 1

    def map(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, *, background: bool = False
    ) -> Iterator[Result]:
        """As :meth:`Engine.map`, but nothing begins before the first ``next``, or runs in the background."""
        check_named(operation)
        return (operation(key, block) for block in blocks)

    def close(self) -> None:
        """Does nothing."""
