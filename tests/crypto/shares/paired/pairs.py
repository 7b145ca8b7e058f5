"""Two parties without a dealer, in one thread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.crypto.shares.together import Seat, Table, together
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.paired.kit import PairKit
from vfl_node.crypto.shares.paired.machine import PairCounter, PairParty, count_program, look_ahead
from vfl_node.crypto.shares.paired.stock import MadeAhead
from vfl_node.crypto.shares.paired.tools import PairTools, swap_keys

PairProgram = Callable[[ShareMachine, PairKit], Coroutine[Any, Any, Any]]
"""Of a machine and a kit."""

Setup = Callable[[ShareMachine, PairTools | None], Coroutine[Any, Any, Any]]


async def no_columns(machine: ShareMachine, tools: PairTools | None) -> None:
    """Nothing of columns."""


class PairRun:
    """A program run by both.

    Attributes:
        results: of each party.
        table: what they saw; ``before``: rounds and bytes until keys and columns were there.
        tools: of each party.
    """

    def __init__(
        self, program: PairProgram, seed: int = 0, setup: Setup = no_columns, context: str = "", room: int = 1 << 30
    ) -> None:
        self.table, self.tools = Table(2), [None, None]
        self._program, self._setup, self._context, self._room = program, setup, context, room
        self.folder = tempfile.TemporaryDirectory()
        seeds = [Randomness(f"pair {seed} of {place}".encode().ljust(32)) for place in (0, 1)]
        self.results = together([self._run(place, seeds[place]) for place in (0, 1)])

    async def _run(self, place: int, seed: Randomness) -> Any:
        common, seat = Randomness(b"common".ljust(32)), Seat(self.table, place)

        def ignore(*opened: Any) -> None:
            pass

        maker = PairParty(place, seed, seat, self._context, ignore, common)
        maker.begin("keys")
        tools = await swap_keys(maker, seed.derive("keys"))
        assert tools is not None
        maker.begin("columns")
        held = await self._setup(maker, tools)
        self.tools[place] = tools
        needed = look_ahead(lambda machine: self._program(machine, PairKit(), *([] if held is None else [unknown(held)])))
        stock = MadeAhead(maker, tools, needed, self._room, Path(self.folder.name) / str(place))
        party = PairParty(place, seed, seat, self._context, ignore, common)
        party.stock = stock
        return await self._program(party, PairKit(tools), *([] if held is None else [held]))

    @property
    def value(self) -> Any:
        """Of the shared result, in real numbers."""
        from vfl_node.crypto.shares.ring import decode

        one, other = self.results
        return decode(one.part + other.part, one.fraction)


def unknown(held: Any) -> Any:
    """The same matrices as nobody has them."""
    from dataclasses import replace

    return [replace(matrix, part=None) for matrix in held]


def counted(program: Callable[[ShareMachine], Coroutine[Any, Any, Any]]) -> PairCounter:
    """What it costs."""
    (counter,) = together([count_program(program)])
    return counter
