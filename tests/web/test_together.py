"""Work that waits at an event loop is done together, and each of it has its own outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from vfl_node.web.together import Together


def test_what_waits_meanwhile_is_done_with_one_hand_over() -> None:
    groups, go = list[list[int]](), threading.Event()

    def double(asked: Sequence[int]) -> list[int | Exception]:
        groups.append(list(asked))
        go.wait(10)
        return [ValueError(str(each)) if each == 3 else 2 * each for each in asked]

    async def ask() -> list[int | BaseException]:
        together = Together(double)
        first = asyncio.create_task(together.ask(1))
        while not groups:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(together.ask(each)) for each in (2, 3, 4, 5)]
        await asyncio.sleep(0)
        others[2].cancel()
        go.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        return [*found, await together.ask(6)]

    one, two, three, four, five, six = asyncio.run(ask())
    assert (one, two, five, six) == (2, 4, 10, 12)
    assert isinstance(three, ValueError)
    assert isinstance(four, asyncio.CancelledError)
    assert groups == [[1], [2, 3, 4, 5], [6]]


def test_a_defect_reaches_everybody_who_waits() -> None:
    def fail(asked: Sequence[int]) -> list[int | Exception]:
        raise ZeroDivisionError

    async def ask() -> list[int | BaseException]:
        together = Together(fail)
        return await asyncio.gather(together.ask(1), together.ask(2), return_exceptions=True)

    assert [type(each) for each in asyncio.run(ask())] == [ZeroDivisionError] * 2
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Together(fail).ask(1))
