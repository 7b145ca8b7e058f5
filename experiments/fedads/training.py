"""One training by the product's own halves, and what the party with labels reports of it.

The parties train with the trainer that a node runs, over channels in memory. The attacks on labels are those of the active
party's own audit, which has what the other party receives and the truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sessions import session
from experiments.fedads.data import ACTIVE, PASSIVE, Cut
from experiments.fedads.literal import install
from experiments.fedads.resampling import Said, said
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table, rows_of
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.summary import Summary
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

TRAIN: Mapping[str, Any] = {
    "bottom": [32, 8],
    "active_bottom": [32, 8],
    "top": [],
    "epochs": 10,
    "batch_size": 256,
    "learning_rate": 0.003,
}
"""Settings of all trials that say nothing else. A ``top`` of no hidden layers is the paper's."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Done:
    """What is known after a training.

    Attributes:
        trained: party → its result.
        recorder: all messages, where they were wanted; else empty.
        steps: int64[B], shared positions of each step of all repeats, likewise.
        said: of the rows held out, where it was wanted.
    """

    trained: Mapping[str, Trained]
    recorder: Recorder
    steps: Sequence[NDArray[np.int64]] = ()
    said: Said | None = None

    @property
    def auc(self) -> float:
        """AUC of the joint model on the rows held out."""
        value = self.results.metrics["auc"]
        assert value is not None
        return value

    @property
    def alone(self) -> float:
        """AUC of the label party's own columns on the same rows. It is the same with every defence."""
        assert self.results.alone is not None
        value = self.results.alone.metrics["auc"]
        assert value is not None
        return value

    @property
    def results(self) -> Summary:
        """What the label party measured."""
        results = self.trained[ACTIVE].results
        assert results is not None
        return results

    @property
    def labels(self) -> list[Mapping[str, float | None]]:
        """Attack on labels → AUC, folded, after each epoch."""
        return [epoch.labels for epoch in self.trained[ACTIVE].epochs]


