"""One party's part in a job, from the first word to the report.

::

    preflight   same version, same job, same inputs; the newest point both can resume from
    align       which shared rows are mine                     (vfl_node.alignment)
    aligned     both know that both have kept it; only now may the lists go
    train       my half of the model, and how good the whole is (vfl_node.training)
    keep        model and report on this party's disk
    finish      both know that both have kept theirs; only now may either forget its secrets

The same coroutine runs over gRPC in a node's job thread and in memory in a simulation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from vfl_node import report
from vfl_node.alignment.alignment import Alignment, Memory, Party
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import ThreadWorkers, Workers
from vfl_node.data.tables import Table
from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Job
from vfl_node.models import storage
from vfl_node.node.preflight import preflight
from vfl_node.node.store import JobFolder, now
from vfl_node.progress import Progress
from vfl_node.settings import Limits, Obfuscation, Role, Settings
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.split import train_active, train_passive
from vfl_node.training.task import Task, TrainingResult
from vfl_node.transport.channel import Channel, Traffic

ALIGNED, KEPT = "aligned", "kept"
"""The first and last points a job can resume from; between them lie the training checkpoints."""


@dataclass(frozen=True)
class Part:
    """What one party brings to a job.

    Attributes:
        job: the shared part, as this party holds it.
        job_id: of this run.
        name: this party.
        role: its role.
        table: its records.
        randomness: its own for this job; the same on every attempt.
        folder: where it keeps what the job needs and leaves.
        progress: whom to tell.
        attempt: how often it has begun this job.
        device: where tensors are.
        workers: who computes group operations.
        memory: what this node remembers of the peer.
        limits: how small and how large sets may be.
        obfuscation: this owner's own wishes for an obfuscated set.
    """

    job: Job
    job_id: str
    name: str
    role: Role
    table: Table
    randomness: Randomness
    folder: JobFolder
    progress: Progress
    attempt: int
    device: torch.device
    workers: Workers
    memory: Memory
    limits: Limits
    obfuscation: Obfuscation

    @classmethod
    def on_this_machine(
        cls,
        settings: Settings,
        job: Job,
        job_id: str,
        table: Table,
        randomness: Randomness,
        folder: JobFolder,
        progress: Progress,
        attempt: int,
        memory: Memory,
    ) -> Part:
        """The part of the party with these settings, on its device and threads."""
        return cls(
            job=job,
            job_id=job_id,
            name=settings.name,
            role=settings.role,
            table=table,
            randomness=randomness,
            folder=folder,
            progress=progress,
            attempt=attempt,
            device=choose_device(settings.device),
            workers=ThreadWorkers(settings.group_workers),
            memory=memory,
            limits=settings.limits,
            obfuscation=settings.obfuscation,
        )


async def play(part: Part, channel: Channel) -> None:
    """Play ``part`` to its end; report and model lie in its folder's ``artefacts`` then.

    Raises:
        VflError: this party's or the peer's error.

    Leaks: what the job's alignment and training leak; the report says it in words.
    """
    started = now()
    checkpoints = FileCheckpoints(part.folder.checkpoints)
    points = [ALIGNED, *checkpoints.names()] if part.folder.load_alignment() else []
    if part.folder.kept:
        points.append(KEPT)
    agreed = await preflight(
        channel,
        part.job,
        own=part.name,
        attempt=part.attempt,
        checkpoints=points,
        input_digest=part.table.digest(),
        salt=part.randomness.derive("input commitment").bytes(32),
        inputs=part.folder,
    )
    if agreed.checkpoint != KEPT:
        alignment, seconds, traffic = await _aligned(part, channel, resume=agreed.checkpoint is not None)
        training = None
        if part.job.train:
            _check_enough_to_train(part, alignment)
            resume_from = None if agreed.checkpoint == ALIGNED else agreed.checkpoint
            training = await _trained(part, channel, alignment, checkpoints, resume_from)
        keep(part, alignment, seconds, {**channel.traffic, "align": traffic}, training, started)
    async with channel.phase("finish"):
        pass


async def _aligned(part: Part, channel: Channel, *, resume: bool) -> tuple[Alignment, float, Traffic]:
    """The alignment, its wall time and traffic: stored by an earlier attempt, or made now."""
    made = part.folder.load_alignment()
    if made is None or not resume:
        party = Party(
            name=part.name,
            ids=part.table.ids,
            randomness=part.randomness,
            workers=part.workers,
            pins=part.folder,
            progress=part.progress,
            folder=part.folder.lists,
            memory=part.memory,
            limits=part.limits,
            obfuscation=part.obfuscation,
        )
        began = time.monotonic()
        alignment = await align(part.role, part.job.align, channel, party)
        made = alignment, time.monotonic() - began, channel.traffic["align"]
        part.folder.save_alignment(*made)
    async with channel.phase("aligned"):
        pass
    part.folder.remove_lists()
    return made


def _check_enough_to_train(part: Part, alignment: Alignment) -> None:
    """Stop where fewer records are shared than the active party's owner wants, once the obfuscated set is agreed.

    Raises:
        PolicyError: so few (``E_STOPPED``).

    Leaks: that this party stops at its owner's discretion; the peer may guess why.
    """
    least, shared = part.obfuscation.min_intersection, alignment.intersection
    if alignment.protocol == "apsi" and shared is not None and shared < least:
        raise PolicyError(
            f"{shared} records are shared, fewer than this owner's minimum of {least}",
            code="E_STOPPED",
            hint="see obfuscation.min_intersection; to stop at all tells the other party something",
            for_peer="its owner does not go on",
        )


async def _trained(
    part: Part, channel: Channel, alignment: Alignment, checkpoints: FileCheckpoints, resume_from: str | None
) -> TrainingResult:
    assert part.job.train is not None
    task = Task(
        alignment=alignment,
        table=part.table,
        train=part.job.train,
        evaluate=part.job.evaluate,
        clock=time.monotonic,
        device=part.device,
        checkpoints=checkpoints,
        pins=part.folder,
        progress=part.progress,
    )
    train = train_active if part.role == "active" else train_passive
    return await train(channel, task, part.randomness.derive("train"), resume_from=resume_from)


def keep(
    part: Part,
    alignment: Alignment,
    align_seconds: float,
    traffic: dict[str, Traffic],
    training: TrainingResult | None,
    started: str,
) -> None:
    """Write this party's artefacts: its half of the model, and the report last."""
    folder = part.folder.artefacts
    folder.mkdir(mode=0o700, exist_ok=True)
    if training:
        head = {"job": part.job_id, "manifest_digest": part.job.digest(), "party": part.name, "encoder": training.encoder}
        storage.save(folder / "model.safetensors", training.weights, head)
    made = report.build(
        job=part.job,
        job_id=part.job_id,
        party=part.name,
        alignment=alignment,
        align_seconds=align_seconds,
        traffic=traffic,
        training=training,
        started=started,
        finished=now(),
        versions=report.installed_versions(),
    )
    report.write(made, folder)


def choose_device(wanted: str) -> torch.device:
    """The device that ``wanted`` names; ``auto`` is CUDA where there is one.

    Raises:
        UsageError: a CUDA device is asked for and absent (``E_DEVICE``); never a silent switch to the CPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return torch.device("cuda:0" if count else "cpu")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise UsageError(
            f"device {wanted} is not on this machine ({count} CUDA devices)", code="E_DEVICE", hint="set device: auto or cpu"
        )
    return device
