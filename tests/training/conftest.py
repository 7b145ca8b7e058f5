"""A small federation of two tables, and a way to train over it in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.sessions import session
from tests.training import several
from tests.training.predicting import world_fixture as world_fixture
from tests.training.several import SeveralParties, SeveralRuns, several_parties
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.settings.protection import Compare, Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

CLINIC, LAB = b"clinic's private randomness, 32b", b"the lab's private randomness, 32"

SMALL = Train(bottom=(16, 8), active_bottom=(8,), top=(8,), epochs=3, batch_size=64, learning_rate=1e-2)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def table(columns: Mapping[str, NDArray[Any]], rows: NDArray[np.int64], labels: NDArray[Any] | None = None) -> Table:
    """The records ``rows`` of ``columns`` (text: categorical); a record's number is its id."""

    def column(values: NDArray[Any]) -> NumericColumn | CategoricalColumn:
        if values.dtype.kind == "f":
            return NumericColumn(values[rows])
        levels, codes = np.unique(values, return_inverse=True)
        return CategoricalColumn(codes[rows].astype(np.int64), tuple(levels))

    return Table(
        Identifiers.from_items(str(row).encode() for row in rows),
        {name: column(values) for name, values in columns.items()},
        None if labels is None else labels[rows].astype(np.float32),
    )


@dataclass(frozen=True)
class Federation:
    """Two parties' tables and their views of the shared rows; ``people`` numbers the record at each shared position."""

    clinic: Table
    lab: Table
    clinic_view: Alignment
    lab_view: Alignment
    people: NDArray[np.int64]


def federation(
    clinic: Mapping[str, NDArray[Any]],
    lab: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    clinic_owns: NDArray[np.bool_],
    lab_owns: NDArray[np.bool_],
    *,
    seed: int = 0,
) -> Federation:
    """The union of two parties' records in a random order, as PSU leaves it."""
    rng = np.random.default_rng(seed)
    union = rng.permutation(np.flatnonzero(clinic_owns | lab_owns))
    both = int((clinic_owns & lab_owns).sum())

    def party(owns: NDArray[np.bool_], others: NDArray[np.bool_], peer: str) -> tuple[NDArray[np.int64], Alignment]:
        own = rng.permutation(np.flatnonzero(owns))
        place = np.full(len(owns), NOT_MINE)
        place[own] = np.arange(len(own))
        facts = PeerFacts(int(others.sum()), intersection=both, missing=len(own) - both)
        view = Alignment(ALIGNMENTS["psu"], "curve25519", place[union], len(own), {peer: facts}, union=len(union))
        return own, view

    clinic_rows, clinic_view = party(clinic_owns, lab_owns, "lab")
    lab_rows, lab_view = party(lab_owns, clinic_owns, "clinic")
    return Federation(table(clinic, clinic_rows, labels), table(lab, lab_rows), clinic_view, lab_view, union)


