"""The three parties of a linkage in memory, over as many jobs and attempts as needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sessions import session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align, coordination_of
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import PeerLost
from vfl_node.job import Align, Parties
from vfl_node.node.partners import Partner
from vfl_node.session.pins import MemoryPins
from vfl_node.session.session import Session
from vfl_node.settings.limits import Limits
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

A, B, C = "agency", "schools", "linker"
PARTIES = Parties(active=A, passive=(B,), coordinator=C)
OTHERS = {A: (B, C), B: (A, C), C: (A, B)}
KEYS = {"u": {"kind": "number", "low": 0, "high": 100, "reach": 15}}
TERMS: Mapping[str, Any] = {"keys": KEYS, "encoding": {"epsilon": 0.2, "delta": 0.1}, "candidates": 4, "noise": {"sigma": 0.4}}


def numbers(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 100, count)


class Killed(Exception):
    """A party that dies; nothing of the product handles it."""


class Tapped(Channel):
    """A channel that records what it sends, may send something else, and may die instead of sending."""

    sent: list[Any]
    change: Callable[[Any], Any] | None = None
    before: Callable[[], None] | None = None

    async def send(self, message: Any) -> None:
        if self.before:
            self.before()
        message = self.change(message) if self.change else message
        self.sent.append(message)
        await super().send(message)


class World:
    """What three parties keep, from one attempt, and from one job, to the next.

    Args:
        folder: of all of them.
        own: party → the values of its key.
        ids: party → its identifiers; by default as many as there are values.
        limits: party → what its owner allows beside the defaults of these tests.
        memory_mib: party → how much memory its owner allows all jobs together.
    """

    def __init__(
        self,
        folder: Path,
        own: Mapping[str, Sequence[float]],
        *,
        ids: Mapping[str, list[bytes]] | None = None,
        limits: Mapping[str, Mapping[str, Any]] | None = None,
        memory_mib: Mapping[str, int] | None = None,
    ) -> None:
        self.folder, self.jobs, self.limits, self.memory_mib = folder, 0, limits or {}, memory_mib or {}
        self.keys = {name: np.asarray(values, dtype=np.float64) for name, values in own.items()}
        self.ids = ids or {name: [b"%s%d" % (name.encode(), i) for i in range(len(values))] for name, values in own.items()}

    def partner(self, name: str, peer: str) -> Partner:
        return Partner(self.folder / name / "partners", peer, f"{name} {peer}".encode().ljust(32))

    def begin(self, **terms: Any) -> None:
        """A new job."""
        self.jobs += 1
        self.align = Align(protocol="linkage", **{**TERMS, **terms})
        self.pins = {name: MemoryPins() for name in OTHERS}

    def job(self, **terms: Any) -> dict[str, Any]:
        """Party → its alignment, or what the coordinator says was learnt, or the error with which it ended."""
        self.begin(**terms)
        return self.attempt()

    def attempt(
        self,
        change: Mapping[tuple[str, str], Callable[[Any], Any]] | None = None,
        before: Mapping[str, Callable[[], None]] | None = None,
    ) -> dict[str, Any]:
        """An attempt of the job that was begun last.

        Args:
            change: party and peer → what the one sends to the other in place of each of its messages.
            before: party → what is called before each of its messages.
        """
        network, protocols, names = memory_network(*OTHERS), [], []
        self.sent: dict[tuple[str, str], list[Any]] = {}
        for name, others in OTHERS.items():
            for peer in others:
                channel = network[name][peer]
                channel.__class__ = Tapped
                channel.sent = self.sent[name, peer] = []
                channel.change, channel.before = (change or {}).get((name, peer)), (before or {}).get(name)
            own = session(
                name,
                network[name],
                Randomness(f"{name} {self.jobs}".encode().ljust(32)),
                parties=PARTIES,
                align=self.align,
                folder=self.folder / name / f"job {self.jobs}",
                memories={peer: self.partner(name, peer) for peer in others},
                pins=self.pins[name],
                limits=Limits(**{"min_own_rows": 1, "min_peer_rows": 1, **self.limits.get(name, {})}),
                memory_mib=self.memory_mib.get(name),
            )
            for protocol, channels in self._protocols(own):
                protocols.append((_ending_all(protocol, own.peers.values()), channels))
                names.append(name)
        results = dict[str, Any]()
        for name, result in zip(names, run_together(*protocols), strict=True):
            earlier = results.get(name)  # of the coordinator's other conversation
            if not isinstance(earlier, Exception) or (isinstance(earlier, PeerLost) and isinstance(result, Exception)):
                results[name] = result
        return results

    def received(self, name: str) -> list[Any]:
        """All messages that a party was sent in the last attempt."""
        return [message for (_, to), sent in self.sent.items() if to == name for message in sent]

    def filters(self, name: str) -> np.ndarray:
        """The filters of a party's records, in the order of its table."""
        seed = self.partner(A, B).recall("pivot-seed")
        keys = self.align.keys
        return np.concatenate(list(encode(keys, self.align.encoding, {"u": self.keys[name]}, Randomness(seed))))

    def _protocols(self, own: Any) -> list[tuple[Any, Any]]:
        if own.name in self.keys:
            records = OwnRecords(Identifiers.from_items(self.ids[own.name]), b"", {"u": self.keys[own.name]})
            return [(align(_over_lists(own), records), own.peers.values())]
        own.attempt.folder.mkdir(parents=True, exist_ok=True)
        linker = coordination_of(self.align.spec, own)

        async def serve(channel: Channel) -> Any:
            await linker.serve(channel)
            return linker.disclosures()

        return [(serve(channel), [channel]) for channel in own.peers.values()]


async def _ending_all(protocol: Any, channels: Any) -> Any:
    try:
        return await protocol
    except BaseException:
        for channel in channels:
            channel.close()
        raise


def pairs(world: World, results: Mapping[str, Any]) -> dict[tuple[bytes, bytes], float]:
    """(identifier of A, identifier of B) → similarity, of all candidates."""
    active, passive = results[A], results[B]
    assert isinstance(active, Alignment), active
    assert isinstance(passive, Alignment), passive
    found = {}
    for row, candidates, similarities in zip(active.rows, passive.rows, active.similarities, strict=True):
        for candidate, similarity in zip(candidates, similarities, strict=True):
            if candidate >= 0:
                found[world.ids[A][row], world.ids[B][candidate]] = float(similarity)
            else:
                assert similarity == 0
    return found


def _over_lists(own: Session) -> Session:
    """The session whose columns lie in a folder of their own."""
    return dataclasses.replace(own, attempt=dataclasses.replace(own.attempt, folder=own.attempt.folder / "lists"))
