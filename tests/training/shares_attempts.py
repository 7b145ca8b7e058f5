"""What tests of all trainings in shares have in common: tables of parties, attempts in memory, and what goes wrong in them."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from google.protobuf.message import Message
from numpy.typing import NDArray
from typing_extensions import Self

from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares import kits
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.data.evidence import KeptEvidence
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PeerLost
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session import share_wire as wire
from vfl_node.session.memory import MemoryOfOneRun, PeerMemory
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.session import Session
from vfl_node.settings.limits import Limits
from vfl_node.training.checkpoints import Checkpoints, MemoryCheckpoints
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.trainer import Coordination, Trained, Trainer, TrainingData
from vfl_node.transport.generated.vfl.v1.shares_pb2 import MaskedShares
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

NAMES = ("clinic", "lab", "insurer", "registry")
HUB = "hub"
LEAST_ROWS = 5


@dataclass(frozen=True, eq=False)
class World:
    """What the parties own.

    Attributes:
        align: the job's section.
        data: party → its table and its view, in the order of the job; the first has the labels.
        both: bool[m], which shared rows all own.
    """

    align: dict[str, Any]
    data: dict[str, tuple[Table, Alignment]]
    both: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.both)

    def changed(self, party: str) -> World:
        """The same with one cell of one of a party's shared records changed."""
        table, view = self.data[party]
        name, column = next(iter(table.columns.items()))
        values = column.values.copy()  # type: ignore[union-attr]
        values[view.rows[view.owned][0]] += 0.25
        columns = {**table.columns, name: NumericColumn(values)}
        return replace(self, data={**self.data, party: (replace(table, columns=columns), view)})


