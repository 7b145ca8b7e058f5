"""A computation on shares as it is run: by a party, by the dealer, or by somebody who counts.

A computation is a coroutine that gets a machine and awaits rounds of operations::

    first, second = await machine.run(known_product(a, w), known_product(b, v))

All operations of a round are opened in one message. Every machine counts operations, so that all agree on the place of each:
(context, section, number of the operation in it, name of the value). Masks are drawn from a party's seed at that place: from
the seed of the section, and that from the party's, so that one section can be shown without any other
(:mod:`vfl_node.crypto.shares.audit`). All parties get about as many corrections.

The context is a digest of everything that values are made of. All of the computation is arithmetic of integers, so in one
context each place has one value, however often it is computed, if all send what they sent before: a mask is never used for two.
Whoever repeats a section compares what is opened with what was (``seen``). To go on after a restart, the
machines begin with a later section. If anything differs, so does the context, and all masks are fresh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.ring import BYTES, Ring, add_shares, pack_numbers, unpack_numbers

SEED_BYTES = 32
"""Length of the seed of a section."""


class Wire(Protocol):
    """How a party's shares get to the others."""

    async def open(self, shown: Sequence[Opening], shares: Sequence[Ring]) -> Sequence[Ring]:
        """Send this party's shares, and get the sums of all: uint64[…] each, zeros where it is for another party alone."""


class Corrections(Protocol):
    """What the dealer sends to a party, in the order in which it is needed."""

    async def take(self, count: int) -> Ring:
        """The next ``count`` numbers, uint64[count]."""

    async def ahead(self, count: int) -> Ring:
        """The same once all of them are here; they are still to be taken."""


class Auditing(Protocol):
    """Which sections a party checks instead of using them, and with what."""

    async def gather(self, section: str, corrections: Corrections, count: int) -> None:
        """As :meth:`ShareMachine.gather`."""

    async def auditor(self, section: str, seed: bytes, corrections: Corrections, count: int) -> ShareMachine | None:
        """As :meth:`ShareMachine.auditor`; ``seed`` is this party's of the section."""


class ShareMachine(ABC):
    """Runs operations; there is one for each party, and one for the dealer.

    Args:
        place: of the party, or :data:`~vfl_node.crypto.shares.operation.DEALER`.
        parties: how many have data.
        context: digest of everything that values are made of.
    """

    def __init__(self, place: int, parties: int, context: str) -> None:
        self.place, self.parties, self.context = place, parties, context
        self.begin("")

    def begin(self, section: str) -> None:
        """Begin a section: a part of the computation with a name of its own."""
        self._section, self.number = section, 0
        self._receivers: dict[int, int] = {}
        self._dealt = [0] * self.parties
        self._roots: dict[Randomness, Randomness] = {}
        self._turn = sum(int(word) for word in section.split() if word.isdigit())  # who is the first to get something

    @property
    def section(self) -> str:
        """The name of the section."""
        return self._section

    async def run(self, *operations: Operation[Any]) -> list[Any]:
        """The results of several operations in one round."""
        first = self.number
        self.number += len(operations)
        numbered = [(first + offset, operation) for offset, operation in enumerate(operations)]
        for number, operation in numbered:
            self._choose_receiver(number, operation)
        return await self._round(numbered)

    async def gather(self, count: int) -> None:  # noqa: B027 - a dealer, or who counts, has nothing to wait for
        """Go on once all of the next ``count`` numbers that this party is dealt have come, if any are checked."""

    async def auditor(self, count: int) -> ShareMachine | None:
        """The machine that runs this section with nobody's values and checks what was dealt for it; None: the section is used.

        Args:
            count: how many numbers this party is dealt in the section, of which nothing may have run.
        """
        return None

    @abstractmethod
    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]: ...

    def _choose_receiver(self, number: int, operation: Operation[Any]) -> None:
        """The party that gets the corrections of an operation: the one that has fewest of this section, in turns."""
        least = min(range(self.parties), key=lambda place: (self._dealt[place], (place - self._turn) % self.parties))
        receiver = least if operation.receiver is None else operation.receiver
        self._dealt[receiver] += sum(map(operation.words, operation.dealt.values()))
        self._receivers[number] = receiver

    def _section_seed(self, seed: Randomness) -> bytes:
        """The seed of which all masks of this section are drawn, from a party's."""
        return seed.derive(f"{self.context} {self._section}").bytes(SEED_BYTES)

    def _draw(self, seed: Randomness, number: int, name: str, shape: Shape) -> Ring:
        """A party's share of a random value."""
        if seed not in self._roots:
            self._roots[seed] = Randomness(self._section_seed(seed))
        drawn = self._roots[seed].derive(f"{number} {name}").uint64(prod(shape))
        return drawn.reshape(shape)


