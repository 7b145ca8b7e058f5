"""One training by the product's own halves, and all that the active party receives in it.

The parties train with the trainer that a node runs, over channels in memory. Row i is shared position i: the alignment tells
the attacker which record an embedding belongs to, which is all that an attack needs of it, so it is not run again each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.sessions import session
from experiments.inference.data import ACTIVE, Split
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.predictor import StoredModel
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.prediction.model import SplitModel
from vfl_node.training.split.prediction.sides import Embedder
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

TRAIN: Mapping[str, Any] = {"bottom": [64, 32], "active_bottom": [32], "top": [32], "epochs": 20, "batch_size": 128}
"""Settings of all trials that say nothing else."""

SMALL = {"bottom": [16, 12], "active_bottom": [8], "top": [16], "epochs": 6, "learning_rate": 0.005}

FLAGS = {"bottom": [128, 64], "active_bottom": [64], "top": [64]}

OF_DATA: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("location30", "location30-three", "location30-one", "location30-other"), FLAGS),
    **dict.fromkeys(("made_up", "made_up_flags", "made_up_three", "made_up_one", "made_up_other"), SMALL),
}
"""Table → what is different for it."""

HELD_OUT = 0.2
"""Share of the rows that are not trained on: the model's own metrics are measured on them."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Heard:
    """What the active party has after a training, and what judges know besides.

    Attributes:
        split: the tables.
        job: what was trained.
        training: int64[t], the rows trained on, ascending.
        received: passive party → the embeddings that it sent, step by step; ``epoch`` counts from 0.
        trained: party → its result.
        defences: of the passive parties' settings.
    """

    split: Split
    job: Job
    training: NDArray[np.int64]
    received: Mapping[str, Sequence[Batch]]
    trained: Mapping[str, Trained]
    defences: tuple[Any, ...]

    @property
    def test(self) -> Mapping[str, float | None]:
        """Metrics on the rows held out."""
        results = self.trained[ACTIVE].results
        return results.metrics if results else {}

    @property
    def alone(self) -> Mapping[str, float | None]:
        """Metrics of the active party's own columns alone on the same rows."""
        results = self.trained[ACTIVE].results
        return results.alone.metrics if results and results.alone else {}

    @property
    def losses(self) -> list[float]:
        """Mean loss of each epoch."""
        return [float(epoch.loss or 0.0) for epoch in self.trained[ACTIVE].epochs]

    def epoch(self, party: str, number: int) -> Tensor:
        """What ``party`` sent of each row trained on in epoch ``number``, counted from 0, float32[t, d]."""
        steps = [batch for batch in self.received[party] if batch.epoch == number]
        order = np.argsort(np.concatenate([batch.positions for batch in steps]))
        return torch.cat([batch.rows for batch in steps])[torch.from_numpy(order)]

    def final(self, party: str) -> Tensor:
        """What predictions of the rows trained on would send, all by the trained weights, float32[t, d]."""
        own, job = self.trained[party], self.job.model_copy(update={"serve": Serve(to="active")})
        assert own.servable is not None
        served = SplitModel.load(StoredModel(job, own.weights, own.encoder, own.servable.state))
        table = self.split.tables[party]
        return Embedder(served, view(self.split, party), table, torch.device("cpu"), self.defences).embed_shared(self.training)


def train(name: str, split: Split, seed: int, *, settings: Settings | None = None, defences: Sequence[Settings] = ()) -> Heard:
    """Train, and hear what the active party receives.

    Args:
        name: of the data, for :data:`OF_DATA`.
        split: the tables.
        seed: of all that is drawn: trials of a seed have the same rows held out, batches and first weights.
        settings: of the job's ``train`` section, where they differ.
        defences: of the passive parties, as in a node's settings.

    Raises:
        VflError: settings or defences are none that a node would take, or the training failed.
    """
    chosen = {**TRAIN, "classes": split.classes, **OF_DATA.get(name, {}), **(settings or {})}
    metrics = ["auc", "accuracy", "nll"]
    job = Job.model_validate(
        {
            "name": "inference",
            "parties": {"active": ACTIVE, "passive": list(split.passive)},
            "align": {"protocol": "psi" if len(split.passive) == 1 else "psi-pairs"},
            "train": chosen,
            "evaluate": {"test_fraction": HELD_OUT, "metrics": metrics},
        }
    )
    params = tuple(read_params(entry) for entry in defences)
    recorder = Recorder()
    secrets = {party: Randomness(hashlib.sha256(f"inference {seed} {party}".encode()).digest()) for party in split.tables}
    protections = {party: Protection(params if party != ACTIVE else (), membership=False) for party in split.tables}

    def run_all(run: Callable[[Session], Coroutine[Any, Any, Any]], *, recorded: bool = False) -> dict[str, Any]:
        sessions = {
            party: session(
                party,
                {peer: recorder.wrap(party, held[peer]) if recorded else held[peer] for peer in job.parties.peers_of(party)},
                secrets[party],
                job=job,
                protection=protections[party],
                clock=lambda: 0.0,
            )
            for party, held in memory_network(*split.tables).items()
        }
        results = run_together(*((run(own), own.peers.values()) for own in sessions.values()))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return dict(zip(sessions, results, strict=True))

    async def training(own: Session) -> Trained:
        data = TrainingData(view(split, own.name), split.tables[own.name])
        return await SplitTrainer().run(own, data, MemoryCheckpoints(), None)

    trained = run_all(training, recorded=True)
    seeds = run_all(lambda own: toss(own, own.randomness.derive("toss")))
    schedule = Schedule(seeds[ACTIVE], len(split), job.train.seed)  # type: ignore[union-attr]
    rows, _ = schedule.split(0, HELD_OUT)
    steps = [
        (epoch, positions)
        for epoch in range(chosen["epochs"])
        for positions in schedule.batches(0, epoch, rows, chosen["batch_size"])
    ]
    received = {}
    for party in split.passive:
        sent = recorder.messages(training_pb2.Embedding, sender=party)
        received[party] = [Batch(*step, _tensor(message)) for step, message in zip(steps, sent, strict=False)]
    return Heard(split, job, rows, received, trained, params)


def _tensor(message: training_pb2.Embedding) -> Tensor:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))


def view(split: Split, party: str) -> Alignment:
    """All rows are everybody's, in their order."""
    size = len(split)
    peers = {other: PeerFacts(size, intersection=size, missing=0) for other in split.tables if other != party}
    protocol = "psi" if len(peers) == 1 else "psi-pairs"
    return Alignment(ALIGNMENTS[protocol], "curve25519", np.arange(size), size, peers, common=size)