def synthetic(
    people: int = 400,
    owned: tuple[float, float] = (0.8, 0.8),
    *,
    active_features: bool = True,
    positives: float = 0.3,
    independent: bool = False,
    numeric: int = 4,
    seed: int = 0,
) -> Federation:
    """Records with numeric and categorical columns at both parties, and a label that needs both.

    Args:
        people: size of the union, roughly.
        owned: share of the records that each party owns.
        active_features: whether the active party has columns beside the label.
        positives: rate of positives.
        independent: ownership is independent and records owned by neither are kept out
            of the count only; otherwise every record is owned by one party at least.
        numeric: numeric columns at each party.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(people, numeric)), rng.normal(size=(people, numeric))
    kind, colour = rng.integers(0, 3, people), rng.integers(0, 4, people)
    score = 1.2 * x.sum(1) + 1.2 * z.sum(1) + np.array([-1, 0, 1])[kind] + np.array([1, 0, 0, -1])[colour]
    score += rng.logistic(size=people)
    labels = (score > np.quantile(score, 1 - positives)).astype(np.float32)
    clinic_owns, lab_owns = (rng.random(people) < share for share in owned)
    if not independent:
        lab_owns |= ~clinic_owns
    clinic = {f"x{i}": x[:, i] for i in range(numeric)} | {"kind": kind.astype(str)} if active_features else {}
    lab = {f"z{i}": z[:, i] for i in range(numeric)} | {"colour": colour.astype(str)}
    return federation(clinic, lab, labels, clinic_owns, lab_owns, seed=seed)


Results = tuple[Trained, Trained]


@dataclass
class Run:
    """Both parties' training in memory; what may be varied, with small defaults."""

    train: Train = SMALL
    evaluate: Evaluate = field(default_factory=Evaluate)
    clinic_seed: bytes = CLINIC
    lab_seed: bytes = LAB
    remembered: bytes = bytes(32)
    """Of what both keep from job to job."""
    checkpoints: tuple[Any, Any] = field(default_factory=lambda: (MemoryCheckpoints(), MemoryCheckpoints()))
    pins: tuple[Pins, Pins] = field(default_factory=lambda: (MemoryPins(), MemoryPins()))
    resume_from: str | None = None
    protections: tuple[Protection, Protection] = field(default_factory=lambda: (several.USUAL, several.USUAL))
    models: tuple[Mapping[str, str], Mapping[str, str]] = field(default_factory=lambda: ({}, {}))
    compare: Compare = field(default_factory=lambda: Compare(boosted_tree=False))
    tamper: Callable[[Message], None] = lambda message: None
    """May change a message on its way out."""

    def __post_init__(self) -> None:
        self._recorder = Recorder(edit=lambda sender, receiver, message: self.tamper(message))

    @property
    def transcript(self) -> list[Message]:
        """What both parties send, in order."""
        return [entry.message for entry in self._recorder.entries]

    def raw(self, parties: Federation) -> list[Any]:
        """The two results or exceptions, active party first."""
        a, b = map(self._recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        sides = (
            ("clinic", a, parties.clinic_view, parties.clinic, self.clinic_seed),
            ("lab", b, parties.lab_view, parties.lab, self.lab_seed),
        )
        return run_together(
            *(
                (
                    SplitTrainer().run(
                        self.session(name, channel, seed, number),
                        TrainingData(view, own),
                        self.checkpoints[number],
                        self.resume_from,
                    ),
                    channel,
                )
                for number, (name, channel, view, own, seed) in enumerate(sides)
            )
        )

    def __call__(self, parties: Federation) -> Results:
        """Both results.

        Raises:
            Exception: the first party's that failed.
        """
        results = self.raw(parties)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results[0], results[1]

    def session(self, name: str, channel: Channel, seed: bytes, number: int) -> Session:
        """A party's session; its clock ticks once a reading."""
        ticks = count()
        return session(
            name,
            {channel.peer: channel},
            Randomness(seed),
            train=self.train,
            evaluate=self.evaluate,
            pins=self.pins[number],
            clock=lambda: float(next(ticks)),
            protection=self.protections[number],
            models=self.models[number],
            compare=self.compare,
            memories={channel.peer: MemoryOfOneRun(Randomness(self.remembered).derive(name))},
        )

    def schedule(self, parties: Federation) -> Schedule:
        """The schedule that both parties follow."""
        a, b = memory_channels("clinic", "lab")
        sessions = [session(name, {end.peer: end}, Randomness(bytes(32))) for name, end in (("clinic", a), ("lab", b))]
        seeds = (Randomness(seed).derive("toss") for seed in (self.clinic_seed, self.lab_seed))
        seed, _ = run_together(*((toss(of, own), end) for of, own, end in zip(sessions, seeds, (a, b), strict=True)))
        return Schedule(seed, len(parties.people), self.train.seed)


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties attack what they send, as nodes do by default."""
    monkeypatch.setattr(several, "USUAL", Protection())


@pytest.fixture(name="federation")
def federation_fixture() -> Callable[..., Federation]:
    """Makes a federation of given tables."""
    return federation


@pytest.fixture(name="synthetic")
def synthetic_fixture() -> Callable[..., Federation]:
    """Makes a synthetic federation."""
    return synthetic


@pytest.fixture(name="run")
def run_fixture() -> type[Run]:
    """Trains over a federation."""
    return Run


@pytest.fixture(name="several_parties")
def several_parties_fixture() -> Callable[..., SeveralParties]:
    """Makes a synthetic federation with several passive parties."""
    return several_parties


@pytest.fixture(name="several_runs")
def several_runs_fixture() -> type[SeveralRuns]:
    """Trains over a federation with several passive parties."""
    return SeveralRuns