class Party(ShareMachine):
    """A party's part.

    Args:
        place: 0 for the active party.
        parties: how many have data.
        seed: that it shares with the dealer alone. Nothing of it is consumed.
        wire: to the other parties.
        corrections: from the dealer.
        context: as in the base.
        seen: called with section, number of the first operation and what was opened in each round, before anything else is
            sent; it may raise.
        audit: which sections are checked instead of used; None: none.
    """

    def __init__(
        self,
        place: int,
        parties: int,
        seed: Randomness,
        wire: Wire,
        corrections: Corrections,
        context: str = "",
        seen: Callable[[str, int, Sequence[Ring]], None] = lambda section, number, opened: None,
        audit: Auditing | None = None,
    ) -> None:
        super().__init__(place, parties, context)
        self._audit = audit
        self._seed, self._wire, self._corrections, self._seen = seed, wire, corrections, seen

    @override
    async def gather(self, count: int) -> None:
        if self._audit is not None:
            await self._audit.gather(self._section, self._corrections, count)

    @override
    async def auditor(self, count: int) -> ShareMachine | None:
        """Nothing of the section is sent before all its corrections have come."""
        if self._audit is None:
            return None
        return await self._audit.auditor(self._section, self._section_seed(self._seed), self._corrections, count)

    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        materials = [await self._material(number, operation) for number, operation in numbered]
        shown = [each for _, operation in numbered for each in operation.shown]
        pairs = zip(numbered, materials, strict=True)
        shares = [share for (_, operation), material in pairs for share in operation.shares(self.place, material)]
        received = await self._wire.open(shown, shares) if shown else ()
        if shown:
            self._seen(self._section, numbered[0][0], self._told(shown, received))
        opened = iter(received)
        return [
            operation.result(self.place, [next(opened) for _ in operation.shown], material)
            for (_, operation), material in zip(numbered, materials, strict=True)
        ]

    def _told(self, shown: Sequence[Opening], received: Sequence[Ring]) -> Sequence[Ring]:
        """What others must send again as it was, of all that a round opens."""
        return received

    async def _material(self, number: int, operation: Operation[Any]) -> Material:
        material = {
            drawn.name: self._draw(self._seed, number, drawn.name, drawn.shape)
            for drawn in operation.drawn
            if drawn.held_by(self.place) and not drawn.common
        }
        for name, shape in operation.dealt.items():
            if self._receivers[number] == self.place:
                words = await self._corrections.take(operation.words(shape))
                material[name] = unpack_numbers(words, prod(shape), operation.dealt_bits).reshape(shape)
            elif name not in operation.whole:
                material[name] = self._draw(self._seed, number, name, shape)
        return material


class Sink(Protocol):
    """Where the dealer's corrections go."""

    async def put(self, corrections: Ring) -> None:
        """The next numbers."""


