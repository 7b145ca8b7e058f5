"""A trained federation that is asked for predictions in memory, and who asks it."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.sessions import TWO, session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table, rows_of
from vfl_node.errors import PolicyError, VflError
from vfl_node.job import Align, Evaluate, Job, Parties, Predict, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.progress import Event, PredictionsAudited, Silent
from vfl_node.session.session import Session
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.known_records import predict_known
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.training.predictor import ServiceCount
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder, Scorer, SplitModel
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import prediction_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Entry, Recorder

Make = Callable[..., Any]

CPU = torch.device("cpu")
TRAIN = Train(bottom=(12, 6), active_bottom=(6,), top=(8,), epochs=2, batch_size=64, learning_rate=1e-2)
SERVE = Serve(to="both", batch_size=16)
TO_ACTIVE, TO_PASSIVE = Predict(model="the-job", to="active"), Predict(model="the-job", to="passive")
NEW_TO_ACTIVE, NEW_TO_PASSIVE = (
    Predict(model="the-job", to="active", rows="new"),
    Predict(model="the-job", to="passive", rows="new"),
)


@dataclasses.dataclass
class Request:
    """Rows somebody wants predictions of; keeps what came of it."""

    table: Table
    answered: NDArray[np.float64] | None = None
    failed: VflError | None = None
    over: bool = False

    def place(self, row: int) -> str:
        return f"line {row + 2}"

    def answer(self, probabilities: NDArray[np.float64]) -> None:
        assert self.answered is None
        self.answered = probabilities

    def fail(self, error: VflError) -> None:
        self.failed = error


class Requests:
    """Some requests in turn, or all together, with a moment of none before the first."""

    def __init__(self, *requests: Request, together: bool = False) -> None:
        self.requests, self.bell = list(requests), threading.Event()
        self._waited, self._together = False, together

    @property
    def closed(self) -> bool:
        return self._waited

    def take_all(self) -> list[Request]:
        if not self._waited:
            self._waited = True
            return []
        waiting = [each for each in self.requests if each.answered is None and each.failed is None and not each.over]
        return waiting if self._together else waiting[:1]


class Shown:
    """What the peer was told about, as a file would keep it."""

    def __init__(self, most: int = 10**6) -> None:
        self.most = most
        self.kept: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def rows(self) -> NDArray[np.int64]:
        return self.kept

    def check(self, rows: NDArray[np.int64]) -> None:
        if len(np.union1d(self.kept, rows)) > self.most:
            raise PolicyError("too many", code="E_BUDGET")

    def add(self, rows: NDArray[np.int64]) -> None:
        self.check(rows)
        self.kept = np.union1d(self.kept, rows)


class Tally:
    """What is kept of the numbers, as a file would."""

    def __init__(self) -> None:
        self.kept: ServiceCount | None = None

    def read(self) -> ServiceCount | None:
        return self.kept and dataclasses.replace(self.kept)

    def write(self, served: ServiceCount) -> None:
        self.kept = dataclasses.replace(served)


class Noted(Silent):
    """Keeps the figures of a party's own attacks."""

    def __init__(self) -> None:
        self.attacks: list[Any] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, PredictionsAudited):
            self.attacks.append(event.attacks)