def train(
    cut: Cut,
    seed: int,
    *,
    settings: Settings | None = None,
    defences: Sequence[Settings] = (),
    labelled: float = 1.0,
    aligned: NDArray[np.int64] | None = None,
    recorded: bool = False,
    scored: bool = False,
    repeats: int = 1,
    metrics: Sequence[str] = ("auc",),
    remembered: int | None = None,
) -> Done:
    """Train.

    Args:
        cut: the tables.
        seed: of all that is drawn: trials of a seed have the same rows held out, batches and first weights.
        settings: of the job's ``train`` section, where they differ.
        defences: of the active party, as in a node's settings, or as published (``…-literal``).
        labelled: share of the rows that the active party has. Below 1 the parties are aligned by ``psu``: the other one does
            not know which rows those are, and the active party makes up labels for the rest.
        aligned: rows that the other party has; None: all. The last ones in the order of the label party's table are held out.
        recorded: whether messages are kept.
        scored: whether it is wanted what the models say of the rows held out, if some are ``aligned``.
        repeats: trainings, each with other rows held out.
        metrics: that are measured.
        remembered: seed of what the parties keep from job to job; None: that of all else.

    Raises:
        VflError: settings or defences are none that a node would take, or the training failed.
    """
    install()
    chosen = {**TRAIN, **(settings or {})}
    evaluate: Settings = {"test_fraction": cut.held_out, "metrics": list(metrics), "repeats": repeats}
    if aligned is not None:
        evaluate = {"hold_out": {"last": (cut.tested - 0.5) / len(aligned)}, "metrics": ["auc", "nll"]}
    job = Job.model_validate(
        {
            "name": "fedads",
            "parties": {"active": ACTIVE, "passive": [PASSIVE]},
            "align": {"protocol": "psi" if labelled == 1 else "psu"},
            "train": chosen,
            "evaluate": evaluate,
        }
    )
    recorder, root = Recorder(), f"fedads {seed}"
    secrets = {party: Randomness(hashlib.sha256(f"{root} {party}".encode()).digest()) for party in cut.tables}
    kept = Randomness(hashlib.sha256(f"fedads memories {seed if remembered is None else remembered}".encode()).digest())
    params = tuple(read_params(entry) for entry in defences)
    protections = {ACTIVE: Protection(params, membership=labelled < 1), PASSIVE: Protection(membership=False)}
    if aligned is not None:
        data = _intersect(cut, aligned)
    else:
        data = _align(cut, labelled, Randomness(hashlib.sha256(f"{root} owners".encode()).digest()))

    def met() -> dict[str, Session]:
        return {
            party: session(
                party,
                {peer: recorder.wrap(party, held[peer]) if recorded else held[peer] for peer in job.parties.peers_of(party)},
                secrets[party],
                job=job,
                protection=protections[party],
                memories={peer: MemoryOfOneRun(kept.derive(party)) for peer in job.parties.others(party)},
                clock=lambda: 0.0,
            )
            for party, held in memory_network(*cut.tables).items()
        }

    def run_all(run: Callable[[Session], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
        sessions = met()
        results = run_together(*((run(own), own.peers.values()) for own in sessions.values()))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return dict(zip(sessions, results, strict=True))

    async def training(own: Session) -> Trained:
        return await SplitTrainer().run(own, data[own.name], MemoryCheckpoints(), None)

    trained = run_all(training)
    if not recorded:
        return Done(trained, recorder, said=said(job, met()[ACTIVE], data, trained) if scored else None)
    seeds = run_all(lambda own: toss(own, own.randomness.derive("toss")))
    schedule, size = Schedule(seeds[ACTIVE], len(cut), salt=0), chosen["batch_size"]
    steps = [
        batch
        for repeat in range(repeats)
        for epoch in range(chosen["epochs"])
        for batch in schedule.batches(repeat, epoch, schedule.split(repeat, cut.held_out)[0], size)
    ]
    return Done(trained, recorder, steps)


def _align(cut: Cut, labelled: float, randomness: Randomness) -> dict[str, TrainingData]:
    """Each party's rows of the shared order, which is that of the tables; the passive party has all of them."""
    size, (labelling, other) = len(cut), cut.tables.values()
    has = randomness.uniform((size,)) < labelled
    mine = np.flatnonzero(has)
    protocol = "psi" if labelled == 1 else "psu"

    def view(peer: str, places: NDArray[np.int64], ours: int, theirs: int) -> Alignment:
        facts = PeerFacts(theirs, intersection=len(mine), missing=size - theirs)
        return Alignment(ALIGNMENTS[protocol], "curve25519", places, ours, {peer: facts})

    places = np.where(has, np.cumsum(has) - 1, NOT_MINE)
    return {
        ACTIVE: TrainingData(view(PASSIVE, places, len(mine), size), part(labelling, mine)),
        PASSIVE: TrainingData(view(ACTIVE, np.arange(size), size, len(mine)), other),
    }


def _intersect(cut: Cut, aligned: NDArray[np.int64]) -> dict[str, TrainingData]:
    """The label party has all rows, and the other one those that are ``aligned``."""
    labelling, other = cut.tables.values()
    size, shared = len(cut), len(aligned)

    def view(peer: str, rows: NDArray[np.int64], ours: int, theirs: int) -> Alignment:
        return Alignment(ALIGNMENTS["psi"], "curve25519", rows, ours, {peer: PeerFacts(theirs, intersection=shared, missing=0)})

    return {
        ACTIVE: TrainingData(view(PASSIVE, aligned, size, shared), labelling),
        PASSIVE: TrainingData(view(ACTIVE, np.arange(shared), shared, size), part(other, aligned)),
    }


def part(table: Table, rows: NDArray[np.int64]) -> Table:
    """The ``rows`` of a table."""
    columns = {name: rows_of(column, rows) for name, column in table.columns.items()}
    labels = None if table.labels is None else table.labels[rows]
    return Table(Identifiers.from_items(table.ids.take(rows)), columns, labels)
