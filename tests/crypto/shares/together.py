"""Parties and dealer of a computation on shares in one thread."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.audit import SectionAudit
from vfl_node.crypto.shares.bits import Bits, pack_bits
from vfl_node.crypto.shares.machine import Cost, Counter, Dealer, Party, ShareMachine, bytes_sent
from vfl_node.crypto.shares.operation import Opening
from vfl_node.crypto.shares.ring import Ring, add_shares, decode, encode
from vfl_node.crypto.shares.values import Shared

Program = Callable[[ShareMachine], Coroutine[Any, Any, Any]]


@types.coroutine
def suspend() -> Any:
    yield


class Table:
    """Where all parties lay down their shares.

    Attributes:
        seen: place → everything that was opened to it, in order.
        heard: place → the numbers of all messages to it, in order: shares of the other one of two, or of each other party at
            the active one of several, which adds them; sums at the others.
        laid: place → the shares that it laid down itself, in order.
        sent: place → bytes.
        rounds: how often they laid some down.
    """

    def __init__(self, parties: int) -> None:
        self.parties, self.rounds = parties, 0
        self.seen: dict[int, list[Ring]] = {place: [] for place in range(parties)}
        self.heard: dict[int, list[Ring]] = {place: [] for place in range(parties)}
        self.laid: dict[int, list[Ring]] = {place: [] for place in range(parties)}
        self.sent = dict.fromkeys(range(parties), 0)
        self._laid: list[dict[int, Sequence[Ring]]] = []

    async def open(self, place: int, number: int, shown: Sequence[Opening], shares: Sequence[Ring]) -> list[Ring]:
        if number == len(self._laid):
            self._laid.append({})
            self.rounds += 1
            for sender, size in bytes_sent(shown, self.parties).items():
                self.sent[sender] += size
        laid = self._laid[number]
        laid[place] = shares
        while len(laid) < self.parties:
            await suspend()
        results = []
        for index, each in enumerate(shown):
            of_all = {sender: laid[sender][index] for sender in range(self.parties) if each.by in (None, sender)}
            total = _sum(each, of_all.values())
            mine = each.to in (None, place)
            if mine and each.by != place:
                self.seen[place].append(total)
            self.laid[place] += [of_all[place]] if place in of_all else []
            self.heard[place] += self._messages(place, each, of_all)
            results.append(total if mine else np.zeros(each.shape, np.uint64))
        return results

    def _messages(self, place: int, each: Opening, of_all: dict[int, Ring]) -> list[Ring]:
        others = {sender: share for sender, share in of_all.items() if sender != place}
        if self.parties == 2:
            return list(others.values()) if each.to in (None, place) else []
        if place == 0:
            return [share for sender, share in others.items() if each.to != sender]
        if each.by == place or each.to not in (None, place):
            return []
        return [_sum(each, (others if each.to == place else of_all).values())]


def _sum(each: Opening, shares: Iterable[Ring]) -> Ring:
    return np.asarray(add_shares(shares, each.shape, each.binary) & np.uint64((1 << each.bits) - 1))


class Seat:
    def __init__(self, table: Table, place: int) -> None:
        self._table, self._place, self._number = table, place, 0

    async def open(self, shown: Sequence[Opening], shares: Sequence[Ring]) -> list[Ring]:
        self._number += 1
        return await self._table.open(self._place, self._number - 1, shown, shares)


class Queues:
    """The dealers' corrections: sinks and sources; ``spoils``: see :class:`Run`."""

    def __init__(self, parties: int, spoils: tuple[int, int] | None = None) -> None:
        self.each: list[list[Ring]] = [[] for _ in range(parties)]
        self.bytes, self.blocks = dict.fromkeys(range(parties), 0), dict.fromkeys(range(parties), 0)
        self._spoils = spoils

    def to(self, place: int) -> Any:
        async def put(corrections: Ring) -> None:
            if self._spoils == (place, self.blocks[place]):
                corrections = corrections.copy()
                corrections[-1] += np.uint64(1)
            self.blocks[place] += 1
            self.each[place].append(corrections)
            self.bytes[place] += corrections.nbytes

        return types.SimpleNamespace(put=put)

    def of(self, place: int) -> Any:
        async def ahead(count: int) -> Ring:
            while sum(map(len, self.each[place])) < count:
                await suspend()
            self.each[place] = [np.concatenate([np.empty(0, np.uint64), *self.each[place]])]
            return self.each[place][0][:count]

        async def take(count: int) -> Ring:
            taken = await ahead(count)
            self.each[place] = [self.each[place][0][count:]]
            return taken

        return types.SimpleNamespace(take=take, ahead=ahead)


class SpoiltError(Exception):
    """What the dealer sent to a party for a section is wrong."""


