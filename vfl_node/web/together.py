"""Work that an event loop hands to another thread: all that waits goes with one hand-over, which costs more than small work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Together(Generic[A, R]):
    """Has one thread at a time do the work; what is asked for meanwhile waits, and is done together. For one event loop.

    Args:
        work: on another thread; gives for each of those it is given what came of it, or the exception to raise there.
    """

    def __init__(self, work: Callable[[Sequence[A]], Sequence[R | Exception]]) -> None:
        self._work = work
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def ask(self, asked: A) -> R:
        """What came of the work on ``asked``; raises what it raised."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            outcomes: Sequence[R | Exception]
            try:
                work = asyncio.get_running_loop().run_in_executor(None, self._work, [asked for asked, _ in together])
                outcomes = await work
            except Exception as error:  # noqa: BLE001 - raised where the work was asked for
                outcomes = [error] * len(together)
            for (_, answer), outcome in zip(together, outcomes, strict=True):
                if answer.done():  # nobody waits any more
                    continue
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
