"""A federation of an active party and several passive ones, and a way to train over it in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.job import Align, Evaluate, Parties
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.session import Session
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

ACTIVE = "clinic"
PASSIVE = ("lab", "insurer", "telco", "bank", "shop", "school", "garage", "museum")
"""A federation of k passive parties has the first k of them."""

USUAL = Protection(membership=False, labels=False)
"""What a party's owner wants where a test does not say: no attacks on what it sends, which take half of a small training.

The fixture ``audits`` makes it what nodes do by default.
"""

SMALL = Train(bottom=(8, 4), active_bottom=(4,), top=(8,), epochs=3, batch_size=64, learning_rate=1e-2)


@dataclass(frozen=True)
class SeveralParties:
    """Each party's table and its view of the shared rows; ``people`` numbers the record at each shared position."""

    tables: Mapping[str, Table]
    views: Mapping[str, Alignment]
    people: NDArray[np.int64]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tables)

    @property
    def parties(self) -> Parties:
        return Parties(active=ACTIVE, passive=self.names[1:])


def several_parties(
    passive: int = 2,
    people: int = 400,
    owned: float = 1.0,
    *,
    protocol: str = "psu",
    numeric: int = 3,
    active_columns: bool = True,
    noise: Collection[str] = (),
    seed: int = 0,
) -> SeveralParties:
    """Records with numeric columns at every party, and a label that needs all of them.

    Args:
        passive: number of passive parties, 1 to 8.
        people: size of the union, roughly.
        owned: share of the records that each party owns.
        protocol: ``psu``: the union is shared; ``psi``: the records of all.
        numeric: columns of each party.
        active_columns: whether the active party has columns beside the label.
        noise: parties whose columns say nothing of the label.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    names = (ACTIVE, *PASSIVE[:passive])
    columns = {name: rng.normal(size=(people, numeric)) for name in names}
    score = sum(columns[name].sum(1) for name in names if name not in noise) + rng.logistic(size=people)
    labels = (score > np.quantile(score, 0.6)).astype(np.float32)
    owns = {name: rng.random(people) < owned for name in names}
    everybody = np.logical_and.reduce(list(owns.values()))
    shared = everybody if protocol == "psi" else np.logical_or.reduce(list(owns.values()))
    order = rng.permutation(np.flatnonzero(shared))
    sizes = {name: int(of.sum()) for name, of in owns.items()}
    tables, views = {}, {}
    for name in names:
        rows = rng.permutation(np.flatnonzero(owns[name]))
        place = np.full(people, NOT_MINE)
        place[rows] = np.arange(len(rows))
        numbers = {f"{name}{at}": NumericColumn(columns[name][rows, at]) for at in range(numeric)}
        ids = Identifiers.from_items(str(row).encode() for row in rows)
        labelled = name == ACTIVE
        tables[name] = Table(ids, numbers if active_columns or not labelled else {}, labels[rows] if labelled else None)
        facts = {
            peer: PeerFacts(
                sizes[peer],
                intersection=int((owns[name] & owns[peer]).sum()) if name == ACTIVE else None,
                missing=int((~owns[peer][order]).sum()),
            )
            for peer in names
            if peer != name
        }
        views[name] = Alignment(
            ALIGNMENTS[protocol],
            "curve25519",
            place[order],
            len(rows),
            facts,
            union=len(order) if protocol == "psu" else None,
            common=int(everybody.sum()) if name == ACTIVE or protocol == "psi" else None,
        )
    return SeveralParties(tables, views, order)


@dataclass
class SeveralRuns:
    """All parties' training in memory; what may be varied, with small defaults. Mappings are by a party's name."""

    train: Train = SMALL
    evaluate: Evaluate = field(default_factory=Evaluate)
    seeds: Mapping[str, bytes] = field(default_factory=dict)
    checkpoints: dict[str, Any] = field(default_factory=dict)
    pins: dict[str, Pins] = field(default_factory=dict)
    resume_from: str | None = None
    protections: Mapping[str, Protection] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    tamper: Callable[[str, str, Message], None] = lambda sender, receiver, message: None
    """May change a message of a sender to a receiver on its way out."""

    def __post_init__(self) -> None:
        self.recorder = Recorder(edit=lambda sender, receiver, message: self.tamper(sender, receiver, message))

    def seed(self, name: str) -> bytes:
        return self.seeds.get(name, name.encode().ljust(32, b"."))

    def sessions(self, parties: SeveralParties) -> dict[str, Session]:
        """Of each party, connected in memory; passive parties have no channel to each other. Clocks tick once a reading."""
        network = memory_network(*parties.names)

        def of(name: str) -> Session:
            ticks = count()
            channels: dict[str, Channel] = {
                peer: self.recorder.wrap(name, network[name][peer]) for peer in parties.parties.peers_of(name)
            }
            return session(
                name,
                channels,
                Randomness(self.seed(name)),
                align=Align(protocol=parties.views[name].protocol),
                train=self.train,
                evaluate=self.evaluate,
                parties=parties.parties,
                pins=self.pins.setdefault(name, MemoryPins()),
                clock=lambda: float(next(ticks)),
                protection=self.protections.get(name, USUAL),
                models=self.models,
                memories={peer: MemoryOfOneRun(Randomness(bytes(32))) for peer in parties.parties.others(name)},
            )

        return {name: of(name) for name in parties.names}

    def raw(self, parties: SeveralParties) -> dict[str, Any]:
        """Each party's result or exception."""
        sessions = self.sessions(parties)
        results = run_together(
            *(
                (
                    SplitTrainer().run(
                        own,
                        TrainingData(parties.views[name], parties.tables[name]),
                        self.checkpoints.setdefault(name, MemoryCheckpoints()),
                        self.resume_from,
                    ),
                    own.peers.values(),
                )
                for name, own in sessions.items()
            )
        )
        return dict(zip(sessions, results, strict=True))

    def __call__(self, parties: SeveralParties) -> dict[str, Any]:
        """Each party's result.

        Raises:
            Exception: the first party's that failed.
        """
        results = self.raw(parties)
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        return results
