"""A clinic's and a lab's tables around an obfuscated set, and regressions over them in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.keys import PrivateKey
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import LinearEncoder
from vfl_node.data.evidence import KeptEvidence
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.engines.contract import Engine, Inline
from vfl_node.errors import PeerLost
from vfl_node.job import Evaluate, Parties
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.progress import Silent
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import Checkpoints, MemoryCheckpoints
from vfl_node.training.glm import plain
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.coordinator import coordinate
from vfl_node.training.glm.decryption_log import DecryptionLog, MemoryDecryptionLog
from vfl_node.training.glm.regression import regress
from vfl_node.training.glm.side import Side
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.schedule import Schedule
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

CLINIC, LAB = b"clinic's private randomness, 32b", b"the lab's private randomness, 32"
HUB = keys.generate(512, Randomness(b"h" * 32))
"""A coordinator's key of a size that protects nothing: the arithmetic is the same, and thirty times quicker."""

NO_TEST = Evaluate(test_fraction=0)


def logistic(**given: Any) -> Logistic:
    """A job's section as a job would hold it, with a small key and few iterations."""
    settings = {"iterations": 3, "least_rows": 0, **given}
    return Logistic(algorithm="logistic", **settings).model_copy(update={"key_bits": 512})


@dataclass(frozen=True, eq=False)
class Shared:
    """Two parties' tables and their views of m shared rows.

    Attributes:
        clinic: the active party's records: the genuine ones, and ten that the lab has not.
        lab: the passive party's records.
        clinic_view: who is genuine.
        lab_view: all rows are the lab's.
        labels: float32[m], the dummies' too, wherever the job has them.
    """

    clinic: Table
    lab: Table
    clinic_view: Alignment
    lab_view: Alignment
    labels: NDArray[np.float32]

    @property
    def data(self) -> dict[str, tuple[Table, Alignment]]:
        """Each party's table and view, in the order of the job's parties."""
        return {"clinic": (self.clinic, self.clinic_view), "lab": (self.lab, self.lab_view)}

    @property
    def genuine(self) -> NDArray[np.bool_]:
        return self.clinic_view.owned

    def __len__(self) -> int:
        return len(self.labels)