class Audits:
    """Both parties' check of what the dealer sends.

    Attributes:
        shown: each party's seeds of checked sections, in order.
    """

    def __init__(self, shows: Callable[[str], bool]) -> None:
        self._shows = shows
        self.shown: list[list[bytes]] = [[], []]

    def of(self, place: int) -> SectionAudit:
        async def swap(seed: bytes) -> bytes:
            self.shown[place].append(seed)
            while len(self.shown[1 - place]) < len(self.shown[place]):
                await suspend()
            return self.shown[1 - place][len(self.shown[place]) - 1]

        return SectionAudit(place, self._shows, swap, lambda section, came: None, lambda section: SpoiltError(place, section))


class Run:
    """A program run by all.

    Args:
        program: of a machine; the same for everybody.
        parties: how many.
        seed: of all seeds.
        shows: whether two parties check a section.
        spoils: place and index of a block of numbers that the dealer sends with its last one changed.

    Attributes:
        results: of each party.
        table: what they saw.
        queues: of the dealer.
        audits: of two parties.
    """

    def __init__(
        self,
        program: Program,
        parties: int = 2,
        seed: int = 0,
        shows: Callable[[str], bool] | None = None,
        spoils: tuple[int, int] | None = None,
        **how: Any,
    ) -> None:
        self.table, self.queues = Table(parties), Queues(parties, spoils)
        self.audits = Audits(shows or (lambda section: False))
        seeds = [Randomness(f"seed {seed} of {place}".encode().ljust(32)) for place in range(parties)]
        machines: list[ShareMachine] = [
            Party(
                place, parties, seeds[place], Seat(self.table, place), self.queues.of(place), **how, **self._audit(shows, place)
            )
            for place in range(parties)
        ]
        machines += [Dealer(place, seeds, self.queues.to(place), **how) for place in range(parties)]
        self.results = together([program(machine) for machine in machines])[:parties]

    def _audit(self, shows: Any, place: int) -> dict[str, Any]:
        return {"audit": self.audits.of(place)} if shows else {}

    @property
    def value(self) -> np.ndarray:
        """Of the shared result, in real numbers."""
        return decode(sum((of.part for of in self.results), np.uint64(0) * self.results[0].part), self.results[0].fraction)


def together(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    results, pending = [None] * len(coroutines), dict(enumerate(coroutines))
    for _ in range(100_000):
        for index, each in list(pending.items()):
            try:
                each.send(None)
            except StopIteration as stop:
                results[index] = stop.value
                del pending[index]
        if not pending:
            return results
    raise RuntimeError("they wait for each other")


def counted(program: Program, parties: int = 2) -> Cost:
    counter = Counter(parties)
    together([program(counter)])
    return counter.cost


def shared(machine: ShareMachine, value: np.ndarray, fraction: int = 18, seed: int = 0) -> Shared:
    """A share of a value, for tests: drawn at all places but the first."""
    value = np.asarray(value, dtype=np.float64)
    if machine.place < 0:
        return Shared(np.zeros(value.shape, np.uint64), fraction)
    drawn = [Randomness(f"share {seed} {place}".encode().ljust(32)).uint64(value.size) for place in range(1, machine.parties)]
    others = [of.reshape(value.shape) for of in drawn]
    if machine.place:
        return Shared(others[machine.place - 1], fraction)
    return Shared(encode(value, fraction) - sum(others, np.zeros(value.shape, np.uint64)), fraction)


def spread(machine: ShareMachine, numbers: Any, fraction: int = 0, seed: int = 0) -> Shared:
    """A share of integers as they are, modulo 2⁶⁴, for tests."""
    numbers = np.asarray(numbers, np.int64).view(np.uint64)
    return Shared(_share_of(machine, numbers, seed, binary=False), fraction)


def spread_bits(machine: ShareMachine, bits: np.ndarray, seed: int = 0) -> Bits:
    """A share of an array of 0 and 1, packed, for tests."""
    return Bits(_share_of(machine, pack_bits(bits), seed, binary=True))


def _share_of(machine: ShareMachine, words: Ring, seed: int, *, binary: bool) -> Ring:
    if machine.place < 0:
        return np.zeros_like(words)
    drawn = [
        Randomness(f"spread {seed} {place}".encode().ljust(32)).uint64(words.size).reshape(words.shape)
        for place in range(1, machine.parties)
    ]
    if machine.place:
        return drawn[machine.place - 1]
    rest = add_shares(drawn, words.shape, binary)
    return words ^ rest if binary else words - rest


def total(parts: Iterable[Ring]) -> np.ndarray:
    """Numbers of which all parties have these parts, int64."""
    return np.sum(list(parts), axis=0, dtype=np.uint64).view(np.int64)


def total_bits(parts: Iterable[Any]) -> np.ndarray:
    """Bits likewise, in words or one by one."""
    return np.asarray(np.bitwise_xor.reduce(list(parts)))


def check_cost(run: Run, program: Program, parties: int = 2) -> Cost:
    """What was counted is what was sent, and nothing was dealt that nobody needs."""
    cost = counted(program, parties)
    assert run.table.rounds == cost.rounds
    assert run.table.sent == cost.opened
    assert run.queues.bytes == cost.dealt
    assert all(not sum(map(len, left)) for left in run.queues.each)
    return cost
