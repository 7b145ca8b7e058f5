"""Two tables whose rows are linked by similarity, and a way to train over them in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.job import Align, Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.settings.protection import Compare, Protection
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.trainer import LinkedTrainer
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.schedule import Schedule
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

SMALL = Linked(
    algorithm="candidates",
    task="regression",
    bottom=(16, 8),
    active_bottom=(8,),
    top=(16,),
    pair_outputs=4,
    merge_hidden=(16,),
    channels=4,
    kernel=3,
    dropout=0.1,
    epochs=3,
    batch_size=64,
    learning_rate=1e-2,
)

EVALUATE = Evaluate(metrics=("rmse", "r2"))


@dataclass(frozen=True)
class Linkage:
    """Two parties' tables and their views of the rows."""

    clinic: Table
    lab: Table
    clinic_view: Alignment
    lab_view: Alignment

    def without(self, missing: NDArray[np.bool_]) -> Linkage:
        """The same without the candidates at ``missing``, bool[m, K]."""
        similarities = np.where(missing, np.float32(0), self.clinic_view.similarities)
        rows = np.where(missing, NOT_MINE, self.lab_view.rows)
        ours, theirs = replace(self.clinic_view, similarities=similarities), replace(self.lab_view, rows=rows)
        return replace(self, clinic_view=ours, lab_view=theirs)


def linked(
    rows: int = 300,
    records: int = 200,
    candidates: int = 6,
    *,
    labels: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[Any]] | None = None,
    own: int = 1,
    sigma: float = 0.4,
    permuted: bool = False,
    seed: int = 0,
) -> Linkage:
    """Places u on a line; the candidates of a row are the records with the nearest u, in any order.

    Args:
        rows: of the clinic.
        records: of the lab.
        candidates: K.
        labels: of x, float64[rows], and the mean z of the candidates, in standard deviations; by default their sum.
        own: columns of the clinic.
        sigma: noise on similarities.
        permuted: whether the lab's columns stand beside other records than those that the labels are of.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    ours, theirs = rng.random(rows), rng.random(records)
    x, z = rng.normal(size=rows), rng.normal(size=records)
    apart = np.abs(ours[:, None] - theirs[None])
    near = np.argsort(apart, axis=1)[:, :candidates]
    mean = z[near].mean(axis=1)
    mean = (mean - mean.mean()) / mean.std()
    y = 0.6 * x + mean + 0.3 * rng.normal(size=rows) if labels is None else labels(x, mean)
    near = np.take_along_axis(near, np.argsort(rng.random(near.shape), axis=1), axis=1)
    distances = np.take_along_axis(apart, near, axis=1)
    similarities = (distances.mean() - distances) / distances.std() + sigma * rng.normal(size=near.shape)
    if permuted:
        z = rng.permutation(z)

    def ids(size: int) -> Identifiers:
        return Identifiers.from_items(str(row).encode() for row in range(size))

    kinds = CategoricalColumn(rng.integers(0, 3, records), ("a", "b", "c"))
    columns = {f"x{number}": NumericColumn(x if number == 0 else rng.normal(size=rows)) for number in range(own)}
    return Linkage(
        Table(ids(rows), columns, y),
        Table(ids(records), {"z": NumericColumn(z), "kind": kinds}),
        Alignment(
            ALIGNMENTS["linkage"],
            "",
            np.arange(rows),
            rows,
            {"lab": PeerFacts(records)},
            similarities=similarities.astype(np.float32),
        ),
        Alignment(ALIGNMENTS["linkage"], "", near.astype(np.int64), records, {"clinic": PeerFacts(rows)}),
    )


@dataclass
class LinkedRun:
    """Both parties' training in memory; what may be varied, with small defaults."""

    train: Linked = SMALL
    evaluate: Evaluate = EVALUATE
    seeds: tuple[bytes, bytes] = (b"clinic's private randomness, 32b", b"the lab's private randomness, 32")
    checkpoints: tuple[Any, Any] = field(default_factory=lambda: (MemoryCheckpoints(), MemoryCheckpoints()))
    resume_from: str | None = None
    protections: tuple[Protection, Protection] = (Protection(), Protection())
    tamper: Callable[[Message], None] = lambda message: None

    def __post_init__(self) -> None:
        self._recorder = Recorder(edit=lambda sender, receiver, message: self.tamper(message))

    @property
    def transcript(self) -> list[Message]:
        """What both parties send, in order."""
        return [entry.message for entry in self._recorder.entries]

    def sent(self, kind: type) -> list[Any]:
        """The messages of one type."""
        return [message for message in self.transcript if isinstance(message, kind)]

    def raw(self, linkage: Linkage) -> list[Any]:
        """The two results or exceptions, active party first."""
        a, b = map(self._recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        sides = ((a, linkage.clinic_view, linkage.clinic), (b, linkage.lab_view, linkage.lab))
        return run_together(
            *(
                (
                    LinkedTrainer().run(
                        self.session(("clinic", "lab")[number], channel, number, linkage),
                        TrainingData(view, own),
                        self.checkpoints[number],
                        self.resume_from,
                    ),
                    channel,
                )
                for number, (channel, view, own) in enumerate(sides)
            )
        )

    def __call__(self, linkage: Linkage) -> tuple[Trained, Trained]:
        """Both results. Raises the first party's exception that failed."""
        results = self.raw(linkage)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results[0], results[1]

    def session(self, name: str, channel: Channel, number: int, linkage: Linkage) -> Session:
        """A party's session; its clock ticks once a reading."""
        ticks = count()
        keys = {"u": {"kind": "number", "low": 0, "high": 1, "reach": 0.05}}
        said = {"protocol": "linkage", "keys": keys, "candidates": linkage.clinic_view.candidates, "noise": {"sigma": 0.4}}
        return session(
            name,
            {channel.peer: channel},
            Randomness(self.seeds[number]),
            align=Align.model_validate(said),
            train=self.train,
            evaluate=self.evaluate,
            clock=lambda: float(next(ticks)),
            protection=self.protections[number],
            compare=Compare(boosted_tree=False),
        )

    def schedule(self, linkage: Linkage) -> Schedule:
        """The schedule that both parties follow."""
        a, b = memory_channels("clinic", "lab")
        sessions = [session(name, {end.peer: end}, Randomness(bytes(32))) for name, end in (("clinic", a), ("lab", b))]
        seeds = (Randomness(seed).derive("toss") for seed in self.seeds)
        seed, _ = run_together(*((toss(of, own), end) for of, own, end in zip(sessions, seeds, (a, b), strict=True)))
        return Schedule(seed, len(linkage.clinic), self.train.seed)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(name="linked", scope="session")
def linked_fixture() -> Callable[..., Linkage]:
    """Makes two linked tables."""
    return linked


@pytest.fixture(name="linked_run", scope="session")
def linked_run_fixture() -> type[LinkedRun]:
    """Trains over two linked tables."""
    return LinkedRun


@pytest.fixture(name="small", scope="session")
def small_fixture() -> Linked:
    """A small network."""
    return SMALL
