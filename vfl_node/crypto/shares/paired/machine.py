"""A party's machine without a dealer, what it has made ahead, and the look ahead at what will be needed.

The program itself says what it needs: a :class:`Lookout` runs it with nobody's values, and notes what each section needs.
So both parties make the same ones, in the same order. What is made for a section has a section of its own (``ahead …``): it
has the same bytes whenever it is made.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from typing_extensions import override

from vfl_node.crypto.lattice.sizes import SLOT_ROWS
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Cost, Counter, Party, ShareMachine, Wire
from vfl_node.crypto.shares.operation import DEALER, Material, Opening, Operation
from vfl_node.crypto.shares.paired.correlations import InnerProducts, Made, Transfers
from vfl_node.crypto.shares.paired.tools import PairTools, nothing
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.rounds import run_beside

Needed = tuple[str, Mapping[int, Made]]
"""A section, and number of an operation in it → what it needs."""

Place = tuple[str, int]
"""A section, and number of an operation in it."""

TRANSFERS_TOGETHER = 1 << 15
"""More of them are not made at a time, unless a section needs them."""

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


def group_sections(needed: Iterator[Needed]) -> Iterator[list[Needed]]:
    """Sections that are made together: steps of an epoch, so many that few rows do not waste a ciphertext of many.

    A training goes on at an epoch, so the groups of an epoch are the same in each attempt.
    """
    waiting = next(needed, None)
    while waiting is not None:
        group, room, epoch = [waiting], count_together(waiting[1].values()), _epoch_of(waiting[0])
        waiting = next(needed, None)
        while waiting is not None and len(group) < room and _epoch_of(waiting[0]) == epoch:
            group.append(waiting)
            waiting = next(needed, None)
        yield group


def count_together(needed: Iterable[Made]) -> int:
    """How many sections that need as much as this one are made together."""
    each = list(needed)
    rows = sum(one.rows for one in each if isinstance(one, InnerProducts))
    transfers = sum(one.count for one in each if isinstance(one, Transfers))
    return max(1, min(SLOT_ROWS // max(rows, 1), TRANSFERS_TOGETHER // max(transfers, 1)))


async def make_ahead(machine: ShareMachine, tools: PairTools | None, group: Sequence[Needed]) -> dict[str, dict[int, Material]]:
    """Make what sections need: section → number of the operation → material. Two rounds at most.

    Transfers in the same direction are made together: a call takes a millisecond, however few there are. So are inner products
    of vectors of the same length.
    """
    first = group[0][0]
    machine.begin(f"ahead {first}")
    apart: list[tuple[Place, Made]] = []
    joined: dict[tuple[str, int], list[tuple[Place, int]]] = {}
    for section, needed in group:
        for number, each in needed.items():
            if isinstance(each, Transfers):
                joined.setdefault(("transfers", each.receiver), []).append(((section, number), each.count))
            elif isinstance(each, InnerProducts):
                joined.setdefault(("inner products", each.terms), []).append(((section, number), each.rows))
            else:
                apart.append(((section, number), each))
    whole = [_join(*kind, sum(count for _, count in parts)) for kind, parts in joined.items()]
    place = f"{machine.context} {first}"
    made = await run_beside(
        machine,
        *(
            partial(each.make, tools=tools, place=f"{place} {number}")
            for number, each in enumerate([*(each for _, each in apart), *whole])
        ),
    )
    materials: dict[str, dict[int, Material]] = {section: {} for section, _ in group}
    for ((section, number), _), material in zip(apart, made, strict=False):
        materials[section][number] = material
    for parts, material in zip(joined.values(), made[len(apart) :], strict=True):
        start = 0
        for (section, number), count in parts:
            materials[section][number] = {name: values[..., start : start + count] for name, values in material.items()}
            start += count
    return materials


def _join(kind: str, key: int, count: int) -> Made:
    """What is made of several correlations of a kind."""
    return Transfers(key, count) if kind == "transfers" else InnerProducts(key, count)


def _epoch_of(section: str) -> str:
    return section.split(" block ")[0]


class PairCounter(Counter):
    """Counts what a computation of two parties costs; what is made ahead by itself.

    Attributes:
        ahead: what is made ahead.
        kept: section → bytes that a party keeps of it.
        together: the most sections that are made together, if there are as many.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.ahead = Cost(2, opened=dict.fromkeys(range(2), 0))
        self.kept: dict[str, int] = {}
        self.together = 1

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
    for group in group_sections(look_ahead(program)):
        await make_ahead(beside, None, group)
        for section, needed in group:
            counter.kept[section] = sum(each.kept_bytes for each in needed.values())
            counter.together = max(counter.together, count_together(needed.values()))
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
