"""Tables of parties around a shared order, and training in shares over them in memory."""

from __future__ import annotations

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.sessions import session
from tests.training.hidden.plain import Step, descend
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.audit import Coins
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, decode
from vfl_node.data.design import LinearEncoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PeerLost
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun, PeerMemory
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.session import Session
from vfl_node.settings.limits import Limits
from vfl_node.training.checkpoints import Checkpoints, MemoryCheckpoints
from vfl_node.training.glm.plain import one_hot
from vfl_node.training.hidden import network
from vfl_node.training.hidden.computation import HiddenPlan, block, candidates
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.frequent import find
from vfl_node.training.hidden.inputs import first_parts
from vfl_node.training.hidden.rows import FAR, RowEncoder
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.hidden.trainer import HiddenTrainer
from vfl_node.training.own_columns import make_robust
from vfl_node.training.shares import measuring
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import Coordination, Trained, TrainingData
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

NAMES = ("clinic", "lab", "insurer")
HUB = "hub"
LEAST_ROWS = 5
CLIP = 5.0
SMALL = {"epsilon": None, "epochs": 3, "batch_size": 24, "learning_rate": 0.5, "momentum": 0.9, "reveal": "owners"}
NOISED = {
    **{"epsilon": 1.0, "epochs": None, "batch_size": None, "learning_rate": None, "momentum": None, "metrics_by": "none"},
}


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
    both = np.append(owned.all(axis=0), np.zeros(dummies, np.bool_))[order]
    data = {}
    for place, name in enumerate(NAMES[:parties]):
        told = place == 0 or protocol == "psi" or (protocol == "psu" and parties == 2)
        known = int(owned.all(axis=0).sum()) if told and not dummies else None
        own = rng.permutation(np.flatnonzero(owned[place]))
        where = np.full(people + dummies, NOT_MINE)
        where[own] = np.arange(len(own))
        named = {f"{name}-{number}": NumericColumn(of[own]) for number, of in enumerate(columns[place].T)}
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
class Attempt:
    """One attempt of all parties in memory; what may be varied, with small defaults."""

    train: dict[str, Any] = field(default_factory=dict)
    evaluate: dict[str, Any] = field(default_factory=lambda: {"test_fraction": 0.25})
    number: int = 1
    state: State = field(default_factory=State)
    resume_from: str | None = None
    secret: str = ""
    """Of all parties; another one gives other draws."""
    limits: Limits = field(default_factory=lambda: Limits(least_rows=LEAST_ROWS))
    memory_mib: int | None = None
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

    def job(self, over: World) -> Job:
        """The whole job, as a user would submit it."""
        active, *passive = over.data
        return Job.model_validate(
            {
                "name": "hidden",
                "parties": {"active": active, "passive": passive, "coordinator": HUB},
                "align": over.align,
                "train": {"algorithm": "hidden", **SMALL, **self.train},
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
                clock=lambda ticks=ticks: float(next(ticks)),
            )
        protocols: list[tuple[Any, list[Any]]] = []
        for name, (table, view) in over.data.items():
            run = HiddenTrainer().run(sessions[name], TrainingData(view, table), self.state.checkpoints[name], self.resume_from)
            protocols.append((run, list(sessions[name].peers.values())))
        self.coordination = HiddenTrainer().coordination(sessions[HUB])
        ends = sessions[HUB].peers.values()
        protocols += [(_ending_all(self.coordination.serve(channel), ends), [channel]) for channel in ends]
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

    def again(self, over: World, **changed: Any) -> Attempt:
        """The next attempt, from the newest checkpoint that all data parties have."""
        settings = {"resume_from": self.state.newest(*over.data), "tamper": lambda sent: None}
        return replace(self, number=self.number + 1, **(settings | changed))

    def plan(self, over: World) -> HiddenPlan:
        """Of the training that was run."""
        return HiddenProgram(self.job(over)).plan(self.sent(DealingTerms)[0])

    def start(self, over: World) -> list[NDArray[np.float64]]:
        """First weights: the sum of what all parties draw."""
        form = self.plan(over).form
        bounded = Hidden.section_of(self.job(over)).epsilon is not None
        starts = (self.randomness(name).derive("first weights") for name in over.data)
        parts = [first_parts(form, start, bounded=bounded).weights for start in starts]
        return [decode(sum(of[1:], of[0]), WEIGHT_FRACTION) for of in zip(*parts, strict=True)]

    def coins(self, over: World) -> Coins | None:
        """Which of what the coordinator deals two parties check."""
        share = Hidden.section_of(self.job(over)).dealer_audit
        drawn = [self.randomness(name).derive("toss of the audit").bytes(32) for name in over.data]
        seed = hashlib.sha256(b"vfl-node toss seed" + b"".join(drawn)).digest()
        return Coins(seed, share, candidates(audits=True)) if share else None

    def reference(self, over: World, **how: Any) -> list[NDArray[np.float64]]:
        """Weights of plaintext training on the rows that all own, with the same start, batches and divisor."""
        plan, train = self.plan(over), Hidden.section_of(self.job(over))
        x, y = plain_inputs(over, train, plan, self.limits.least_rows)
        coins = self.coins(over)
        own = [
            batch[over.both[batch]]
            for epoch in range(plan.epochs)
            for number, batch in enumerate(plan.batches(epoch))
            if not (coins and coins.shows(block(epoch, number)))
        ]
        first = self.start(over)
        of = plan.descent
        step = Step(of.rate / plan.divisor, of.momentum, of.rate * train.weight_decay)
        return descend(plan.form, first, x, y, own, step, **how)


async def _ending_all(conversation: Any, channels: Any) -> None:
    """As a node does: where one of its conversations ends badly, all do."""
    try:
        await conversation
    except BaseException:
        for channel in channels:
            channel.close()
        raise


def plain_rows(table: Table, train: Hidden, least: int) -> NDArray[np.float64]:
    """A party's columns: as they are trained on if they are bounded, else of an encoder of its own."""
    if train.epsilon is None:
        return LinearEncoder.fit(make_robust(table, train.scaling), train.scaling).transform(table).values.clip(-FAR, FAR)
    found = find(table, least)
    features = [feature for of in found.entering.values() for feature in of]
    bins = train.columns == "bins"
    return RowEncoder.fit(table, features, found, train.scaling, bins=bins, bounded=True).transform(table)


def plain_inputs(
    over: World, train: Hidden, plan: HiddenPlan, least: int = LEAST_ROWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All parties' columns side by side, and targets, of all shared rows; NaN where a row is not owned by all."""
    parts, targets = [], np.full((len(over), train.outputs), np.nan)
    for place, (table, view) in enumerate(over.data.values()):
        design = plain_rows(table, train, least)
        values = np.full((len(over), design.shape[1] + (place == 0)), np.nan)
        values[view.owned, : design.shape[1]] = design[view.rows[view.owned]]
        if place == 0:
            values[view.owned, -1] = 1 if train.epsilon is None else 0.5
            labels = table.labels
            assert labels is not None
            if train.task == "classification":
                said = one_hot(labels, train.classes)
            else:
                said = TargetScale.fit(labels).apply(labels)[:, None]
            targets[view.owned] = said[view.rows[view.owned]]
        parts.append(values)
    return np.hstack(parts), targets


def weights_of(results: Sequence[Trained]) -> list[NDArray[np.float64]]:
    """What the owners got, in the order of the form."""
    active, *passive = (of.weights for of in results)
    bias = active["bias"].numpy()[None] / RowEncoder.from_json(results[0].encoder).intercept
    first = np.concatenate([active["weight"].numpy().T, bias])
    layers = [active[f"layer {index}"].numpy() for index in range(sum(name.startswith("layer") for name in active))]
    return [first, *(of["weight"].numpy().T for of in passive), *layers]


@pytest.fixture(name="world", scope="session")
def world_fixture() -> Callable[..., World]:
    """Makes tables and views."""
    return world


@pytest.fixture(name="attempt", scope="session")
def attempt_fixture() -> type[Attempt]:
    """Trains over them."""
    return Attempt


def zeros(shape: Any, deviation: float, fraction: int) -> Any:
    """As noise, and is none."""
    made = draw_noise(shape, deviation, fraction)
    return replace(made, correlated=lambda values: {"noise": np.zeros(shape, np.uint64)})


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of gradients is dealt, and is zero."""
    monkeypatch.setattr(network, "draw_noise", zeros)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of metrics is dealt, and is zero, as all parties know."""
    from_job = MetricNoise.from_job
    monkeypatch.setattr(measuring, "draw_noise", zeros)
    monkeypatch.setattr(MetricNoise, "from_job", lambda job: replace(from_job(job), mu=1e6))