@dataclasses.dataclass
class World:
    """A trained federation and both parties' sides of it."""

    parties: Any
    results: Any
    train: Train
    serve: Serve = SERVE
    progress: list[Any] = dataclasses.field(default_factory=lambda: [Noted(), Noted()])
    models: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._recorder = Recorder()

    @property
    def entries(self) -> list[Entry]:
        """Every message of the last conversation."""
        return self._recorder.entries

    @property
    def heard(self) -> list[tuple[str, bytes]]:
        """(type, serialised body) of every message of the last conversation."""
        return [(entry.kind, entry.frame.body) for entry in self.entries]

    def kept(self, index: int, *, draws: bytes | None = None) -> SplitModel:
        """What a party kept; ``draws``: with another seed of synthetic rows than that of training."""
        of = self.results[index]
        state = of.servable.state if draws is None else json.dumps({**json.loads(of.servable.state), "draws": draws.hex()})
        return SplitModel(self.train, self.serve, of.weights, of.encoder, state, self.models)

    @property
    def sides(self) -> tuple[Scorer, Embedder]:
        parties = self.parties
        return (
            Scorer(self.kept(0), parties.clinic_view, parties.clinic, CPU),
            Embedder(self.kept(1), parties.lab_view, parties.lab, CPU),
        )

    def known(self, table: Table, rows: Sequence[int] | NDArray[np.int64]) -> Request:
        """A request for some of a party's own records, by their ids alone."""
        return Request(Table(Identifiers.from_items(table.ids.take(np.asarray(rows))), {}))

    def talk(
        self,
        predict: Predict,
        requests: Any,
        *,
        sides: tuple[Scorer, Embedder] | None = None,
        tamper: Callable[[Any], None] = lambda message: None,
        tallies: tuple[Any, Any] = (None, None),
        shown: tuple[Any, Any] | None = None,
        protection: Protection | None = None,
    ) -> list[Any]:
        """Both parties' results or errors of one service."""
        scorer, embedder = sides or self.sides
        self._recorder = Recorder(edit=lambda sender, receiver, message: tamper(message))
        a, b = map(self._recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        asking = (requests, None) if predict.to == "active" else (None, requests)
        rest = {"predict": predict, "protection": protection or Protection()}
        return run_together(
            *(
                (predict_known(met(channel, progress=noted, **rest), side, asks, shown=told, tally=tally), channel)
                for channel, side, asks, noted, told, tally in zip(
                    (a, b), (scorer, embedder), asking, self.progress, shown or (Shown(), Shown()), tallies, strict=True
                )
            )
        )

    def ask(self, predict: Predict, *requests: Request, **how: Any) -> list[Any]:
        """As :meth:`talk`, of requests that all go well; their answers."""
        for result in self.talk(predict, Requests(*requests), **how):
            if isinstance(result, Exception):
                raise result
        for request in requests:
            if request.failed:
                raise request.failed
        return [request.answered for request in requests]

    def sizes(self) -> list[tuple[str, int]]:
        return [(kind, len(body)) for kind, body in self.heard]

    def bodies(self, kind: str) -> list[bytes]:
        return [body for of, body in self.heard if of == kind]

    def embeddings(self) -> NDArray[np.float32]:
        """All that the passive party has sent, [rows, d]."""
        messages = [prediction_embedding(body) for body in self.bodies("Embedding")]
        return np.concatenate(messages)

    def probabilities(self) -> NDArray[np.float64]:
        """All that the active party has sent, [rows]."""
        messages = [prediction_pb2.Probabilities.FromString(body) for body in self.bodies("Probabilities")]
        return np.concatenate([np.frombuffer(message.values, dtype="<f8") for message in messages])


def aligned(world: World, clinic_rows: NDArray[np.int64], lab_rows: NDArray[np.int64], protocol: str) -> tuple[Any, Any]:
    """Sides over a new alignment of both parties' tables; rows: int64[m] of each, NOT_MINE where it lacks one."""
    both = int(((clinic_rows != NOT_MINE) & (lab_rows != NOT_MINE)).sum())

    def view(rows: NDArray[np.int64], others: NDArray[np.int64]) -> Alignment:
        ours, theirs = (int((of != NOT_MINE).sum()) for of in (rows, others))
        facts = PeerFacts(theirs, intersection=both, missing=ours - both)
        return Alignment(ALIGNMENTS[protocol], "curve25519", rows, ours, {"lab" if others is lab_rows else "clinic": facts})

    return (
        Scorer(world.kept(0), view(clinic_rows, lab_rows), world.parties.clinic, CPU),
        Embedder(world.kept(1), view(lab_rows, clinic_rows), world.parties.lab, CPU),
    )


def predict_both(predict: Predict, sides: tuple[Scorer, Embedder], shown: tuple[Any, Any] | None = None) -> list[Any]:
    """Both parties' results or errors of a job with new records."""
    ends = memory_channels("clinic", "lab")
    return run_together(
        *(
            (predict_new(met(end, predict=predict), side, shown=told), end)
            for end, side, told in zip(ends, sides, shown or (Shown(), Shown()), strict=True)
        )
    )


def predicting(predict: Predict, parties: Parties = TWO) -> Job:
    """A job of predictions."""
    return Job(name="the-job-predict", parties=parties, align=Align(protocol="psi"), predict=predict)


def met(channel: Channel, **rest: Any) -> Session:
    """The session of the clinic or the lab that has this conversation with the other one."""
    name = {"clinic": "lab", "lab": "clinic"}[channel.peer]
    return session(name, {channel.peer: channel}, Randomness(bytes(32)), **rest)


def prediction_embedding(body: bytes) -> NDArray[np.float32]:
    from vfl_node.transport.generated.vfl.v1 import training_pb2

    tensor = training_pb2.Embedding.FromString(body).tensor
    return codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)).numpy()


_TRAINED: dict[str, tuple[Any, Any]] = {}
"""Settings of a world → its federation and both results, which tests read and never change."""


@pytest.fixture(name="world")
def world_fixture(synthetic: Make, run: Make) -> Make:
    def make(
        *,
        protocol: str = "psu",
        active_features: bool = True,
        missing: Missing | None = None,
        classes: int = 2,
        people: int = 250,
        owned: tuple[float, float] = (0.8, 0.8),
        serve: Serve = SERVE,
        models: dict[str, str] | None = None,
        **rest: Any,
    ) -> World:
        train = TRAIN.model_copy(update={"missing": missing or Missing(), "classes": classes, **rest})
        parties = synthetic(people, (1.0, 1.0) if protocol == "psi" else owned, active_features=active_features)
        if classes > 2:
            labels = np.random.default_rng(0).integers(0, classes, len(parties.clinic)).astype(np.float32)
            parties = dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, labels=labels))
        views = {"clinic_view": parties.clinic_view, "lab_view": parties.lab_view}
        parties = dataclasses.replace(
            parties, **{k: dataclasses.replace(v, spec=ALIGNMENTS[protocol]) for k, v in views.items()}
        )
        own = models or {}
        key = repr((protocol, active_features, people, owned, train, own))
        if key not in _TRAINED:
            _TRAINED[key] = parties, run(train=train, evaluate=Evaluate(test_fraction=0.5), models=(own, own))(parties)
        return World(*_TRAINED[key], train, serve, models=own)

    return make


def taken(table: Table, rows: NDArray[np.int64], *, prefix: bytes = b"", shift: float = 0.0) -> Table:
    """Some records of ``table`` with their columns, under other ids and with other numbers if so wanted."""
    columns = {
        name: NumericColumn(column.values[rows] + shift) if isinstance(column, NumericColumn) else rows_of(column, rows)
        for name, column in table.columns.items()
    }
    return Table(Identifiers.from_items(prefix + id_ for id_ in table.ids.take(rows)), columns)


def unseen(count: int, seed: int = 1) -> Table:
    """Records of the laboratory that nobody has met."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"z{i}": NumericColumn(rng.normal(size=count)) for i in range(4)}
    columns["colour"] = CategoricalColumn(rng.integers(0, 4, count), ("0", "1", "2", "3"))
    return Table(Identifiers.from_items(f"unseen {seed}/{i}".encode() for i in range(count)), columns)
