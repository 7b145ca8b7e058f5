"""One party's run of one job, from the first message to the report.

::

    preflight   same version, same job, same inputs; the newest point that all can resume from     (session/agree.py)
    align       which shared rows are mine, by an alignment of an earlier job or anew              (align.py)
    aligned     all know that all have stored it; only now may the lists go
    train       my part of the model, and how good the whole is                                    (train.py)
    or predict  by a model that an earlier job trained                                             (prediction/play.py)
    keep        model and report on this party's disk                                              (keep.py)
    finish      all know that all have stored theirs; only now is any done, and forgets its secrets    (finish.py)

A coordinator has a conversation of its own with each data party, and in it only: preflight, what alignment and training ask of
it, keep, finish (coordinator.py).

The same coroutines run over gRPC in a node's job threads and in memory in a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.build import describe_build
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.named import table_name
from vfl_node.data.tables import Table
from vfl_node.engines.processes import Processes
from vfl_node.engines.threads import Threads
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.hours import check_hours
from vfl_node.execution.inputs import select_records
from vfl_node.execution.reuse import copy_model, recall_records, reused_job
from vfl_node.job import Job, JobId
from vfl_node.process.tensors import load_torch, settle_device
from vfl_node.progress import EpochTrained, Event, LocalEpochTrained, PhaseBegan, Progress
from vfl_node.session.agree import agree
from vfl_node.session.memory import PeerMemory, join_memories
from vfl_node.session.preflight import NO_MARKS, ConsentMarks
from vfl_node.session.session import Attempt, OwnMachine, OwnSettings, Recording, Session
from vfl_node.session.transcript import Transcript
from vfl_node.settings.node import DEFAULT_TABLE, Settings
from vfl_node.transport.channel import Channel
from vfl_node.transport.trace import Trace

ALIGNED, KEPT = "aligned", "kept"
"""The first and last points a job can resume from; between them lie the training checkpoints."""


@dataclass(frozen=True)
class DataInputs:
    """The records that a data party brings.

    Attributes:
        whole: its table, to whose digest the job is held.
        table: the records of it that take part: all, or as many as ``align.at_most`` allows.
        name: what its owner's settings call the table.
    """

    whole: Table
    table: Table
    name: str = DEFAULT_TABLE

    @property
    def places(self) -> NDArray[np.int64] | None:
        """int64[n], the row of ``whole`` of each record of ``table``; None: they are the same."""
        if self.table is self.whole:
            return None
        place = {id_: row for row, id_ in enumerate(self.whole.ids)}
        return np.fromiter((place[id_] for id_ in self.table.ids), np.int64, len(self.table))


@dataclass(frozen=True)
class Run:
    """What one party brings to one attempt at a job.

    Attributes:
        session: whom it meets, and with what.
        folder: where it stores what the job needs and leaves.
        inputs: its records; None at a coordinator.
        trace: when it sent, received and waited.
        kept: earlier jobs on the same terms whose alignments this party has kept, newest first.
    """

    session: Session
    folder: JobFolder
    inputs: DataInputs | None
    trace: Trace = field(default_factory=Trace)
    kept: Sequence[JobId] = ()

    @property
    def data(self) -> DataInputs:
        """The records of a data party."""
        if self.inputs is None:
            raise ValueError("a coordinator has no data")
        return self.inputs


async def agree_point(run: Run, points: Sequence[str]) -> str | None:
    """The point from which a data party goes on, of those that it holds; a coordinator hears what is done of its part.

    Raises, and leaks: as :func:`vfl_node.session.agree.agree`.
    """
    session, folder, digest = run.session, run.folder, run.data.whole.digest()
    point = await agree(session, points, input_digest=digest, inputs=folder)
    if session.coordinator:
        aligned_there = [ALIGNED] if point and session.job.align.spec.coordinated else []
        done = [KEPT] if point == KEPT else aligned_there
        await agree(session, done, input_digest=digest, inputs=folder, peers=[session.coordinator])
    return point


def set_up(
    settings: Settings,
    job: Job,
    job_id: str,
    table: Table | None,
    randomness: Randomness,
    folder: JobFolder,
    progress: Progress,
    attempt: int,
    memories: Mapping[str, PeerMemory],
    channels: Mapping[str, Channel],
    trace: Trace | None = None,
    marks: ConsentMarks = NO_MARKS,
    kept: Sequence[JobId] = (),
) -> Run:
    """The run of the party with these settings, on its device and threads.

    Args:
        settings: of this party.
        job: the shared part.
        job_id: of this run.
        table: its whole table; None at a coordinator. In a job of predictions, the records that it predicts.
        randomness: its own for this job.
        folder: of the job.
        progress: follows the job.
        attempt: how often it has begun this job.
        memories: name of each data peer → what is remembered of it.
        channels: peer → the conversation with it, in the order of the job's parties.
        trace: of the attempts before in this process, if any, which goes on.
        marks: of the job's manifest, and of the consents to it.
        kept: as :attr:`Run.kept`.

    Raises:
        DataError, PolicyError: as :func:`vfl_node.execution.inputs.select_records`.
        StateError: as :func:`vfl_node.execution.reuse.select_aligned`.
    """
    inputs, split, evidence, start, limits = None, None, None, None, settings.limits_for(job)
    if job.needs_torch:
        load_torch(settings.threads)
    if table is not None:
        part = table
        if not job.predict:
            memory = join_memories([memories[name] for name in job.parties.others(settings.name)])
            if reuse := reused_job(job, folder.path):
                recalled = recall_records(table, folder, reuse, memory)
                part, split, evidence = recalled.table, recalled.split, recalled.evidence
                start = copy_model(job, folder)
            else:
                part = select_records(table, job.align, memory, limits, settings.name)
        inputs = DataInputs(table, part, table_name(settings, job))
    trace = trace or Trace()
    for channel in channels.values():
        channel.trace = trace
    session = Session(
        job=job,
        name=settings.name,
        peers=channels,
        randomness=randomness,
        attempt=Attempt(
            number=attempt,
            job_id=job_id,
            folder=folder.path,
            pins=folder,
            split=split,
            evidence=evidence,
            start=start,
            cached=folder.cached,
        ),
        memories=memories,
        progress=_TracedProgress(progress, trace),
        machine=_machine(settings),
        policy=OwnSettings(
            limits=limits,
            obfuscation=settings.obfuscation,
            models=settings.models,
            protection=settings.protection_under(limits),
            compare=settings.compare,
            check_hours=partial(check_hours, settings, job, folder),
        ),
        recording=Recording(
            transcript=Transcript(folder.transcript, inputs.places) if folder.trial.transcript and inputs else None,
            received=folder.received if folder.trial.joint and inputs else None,
        ),
        marks=marks,
    )
    return Run(session, folder, inputs, trace, kept)


def _machine(settings: Settings) -> OwnMachine:
    """What computes for one job. Raises UsageError: as :func:`check_engine`."""
    threads = Threads(settings.group_workers)
    machine = OwnMachine(workers=threads, device_name=settle_device(settings.device), memory_mib=settings.resources.memory_mib)
    if settings.engine.kind == "local":
        return replace(machine, processes=Processes(settings.group_workers))
    from vfl_node.engines.ray.cluster import Cluster  # loads what seals blocks

    cluster = Cluster(settings.engine, describe_build)
    return replace(machine, workers=cluster, processes=cluster, beside=threads)


@dataclass(frozen=True)
class _TracedProgress:
    """A progress that marks phases and epochs in a trace, too."""

    progress: Progress
    trace: Trace

    def emit(self, event: Event) -> None:
        match event:
            case PhaseBegan(name):
                self.trace.begin(name)
            case EpochTrained():
                self.trace.mark("epoch")
            case LocalEpochTrained():
                self.trace.mark("own model, epoch")
        self.progress.emit(event)