def shared(
    rows: int = 40,
    genuine: int = 20,
    *,
    population: int = 60,
    clinic: int = 2,
    lab: int = 3,
    classes: int = 2,
    labels: str = "active",
    protocol: str = "apsi",
    columns: Sequence[NDArray[np.float64]] = (),
    seed: int = 0,
) -> Shared:
    """Records with normal columns at both parties, and a label that needs both.

    The same people are genuine, in the same order, whatever ``rows`` is.

    Args:
        rows: m.
        genuine: |I|.
        population: the lab's records.
        clinic: columns of the clinic.
        lab: columns of the lab.
        classes: of the label.
        labels: role of the party that has the label.
        protocol: of the alignment.
        columns: further columns of the lab, float64[population].
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    people = population + 10  # the last ten are the clinic's alone
    x, z = rng.normal(size=(people, clinic)), rng.normal(size=(population, lab))
    scores = x[:population] @ rng.normal(size=(clinic, classes)) + z @ rng.normal(size=(lab, classes))
    label = np.append((scores + rng.gumbel(size=scores.shape)).argmax(axis=1), rng.integers(0, classes, 10)).astype(np.float32)
    chosen = rng.permutation(population)
    index = np.sort(chosen[:rows])
    index = index[np.argsort(rng.permutation(population)[index])]
    clinic_rows = rng.permutation(np.append(chosen[:genuine], np.arange(population, people)))
    lab_rows = rng.permutation(population)

    def table(own: NDArray[np.int64], named: dict[str, NDArray[np.float64]], *, labelled: bool) -> Table:
        ids = Identifiers.from_items(str(person).encode() for person in own)
        return Table(ids, {k: NumericColumn(v[own]) for k, v in named.items()}, label[own] if labelled else None)

    def view(own: NDArray[np.int64], others: int, peer: str) -> Alignment:
        place = np.full(people, NOT_MINE)
        place[own] = np.arange(len(own))
        known = genuine if len(own) < population or protocol == "psi" else None
        facts = PeerFacts(others, intersection=known, missing=None if known is None else 0)
        return Alignment(ALIGNMENTS[protocol], "curve25519", place[index], len(own), {peer: facts})

    return Shared(
        table(clinic_rows, {f"x{k}": x[:, k] for k in range(clinic)}, labelled=labels == "active"),
        table(
            lab_rows,
            {f"z{k}": z[:, k] for k in range(lab)} | {f"more{k}": column for k, column in enumerate(columns)},
            labelled=labels == "passive",
        ),
        view(clinic_rows, population, "lab"),
        view(lab_rows, len(clinic_rows), "clinic"),
        label[index],
    )


class Sent(NamedTuple):
    """One message on its way."""

    sender: str
    receiver: str
    message: Message


class Column(NamedTuple):
    """Rows that followed the message that announced them."""

    sender: str
    receiver: str
    head: Message
    rows: NDArray[np.uint8]


@dataclass
class State:
    """What the parties keep from one attempt to the next."""

    checkpoints: dict[str, Checkpoints] = field(default_factory=lambda: defaultdict(MemoryCheckpoints))
    pins: dict[str, Pins] = field(default_factory=lambda: defaultdict(MemoryPins))
    logs: dict[str, DecryptionLog] = field(default_factory=lambda: defaultdict(MemoryDecryptionLog))
    """Sender → what its decryptor has counted."""

    def newest(self) -> str | None:
        """The newest checkpoint that all data parties hold."""
        return max(set.intersection(*(set(of.names()) for of in self.checkpoints.values())), default=None)


@dataclass
class Attempt:
    """One attempt of all parties in memory; what may be varied, with small defaults."""

    train: GeneralisedLinear = field(default_factory=logistic)
    evaluate: Evaluate = NO_TEST
    number: int = 1
    state: State = field(default_factory=State)
    resume_from: str | None = None
    passive: tuple[str, ...] = ("lab",)
    seeds: tuple[bytes, ...] = (CLINIC, LAB)
    """Of each data party, in the order of the job."""
    workers: Engine = field(default_factory=Inline)
    hub: tuple[PrivateKey, ...] = (HUB, HUB)
    """The key the coordinator gives to each data party."""
    tamper: Callable[[Sent], None] = lambda sent: None
    """May change a message on its way out, or raise."""
    evidence: Mapping[str, KeptEvidence] = field(default_factory=dict)
    """Party → weights of evidence that it has kept."""

    def __post_init__(self) -> None:
        self._recorder = Recorder(edit=lambda *sent: self.tamper(Sent(*sent)))

    @property
    def transcript(self) -> list[Sent]:
        """What all parties send, in order."""
        return [Sent(entry.sender, entry.receiver, entry.message) for entry in self._recorder.entries]

    @property
    def parties(self) -> Parties:
        return Parties(active="clinic", passive=self.passive, coordinator="hub" if self.train.flow != "two-party" else None)

    def raw(self, over: Shared) -> list[Any]:
        """Results or exceptions: of each data party, and of the coordinator with each of them."""
        names = self.parties.all
        network = memory_network(*names)
        for name in names:
            network[name] = {peer: self._recorder.wrap(name, network[name][peer]) for peer in self.parties.peers_of(name)}
        protocols: list[tuple[Any, list[Channel]]] = []
        for (name, (table, view)), seed in zip(over.data.items(), self.seeds, strict=True):
            ticks = count()
            own = session(
                name,
                network[name],
                Randomness(seed),
                train=self.train,
                evaluate=self.evaluate,
                parties=self.parties,
                attempt=self.number,
                processes=self.workers,
                pins=self.state.pins[name],
                evidence=self.evidence.get(name),
                clock=lambda ticks=ticks: float(next(ticks)),
            )
            data, checkpoints = TrainingData(view, table), self.state.checkpoints[name]
            protocol = regress(own, data, checkpoints, self.state.logs, resume_from=self.resume_from)
            protocols.append((protocol, list(network[name].values())))
        for name, key in zip(over.data, self.hub, strict=True):
            if channel := network.get("hub", {}).get(name):
                served = coordinate(
                    channel,
                    self.train,
                    self.parties,
                    key,
                    workers=self.workers,
                    log=self.state.logs[name],
                    pins=self.state.pins["hub"],
                    progress=Silent(),
                )
                protocols.append((served, [channel]))
        return run_together(*protocols)

    def __call__(self, over: Shared) -> tuple[Trained, ...]:
        """Each data party's result.

        Raises:
            Exception: what a party met first; not that another was gone then.
        """
        results = self.raw(over)
        failed = [result for result in results if isinstance(result, Exception)]
        for error in sorted(failed, key=lambda error: isinstance(error, PeerLost)):
            raise error
        return tuple(results[: len(over.data)])

    def again(self, **changed: Any) -> Attempt:
        """The next attempt, from the newest checkpoint that both have."""
        settings: dict[str, Any] = {
            "train": self.train,
            "evaluate": self.evaluate,
            "number": self.number + 1,
            "state": self.state,
            "passive": self.passive,
            "seeds": self.seeds,
            "resume_from": self.state.newest(),
            "hub": self.hub,
        }
        return Attempt(**(settings | changed))

    def schedule(self, over: Shared) -> Schedule:
        """The schedule that all data parties follow."""
        parties = self.parties.model_copy(update={"coordinator": None})
        network = memory_network(*parties.all)
        tosses: list[tuple[Any, list[Channel]]] = []
        for name, seed in zip(parties.all, self.seeds, strict=True):
            peers = {peer: network[name][peer] for peer in parties.peers_of(name)}
            of = session(name, peers, Randomness(bytes(32)), parties=parties)
            tosses.append((toss(of, Randomness(seed).derive("toss")), list(peers.values())))
        agreed, *_ = run_together(*tosses)
        return Schedule(agreed, len(over), self.train.seed)

    def reference(self, over: Shared, labels: NDArray[np.float32] | None = None, *, rounded: bool = True) -> plain.Fit:
        """Plaintext regression on the genuine rows alone, from the same start and with the same batches.

        With the columns as they enter a design, or, of numeric ones, as they are before they are ``rounded`` to it.
        """
        train, schedule = self.train, self.schedule(over)
        training, _ = schedule.split(0, self.evaluate.test_fraction)
        own = training[over.genuine[training]]
        batches = [own]
        if train.batch_size and train.batch_size < len(training):
            steps = [divmod(step, len(training) // train.batch_size) for step in range(train.iterations)]
            batches = [schedule.batches(0, epoch, training, train.batch_size)[place] for epoch, place in steps]
        parts, starts = [], []
        for (table, view), seed in zip(over.data.values(), self.seeds, strict=True):
            encoder, randomness = LinearEncoder.fit(table, train.scaling), Randomness(seed)
            design = encoder.transform(table)
            active = view is over.clinic_view
            side = Side(view.rows, design, np.ones(len(design.steps), np.bool_), train, randomness, intercept=active)
            if active:
                side.spread(own, randomness.derive("spread"))
            values = np.full((len(over), len(design.steps)), np.nan)  # whoever used a dummy would see it
            columns = design.values if rounded else scaled(encoder, table)
            values[view.owned] = columns[view.rows[view.owned]]
            parts.append(values)
            starts.append(side.weights)
        loss, labels = plain.LOSSES[train.objective], over.labels if labels is None else labels
        if loss.numbers:
            labels = TargetScale.fit(labels[own if train.labels == "active" else training]).apply(labels)
        return plain.fit(
            parts,
            labels,
            [starts[0][:-1], *starts[1:]],
            loss=loss,
            l2=train.l2,
            learning_rate=train.learning_rate,
            iterations=train.iterations,
            tolerance=train.tolerance,
            batches=[rows[over.genuine[rows]] for rows in batches],
            intercepts=starts[0][-1],
        )

    def columns(self, receiver: str) -> list[Column]:
        """The columns of ciphertexts or plaintexts that ``receiver`` was sent, whole."""
        found: list[Column] = []
        for sender in self.parties.all:
            head, chunks = None, []
            for message in (sent.message for sent in self.transcript if (sent.sender, sent.receiver) == (sender, receiver)):
                if isinstance(message, session_pb2.Rows):
                    width, chunks = message.width, []
                elif isinstance(message, session_pb2.Chunk):
                    chunks.append(np.frombuffer(message.rows, np.uint8).reshape(-1, width))
                elif isinstance(message, session_pb2.RowsEnd):
                    assert head is not None
                    found.append(Column(sender, receiver, head, np.concatenate(chunks)))
                else:
                    head = message
        return found


def scaled(encoder: LinearEncoder, table: Table) -> NDArray[np.float64]:
    """Numeric columns, centred and scaled as ``encoder`` does, and not rounded."""
    return np.stack([(table.columns[of.name].values - of.centre) / of.unit for of in encoder.columns], axis=1)  # type: ignore[union-attr]


def difference(results: Sequence[Trained], fit: plain.Fit) -> float:
    """Largest difference of any weight or intercept."""
    pairs = [(of.weights["weight"], weights.T) for of, weights in zip(results, fit.weights, strict=True)]
    pairs += [(of.weights["bias"], fit.intercepts) for of in results if "bias" in of.weights]
    return max(float(np.abs(ours.numpy() - theirs).max(initial=0)) for ours, theirs in pairs)


@pytest.fixture(name="shared")
def shared_fixture() -> Callable[..., Shared]:
    """Makes two parties' tables and views."""
    return shared


@pytest.fixture(name="logistic")
def logistic_fixture() -> Callable[..., Logistic]:
    """Makes a job's section."""
    return logistic


@pytest.fixture(name="attempt")
def attempt_fixture() -> type[Attempt]:
    """Trains over shared rows."""
    return Attempt


@pytest.fixture(name="difference")
def difference_fixture() -> Callable[..., float]:
    """Compares weights with plaintext's."""
    return difference


@pytest.fixture(name="hub")
def hub_fixture() -> PrivateKey:
    """The coordinator's key."""
    return HUB
