"""A party's machine without a dealer, what it has made ahead, and the look ahead at what will be needed.

The program itself says what it needs: a :class:`Lookout` runs it with nobody's values, and notes what each section needs.
So both parties make the same ones, in the same order. What is made for a section has a section of its own (``ahead …``): it
has the same bytes whenever it is made.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Cost, Counter, Party, ShareMachine, Wire
from vfl_node.crypto.shares.operation import DEALER, Material, Opening, Operation
from vfl_node.crypto.shares.paired.correlations import Made, Transfers
from vfl_node.crypto.shares.paired.tools import PairTools, nothing
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.rounds import run_beside

Needed = tuple[str, Mapping[int, Made]]
"""A section, and number of an operation in it → what it needs."""

Program = Callable[[ShareMachine], Coroutine[Any, Any, Any]]


class Stock(Protocol):
    """What was made ahead."""

    async def take(self, section: str) -> Mapping[int, Material]:
        """What a section needs, by number of the operation; it is taken once."""


class PairParty(Party):
    """A party's part where no dealer helps.

    Args:
        place: 0 for the active party.
        seed: of this party alone. Nothing of it is consumed.
        wire: to the other party.
        context: as in the base.
        seen: likewise.
        common: that both parties know.

    Attributes:
        stock: what was made ahead; None: nothing is needed.
    """

    def __init__(
        self,
        place: int,
        seed: Randomness,
        wire: Wire,
        context: str,
        seen: Callable[[str, int, Sequence[Ring]], None],
        common: Randomness,
    ) -> None:
        super().__init__(place, 2, seed, wire, _NOTHING_DEALT, context, seen)
        self.stock: Stock | None = None
        self._common = common
        self._materials: Mapping[int, Material] = {}
        self._taken = ""

    @override
    def _told(self, shown: Sequence[Opening], received: Sequence[Ring]) -> Sequence[Ring]:
        """Not what this party alone sends, of which it gets zeros or its own: megabytes of them."""
        place = self.place
        return [part for each, part in zip(shown, received, strict=True) if each.to in (None, place) and each.by != place]

    @override
    async def _material(self, number: int, operation: Operation[Any]) -> Material:
        material = dict(await super()._material(number, operation))
        for drawn in operation.drawn:
            if drawn.common:
                material[drawn.name] = self._draw(self._common, number, drawn.name, drawn.shape)
        if operation.paired is not None:
            assert self.stock is not None
            if self._taken != self.section:
                self._materials, self._taken = await self.stock.take(self.section), self.section
            material |= self._materials[number]
        return material


class Lookout(ShareMachine):
    """Runs a program with nobody's values, and says section by section what is needed."""

    def __init__(self) -> None:
        super().__init__(DEALER, 2, "")
        self._of, self._found = "", dict[int, Made]()

    @override
    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        if self.section != self._of:
            await self.tell()
            self._of = self.section
        self._found |= {number: operation.paired for number, operation in numbered if operation.paired is not None}  # type: ignore[misc]
        return [_imagine(operation) for _, operation in numbered]

    async def tell(self) -> None:
        """Say what the section needs that has just ended, if it is anything."""
        if self._found:
            needed, self._found = (self._of, self._found), {}
            await _say(needed)


def look_ahead(program: Program) -> Iterator[Needed]:
    """What each section of a program needs, in their order; the program runs as far as is asked for."""

    async def run() -> None:
        lookout = Lookout()
        await program(lookout)
        await lookout.tell()

    running = run()
    while True:
        try:
            yield running.send(None)
        except StopIteration:
            return


async def make_ahead(
    machine: ShareMachine, tools: PairTools | None, section: str, needed: Mapping[int, Made]
) -> dict[int, Material]:
    """Make what a section needs: number of the operation → material. Two rounds at most.

    Transfers in the same direction are made together: a call takes a millisecond, however few there are.
    """
    machine.begin(f"ahead {section}")
    transfers: dict[int, dict[int, int]] = {0: {}, 1: {}}
    for number, each in needed.items():
        if isinstance(each, Transfers):
            transfers[each.receiver][number] = each.count
    jobs: list[tuple[Any, Made]] = [(number, each) for number, each in needed.items() if not isinstance(each, Transfers)]
    jobs += [(parts, Transfers(receiver, sum(parts.values()))) for receiver, parts in transfers.items() if parts]
    place = f"{machine.context} {section}"
    made = await run_beside(
        machine, *(partial(each.make, tools=tools, place=f"{place} {number}") for number, (_, each) in enumerate(jobs))
    )
    materials: dict[int, Material] = {}
    for (parts, _), material in zip(jobs, made, strict=True):
        if isinstance(parts, int):
            materials[parts] = material
            continue
        start = 0
        for number, count in parts.items():
            materials[number] = {name: values[start : start + count] for name, values in material.items()}
            start += count
    return materials


class PairCounter(Counter):
    """Counts what a computation of two parties costs; what is made ahead by itself.

    Attributes:
        ahead: what is made ahead.
        kept: section → bytes that a party keeps of it.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.ahead = Cost(2, opened=dict.fromkeys(range(2), 0))
        self.kept: dict[str, int] = {}

    @override
    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        self._count_openings(numbered)
        return [_imagine(operation) for _, operation in numbered]


def _imagine(operation: Operation[Any]) -> Any:
    """What an operation gives with nobody's values."""
    opened = [nothing(each.shape) for each in operation.shown]
    return operation.result(DEALER, opened, {drawn.name: nothing(drawn.shape) for drawn in operation.drawn})


async def count_program(program: Program) -> PairCounter:
    """What a program takes, in rounds and bytes."""
    counter, beside = PairCounter(), PairCounter()
    await program(counter)
    for section, needed in look_ahead(program):
        await make_ahead(beside, None, section, needed)
        counter.kept[section] = sum(each.kept_bytes for each in needed.values())
    counter.ahead = beside.cost
    return counter


class _NothingDealt:
    """Corrections that no operation asks for."""

    async def take(self, count: int) -> Ring:
        raise AssertionError("nothing is dealt")

    ahead = take


_NOTHING_DEALT = _NothingDealt()


@types.coroutine
def _say(needed: Needed) -> Generator[Needed, None, None]:
    yield needed