def world(
    parties: int = 2,
    protocol: str = "psu",
    *,
    people: int = 120,
    share: float = 0.7,
    dummies: int = 0,
    classes: int = 2,
    numbers: bool = False,
    disjoint: bool = False,
    seed: int = 0,
) -> World:
    """People of whom each party owns some; labels need all parties' columns. All shapes are the same for every ``seed``.

    Args:
        parties: how many have data.
        protocol: psu, psi or apsi.
        people: how many there are.
        share: which part of them each party owns; under apsi the passive party owns all.
        dummies: rows of a union that nobody owns.
        classes: of labels.
        numbers: whether labels are numbers, far from 0 and with a large unit.
        disjoint: whether no record is owned by all.
        seed: of values, of who owns what, and of orders.
    """
    rng = np.random.default_rng([seed, 99])
    owned = np.zeros((parties, people), np.bool_)
    shared = 0 if disjoint else round(people * share**parties)
    size = round(people * share) if not disjoint else people // parties
    rest = np.arange(shared, people)
    for place in range(parties):
        owned[place, :shared] = True
        turn = np.roll(rest, -place * (len(rest) // parties))
        owned[place, turn[: size - shared]] = True
    if protocol == "apsi":
        owned[1] = ~owned[0] if disjoint else True
    owned = owned[:, rng.permutation(people)]
    index = {"psu": owned.any(axis=0), "psi": owned.all(axis=0), "apsi": owned[-1]}[protocol]
    order = rng.permutation(np.append(np.flatnonzero(index), np.arange(people, people + dummies)))
    columns = [rng.normal(size=(people, 3 + place)) for place in range(parties)]
    scores = sum(of @ rng.normal(size=(of.shape[1], classes)) for of in columns)
    if numbers:
        label = 250.0 + 40.0 * (scores[:, 0] + 0.5 * rng.normal(size=people))
    else:
        label = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.float32)
    named = [{f"{name}-{number}": of for number, of in enumerate(each.T)} for name, each in zip(NAMES, columns, strict=False)]
    return lay_out(protocol, owned, order, named, label, rng, dummies=dummies)


def lay_out(
    protocol: str,
    owned: NDArray[np.bool_],
    order: NDArray[np.int64],
    columns: Sequence[Mapping[str, NDArray[np.float64]]],
    label: NDArray[Any],
    rng: np.random.Generator,
    *,
    dummies: int = 0,
) -> World:
    """People as the tables of the parties that own them, each in an order of its own.

    Args:
        protocol: psu, psi or apsi.
        owned: bool[parties, people].
        order: people of the shared order; from ``people`` on nobody's.
        columns: of each party, over all people.
        label: over all people.
        rng: of the parties' own orders.
        dummies: rows that nobody owns.
    """
    parties, people = owned.shape
    index = {"psu": owned.any(axis=0), "psi": owned.all(axis=0), "apsi": owned[-1]}[protocol]
    both = np.append(owned.all(axis=0), np.zeros(dummies, np.bool_))[order]
    data = {}
    for place, name in enumerate(NAMES[:parties]):
        told = place == 0 or protocol == "psi" or (protocol == "psu" and parties == 2)
        known = int(owned.all(axis=0).sum()) if told and not dummies else None
        own = rng.permutation(np.flatnonzero(owned[place]))
        where = np.full(people + dummies, NOT_MINE)
        where[own] = np.arange(len(own))
        named = {title: NumericColumn(of[own]) for title, of in columns[place].items()}
        table = Table(Identifiers.from_items(str(person).encode() for person in own), named, label[own] if place == 0 else None)
        facts = {
            other: PeerFacts(int(owned[at].sum()), intersection=known, missing=0 if protocol == "psi" else None)
            for at, other in enumerate(NAMES[:parties])
            if other != name
        }
        data[name] = table, Alignment(ALIGNMENTS[protocol], "curve25519", where[order], len(own), facts, common=known)
    align: dict[str, Any] = {"protocol": protocol}
    if protocol == "apsi":
        align["obfuscation"] = {"size": int(index.sum())}
    return World(align | ({"dummies": dummies} if dummies else {}), data, both)


class Sent(NamedTuple):
    """One message on its way."""

    sender: str
    receiver: str
    message: Message


@dataclass
class State:
    """What the parties keep from one attempt to the next."""

    checkpoints: dict[str, Checkpoints] = field(default_factory=lambda: defaultdict(MemoryCheckpoints))
    pins: dict[str, Pins] = field(default_factory=lambda: defaultdict(MemoryPins))
    memories: dict[tuple[str, str], PeerMemory] = field(
        default_factory=lambda: defaultdict(lambda: MemoryOfOneRun(Randomness(bytes(32))))
    )
    folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    def folder_of(self, name: str) -> Path:
        """A party's own."""
        path = Path(self.folder.name) / name
        path.mkdir(exist_ok=True)
        return path

    def memories_of(self, name: str, others: Sequence[str]) -> dict[str, PeerMemory]:
        """What a party remembers of each of the others."""
        return {other: self.memories[name, other] for other in others}

    def newest(self, *names: str) -> str | None:
        """The newest checkpoint that all of these hold."""
        return max(set.intersection(*(set(self.checkpoints[name].names()) for name in names)), default=None)


@dataclass
class SharesAttempt:
    """One attempt of all parties in memory; what may be varied, with small defaults.

    Attributes:
        trainer: what is run.
        small: the job's ``train`` section but for what is varied.
    """

    trainer: ClassVar[type[Trainer]]
    small: ClassVar[dict[str, Any]]

    train: dict[str, Any] = field(default_factory=dict)
    evaluate: dict[str, Any] = field(default_factory=lambda: {"test_fraction": 0.25})
    number: int = 1
    state: State = field(default_factory=State)
    resume_from: str | None = None
    secret: str = ""
    """Of all parties; another one gives other draws."""
    limits: Limits = field(default_factory=lambda: Limits(least_rows=LEAST_ROWS))
    memory_mib: int | None = None
    split: bytes | None = None
    """By which an earlier job held out rows."""
    evidence: Mapping[str, KeptEvidence] = field(default_factory=dict)
    """Of each party, counted by an earlier job."""
    tamper: Callable[[Sent], None] = lambda sent: None
    """May change a message on its way out, or raise."""

    def __post_init__(self) -> None:
        self._recorder = Recorder(edit=lambda *sent: self.tamper(Sent(*sent)))
        self.coordination: Coordination | None = None

    @property
    def transcript(self) -> list[Sent]:
        """What all parties send, in order."""
        return [Sent(entry.sender, entry.receiver, entry.message) for entry in self._recorder.entries]

    def between(self, sender: str, receiver: str) -> list[bytes]:
        """The frames that one sent the other, in order."""
        found = [of for of in self._recorder.entries if (of.sender, of.receiver) == (sender, receiver)]
        return [of.frame.SerializeToString(deterministic=True) for of in found]

    def sent(self, kind: type[Any], sender: str | None = None, receiver: str | None = None) -> list[Any]:
        """The messages of one type."""
        return list(self._recorder.messages(kind, sender=sender, receiver=receiver))

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator deals the randomness."""
        return {**self.small, **self.train}.get("randomness") != "parties"

    def job(self, over: World) -> Job:
        """The whole job, as a user would submit it."""
        active, *passive = over.data
        return Job.model_validate(
            {
                "name": "shares",
                "parties": {"active": active, "passive": passive, **({"coordinator": HUB} if self.coordinated else {})},
                "align": over.align,
                "train": {**self.small, **self.train},
                "evaluate": self.evaluate,
            }
        )

    def randomness(self, name: str) -> Randomness:
        """A party's."""
        return Randomness(f"{name}'s secret {self.secret}".encode().ljust(32))

    def raw(self, over: World) -> list[Any]:
        """Results or exceptions: of each data party, and of the coordinator with each of them."""
        job = self.job(over)
        network = memory_network(*job.parties.all)
        sessions: dict[str, Session] = {}
        for name in job.parties.all:
            channels = {peer: self._recorder.wrap(name, network[name][peer]) for peer in job.parties.peers_of(name)}
            ticks = count()
            sessions[name] = session(
                name,
                channels,
                self.randomness(name),
                job=job,
                attempt=self.number,
                pins=self.state.pins[name],
                memories=self.state.memories_of(name, [other for other in job.parties.data if other != name]),
                folder=self.state.folder_of(name),
                limits=self.limits,
                memory_mib=self.memory_mib,
                split=self.split,
                evidence=self.evidence.get(name),
                clock=lambda ticks=ticks: float(next(ticks)),
            )
        protocols: list[tuple[Any, list[Any]]] = []
        for name, (table, view) in over.data.items():
            run = self.trainer().run(sessions[name], TrainingData(view, table), self.state.checkpoints[name], self.resume_from)
            protocols.append((run, list(sessions[name].peers.values())))
        if self.coordinated:
            self.coordination = self.trainer().coordination(sessions[HUB])
            ends = sessions[HUB].peers.values()
            protocols += [(ending_all(self.coordination.serve(channel), ends), [channel]) for channel in ends]
        return run_together(*protocols)

    def __call__(self, over: World) -> tuple[Trained, ...]:
        """Each data party's result.

        Raises:
            Exception: what a party met first; not that another was gone then.
        """
        results = self.raw(over)
        failed = [result for result in results if isinstance(result, Exception)]
        for error in sorted(failed, key=lambda error: isinstance(error, PeerLost)):
            raise error
        return tuple(results[: len(over.data)])

    def again(self, over: World, **changed: Any) -> Self:
        """The next attempt, from the newest checkpoint that all data parties have."""
        settings = {"resume_from": self.state.newest(*over.data), "tamper": lambda sent: None}
        return replace(self, number=self.number + 1, **(settings | changed))


async def ending_all(conversation: Any, channels: Any) -> None:
    """As a node does: where one of its conversations ends badly, all do."""
    try:
        await conversation
    except BaseException:
        for channel in channels:
            channel.close()
        raise


class KilledError(Exception):
    """A party has died."""


def kills(victim: str, at: int) -> Callable[[Any], None]:
    """Kills a party that is about to send its message ``at``."""
    left = at

    def tamper(sent: Any) -> None:
        nonlocal left
        if sent.sender == victim:
            if left <= 0:
                raise KilledError
            left -= 1

    return tamper


def assert_same(results: Any, whole: Any) -> None:
    """All parties have the same model, and report the same."""
    for ours, theirs in zip(results, whole, strict=True):
        assert ours.weights.keys() == theirs.weights.keys()
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
        assert len(ours.epochs) == len(theirs.epochs)
        for name in ("steps", "results", "disclosures", "encoder", "rows", "warnings", "columns"):
            assert getattr(ours, name) == getattr(theirs, name), name


def shares(of: Any, sender: str, receiver: str) -> list[bytes]:
    """The masked shares that one party sent to another, in order."""
    return [each.values for each in of.sent(MaskedShares, sender, receiver)]


Edit = Callable[[Any], None]


def edits(sender: str, kind: type[Any], edit: Edit, at: int = 0) -> Callable[[Any], None]:
    """Changes message ``at`` of one type that a party sends."""
    left = at

    def tamper(sent: Any) -> None:
        nonlocal left
        if sent.sender == sender and isinstance(sent.message, kind):
            if left == 0:
                edit(sent.message)
            left -= 1

    return tamper


def setting(name: str, value: Any) -> Edit:
    """Sets a field."""
    return lambda message: setattr(message, name, value)


def cut(count: int) -> Edit:
    """Takes away bytes of the values, or adds some."""

    def edit(message: Any) -> None:
        message.values = message.values[:-count] if count > 0 else message.values + bytes(-count)

    return edit


def widths(*of: int) -> Edit:
    """Says other numbers of columns."""
    return lambda message: message.widths.__setitem__(slice(None), of)


def first_digest(message: Any) -> None:
    """Says another digest of the active party's."""
    message.digests[0] = bytes(32)


def second_digest(message: Any) -> None:
    """Says another digest of the next party's."""
    message.digests[1] = bytes(32)


def more_digests(message: Any) -> None:
    """Says one digest too many."""
    message.digests.append(bytes(32))


def emptied(message: Any) -> None:
    """Says no values."""
    message.values = b""


def with_values(over: Any, party: str, change: Callable[[np.ndarray], None], **columns: Any) -> Any:
    """A party's first column changed, and some more of them."""
    table, view = over.data[party]
    name, first = next(iter(table.columns.items()))
    values = first.values.copy()
    change(values)
    named = {**table.columns, name: NumericColumn(values), **columns}
    over.data[party] = Table(table.ids, named, table.labels), view
    return over


def zeros(shape: Any, deviation: float, fraction: int) -> Any:
    """As noise, and is none."""
    made = draw_noise(shape, deviation, fraction)
    return replace(made, correlated=lambda values: {"noise": np.zeros(shape, np.uint64)})


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many, and the coordinator has to wait for the parties."""
    monkeypatch.setattr(wire, "CHUNK_BYTES", 1 << 13)
    monkeypatch.setattr(wire, "WINDOW", 1 << 11)
    monkeypatch.setattr(wire, "_REPORTED", 1 << 8)


@pytest.fixture(name="world", scope="session")
def world_fixture() -> Callable[..., World]:
    """Makes tables and views."""
    return world


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of metrics is dealt, and is zero, as all parties know."""
    from_job = MetricNoise.from_job
    monkeypatch.setattr(kits, "draw_noise", zeros)
    monkeypatch.setattr(MetricNoise, "from_job", lambda job: replace(from_job(job), mu=1e6))