class Dealer(ShareMachine):
    """The dealer's part for one party: it makes what parties cannot, and learns nothing.

    Each party has a dealer of its own, with the same seeds: so no party waits for another one's corrections, and nothing has
    to be kept for later. Both draw all masks that they need.

    Args:
        receiver: place of the party whose corrections are made.
        seeds: of the parties, in their order.
        sink: where corrections go.
        context: as in the base.
    """

    def __init__(self, receiver: int, seeds: Sequence[Randomness], sink: Sink, context: str = "") -> None:
        super().__init__(DEALER, len(seeds), context)
        self._own, self._seeds, self._sink = receiver, seeds, sink

    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        return [await self._deal(number, operation) for number, operation in numbered]

    async def _deal(self, number: int, operation: Operation[Any]) -> Any:
        receives = self._receivers[number] == self._own
        values = {
            drawn.name: self._sum(number, drawn.name, drawn.shape, self._holders(drawn), operation.binary)
            for drawn in operation.drawn
            if drawn.lasting or (receives and operation.dealt)
        }
        if receives and operation.dealt:
            made, others = operation.correlated(values), [place for place in range(self.parties) if place != self._own]
            for name, shape in operation.dealt.items():
                drawn = self._sum(number, name, shape, [] if name in operation.whole else others, operation.binary)
                rest = made[name] ^ drawn if operation.binary else made[name] - drawn
                await self._sink.put(pack_numbers(rest.ravel(), operation.dealt_bits))
        opened = [np.zeros(each.shape, np.uint64) for each in operation.shown]
        return operation.result(DEALER, opened, values)

    def _holders(self, drawn: Drawn) -> list[int]:
        return [place for place in range(self.parties) if drawn.held_by(place)]

    def _sum(self, number: int, name: str, shape: Shape, places: Iterable[int], binary: bool) -> Ring:
        return add_shares((self._draw(self._seeds[place], number, name, shape) for place in places), shape, binary)


@dataclass
class Cost:
    """What operations cost.

    Attributes:
        rounds: of messages between parties whose answers are awaited.
        opened: place → bytes of shares that the party sends to all others together, without what frames add.
        dealt: place → bytes of corrections that it gets from the dealer.
    """

    parties: int
    rounds: int = 0
    opened: dict[int, int] = field(default_factory=dict)
    dealt: dict[int, int] = field(default_factory=dict)


class Counter(ShareMachine):
    """Counts what a computation costs: with the dealer's values, which are none.

    Args:
        parties: how many have data.
        shows: whether a section is checked instead of used.
    """

    def __init__(self, parties: int, shows: Callable[[str], bool] = lambda section: False) -> None:
        super().__init__(DEALER, parties, "")
        self._shows, self._opens = shows, True
        self.cost = Cost(parties, opened=dict.fromkeys(range(parties), 0), dealt=dict.fromkeys(range(parties), 0))

    @override
    async def auditor(self, count: int) -> Counter | None:
        """Each party shows the seed of the section, and nothing is opened."""
        if not self._shows(self._section):
            return None
        within = Counter(self.parties)
        within.cost, within._opens = self.cost, False
        self.cost.rounds += 1
        for place in self.cost.opened:
            self.cost.opened[place] += SEED_BYTES
        return within

    async def _round(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> list[Any]:
        self._count_openings(numbered)
        results = []
        for number, operation in numbered:
            dealt = BYTES * sum(map(operation.words, operation.dealt.values()))
            self.cost.dealt[self._receivers[number]] += dealt
            nothing = {drawn.name: np.zeros(drawn.shape, np.uint64) for drawn in operation.drawn}
            opened = [np.zeros(each.shape, np.uint64) for each in operation.shown]
            results.append(operation.result(DEALER, opened, nothing))
        return results

    def _count_openings(self, numbered: Sequence[tuple[int, Operation[Any]]]) -> None:
        shown = [each for _, operation in numbered for each in operation.shown if self._opens]
        self.cost.rounds += bool(shown)
        for place, sent in bytes_sent(shown, self.parties).items():
            self.cost.opened[place] += sent


def bytes_sent(shown: Sequence[Opening], parties: int) -> Mapping[int, int]:
    """Place → bytes that it sends in a round.

    Two parties send each other their shares. Several ones send theirs to the active party, which adds them, and sends the sums.
    """
    sent = dict.fromkeys(range(parties), 0)
    for each in shown:
        senders = [place for place in range(parties) if each.by in (None, place)]
        if parties == 2:
            for place in senders:
                sent[place] += each.size if each.to in (None, 1 - place) else 0
            continue
        for place in senders:
            sent[place] += each.size if place and each.to != place else 0
        receivers = [place for place in range(1, parties) if each.to in (None, place) and (each.by is None or each.by != place)]
        sent[0] += each.size * len(receivers)
    return sent
