"""Run a job's real protocols in memory and keep what each party receives, paired with the schedule both know."""

from __future__ import annotations

import contextlib
import hashlib
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.sessions import limits_from, session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.engines.threads import Threads
from vfl_node.job import Job, load_job
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.toss import toss
from vfl_node.settings.node import Data
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.schedule import Schedule, cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.labels.contract import Known, build
from vfl_node.training.split.missing.labels.made_up import Fixed
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

EXAMPLES = Path(__file__).parents[1] / "examples"

Tables = tuple[Table, Table]
"""The active and the passive party's."""

Transcript = list[list[Batch]]
"""The training batches of each repeat."""


@dataclass
class Overheard:
    """What a job was, which no one party knows, and what each party received.

    Attributes:
        active: the active party's view of the union.
        passive: the passive party's.
        labels: float32[m], real or synthetic, as used in the first repeat.
        passive_randomness: all that the passive party drew in training comes from it.
        encoder: how it encoded its columns.
        embeddings: received by the active party, with the gradients it sent.
        gradients: received by the passive party; of the sum over the batch, not the mean, so
            that a smaller last batch has the same scale.
        tested: for each repeat one batch, the embeddings of all rows held out.
        results: both parties'.
    """

    active: Alignment
    passive: Alignment
    labels: NDArray[np.float32]
    passive_randomness: Randomness
    encoder: Encoder
    embeddings: Transcript = field(default_factory=list)
    gradients: Transcript = field(default_factory=list)
    tested: list[Batch] = field(default_factory=list)
    results: Sequence[Trained] = ()


def prepare(example: str, folder: Path, *arguments: Path, epochs: int | None = None) -> tuple[Job, Tables]:
    """An example's job, with ``epochs`` instead of its own if given, and both tables as its ``make_data.py`` writes them."""
    with contextlib.redirect_stdout(sys.stderr):
        runpy.run_path(str(EXAMPLES / example / "make_data.py"))["main"](*arguments, folder)
    job = load_job(EXAMPLES / example / "job.yaml")
    train = Train.section_of(job)
    train = train.model_copy(update={"epochs": epochs or train.epochs})

    def table(name: str, *, needs_label: bool) -> Table:
        data = Data(path=folder / f"{name}.csv")
        return read_table(data, id_form=job.align.id_form, needs_label=needs_label, party=name)

    tables = table(job.parties.active, needs_label=True), table(job.parties.passive[0], needs_label=False)
    return job.model_copy(update={"train": train}), tables


def overhear(job: Job, tables: Tables, seed: str) -> Overheard:
    """Align and train as two nodes would; all randomness follows from ``seed``."""
    train, labels = Train.section_of(job), tables[0].labels
    assert labels is not None
    secrets = [Randomness(hashlib.sha256(f"{seed} {name}".encode()).digest()) for name in job.parties.all]
    training = [secret.derive("train") for secret in secrets]  # as a node does
    recorder = Recorder()

    def aligning(channel: Channel, i: int) -> Any:
        own = session(
            job.parties.all[i],
            {channel.peer: channel},
            secrets[i],
            job=job,
            folder=Path(scratch, str(i)),
            memories={channel.peer: MemoryOfOneRun(secrets[i].derive("memory of the peer"))},
            workers=Threads(1),
            limits=limits_from(1),
        )
        return align(own, OwnRecords(tables[i].ids))

    def learning(channel: Channel, i: int) -> Any:
        channel = recorder.wrap(job.parties.all[i], channel)
        own = session(job.parties.all[i], {channel.peer: channel}, training[i], job=job, clock=lambda: 0.0)
        return SplitTrainer().run(own, TrainingData(views[i], tables[i]), MemoryCheckpoints(), None)

    def tossing(channel: Channel, i: int) -> Any:
        own = session(job.parties.all[i], {channel.peer: channel}, training[i], job=job)
        return toss(own, training[i].derive("toss"))

    with tempfile.TemporaryDirectory() as scratch:
        views = active, passive = _run_together(job, aligning)
    results = _run_together(job, learning)
    seeds = _run_together(job, tossing)
    schedule = Schedule(seeds[0], len(active), train.seed)

    drawn = Randomness(training[0].derive("draws").bytes(32)).derive("labels")  # as the active half has it
    used = _labels(train, active, labels, drawn)
    kept = Overheard(active, passive, used, training[1], Encoder.from_json(results[1].encoder), results=results)
    embeddings, gradients = (_tensors(recorder.messages(kind)) for kind in (training_pb2.Embedding, training_pb2.Gradient))
    for repeat in range(job.evaluate.repeats):
        rows, held_out = schedule.split(repeat, job.evaluate.test_fraction)
        steps = [
            (epoch, positions)
            for epoch in range(train.epochs)
            for positions in schedule.batches(repeat, epoch, rows, train.batch_size)
        ]
        summed = [next(gradients) * len(positions) for _, positions in steps]
        kept.embeddings.append([Batch(*step, next(embeddings), g) for step, g in zip(steps, summed, strict=True)])
        kept.gradients.append([Batch(*step, g, g) for step, g in zip(steps, summed, strict=True)])
        tests = [next(embeddings) for _ in cut(held_out, train.batch_size)]
        kept.tested.append(Batch(0, held_out, torch.cat(tests)))
    return kept


def _labels(train: Train, view: Alignment, labels: NDArray[np.float32], drawn: Randomness) -> NDArray[np.float32]:
    """The label used at each shared position, float32[m], of a strategy that fixes it."""
    chosen = build(train.missing.label_strategy, Known(labels[view.rows[view.owned]], len(view), train.classes, drawn))
    if not isinstance(chosen, Fixed):
        raise SystemExit(f"{train.missing.labels} fixes no label before training")
    return np.where(view.owned, labels[view.rows], chosen.labels).astype(np.float32)


def _run_together(job: Job, side: Callable[[Channel, int], Any]) -> list[Any]:
    """Both parties' results, active first."""
    channels = memory_channels(*job.parties.all)
    results = run_together(*((side(channel, i), channel) for i, channel in enumerate(channels)))
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _tensors(messages: Iterable[Any]) -> Iterator[Tensor]:
    tensors = (message.tensor for message in messages)
    return (codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)) for tensor in tensors)
