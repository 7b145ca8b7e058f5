"""Several computations on shares side by side, in the rounds of the longest.

Source: ours.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from typing_extensions import override

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import Operation

Computation = Callable[[ShareMachine], Coroutine[Any, Any, Any]]
"""Awaits nothing but rounds of the machine that it is given."""


async def run_beside(machine: ShareMachine, *computations: Computation) -> list[Any]:
    """The results of computations none of which needs another one's.

    What opens something waits until each computation that still runs has something to open; then all of it is one round.
    """
    results: list[Any] = [None] * len(computations)
    asked: dict[int, Sequence[Operation[Any]]] = {}

    async def go_on(number: int, computation: Coroutine[Any, Any, Any], found: list[Any] | None) -> None:
        try:
            while True:
                operations = computation.send(found)
                if any(operation.shown for operation in operations):
                    asked[number] = operations
                    return
                found = await machine.run(*operations)
        except StopIteration as stop:
            results[number] = stop.value

    running = []
    for number, computation in enumerate(computations):
        running.append(computation(_Aside(machine)))
        await go_on(number, running[number], None)
    while asked:
        waiting, of_all = sorted(asked), [operation for number in sorted(asked) for operation in asked[number]]
        found = await machine.run(*of_all)
        for number in waiting:
            own = len(asked.pop(number))
            await go_on(number, running[number], found[:own])
            found = found[own:]
    return results


class _Aside(ShareMachine):
    """Hands the operations of one computation to whoever runs all of them."""

    def __init__(self, machine: ShareMachine) -> None:
        super().__init__(machine.place, machine.parties, machine.context)

    @override
    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        return await _ask([operation for _, operation in numbered])


@types.coroutine
def _ask(operations: list[Operation[Any]]) -> Generator[list[Operation[Any]], list[Any], list[Any]]:
    return (yield operations)
