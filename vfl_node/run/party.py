"""One party's part in a job, from the first word to the report.

::

    preflight   same version, same job, same inputs; the newest point both can resume from
    align       which shared rows are mine                     (vfl_node.alignment)
    aligned     both know that both have kept it; only now may the lists go
    train       my half of the model, and how good the whole is (vfl_node.training)
    keep        model and report on this party's disk
    finish      all know that all have kept theirs; only now may any forget its secrets

A coordinator has a conversation of its own with each data party, and in it only: preflight,
decrypt, keep, finish.

The same coroutines run over gRPC in a node's job threads and in memory in a simulation.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vfl_node import failpoints
from vfl_node.alignment.alignment import Alignment, Memory, Party
from vfl_node.alignment.protocols import align
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.engines.contract import Engine
from vfl_node.engines.processes import Processes
from vfl_node.engines.threads import Threads
from vfl_node.errors import PolicyError, UsageError
from vfl_node.estimate.estimate import after_alignment
from vfl_node.estimate.memory import check_steps
from vfl_node.files import private_folder, write_whole
from vfl_node.job import Job, Logistic
from vfl_node.machine import now
from vfl_node.models import storage
from vfl_node.progress import Progress
from vfl_node.report import envelope
from vfl_node.run import serving
from vfl_node.run.folder import JobFolder
from vfl_node.run.inputs import taking_part
from vfl_node.run.preflight import Agreement, preflight
from vfl_node.run.serving import PREDICTIONS, FileTally, Predicting
from vfl_node.run.shown import FileShown
from vfl_node.settings import Limits, Obfuscation, Protection, Role, Settings
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.logistic import coordinator
from vfl_node.training.logistic.decryption import FileDecryptionLog, tensors_of
from vfl_node.training.logistic.regression import regress
from vfl_node.training.logistic.task import Regression
from vfl_node.training.split.loop import check_batch_fits, train_active, train_passive
from vfl_node.training.split.serving import Embedder, Predicted, Scorer, Served, ServedModel, predict_once, serve
from vfl_node.training.task import Task, TrainingResult, device_name
from vfl_node.transport.channel import Channel, Traffic

ALIGNED, KEPT = "aligned", "kept"
"""The first and last points a job can resume from; between them lie the training checkpoints."""

NO_INPUT = hashlib.sha256(b"no input").digest()
"""Stands for the table that a coordinator has not."""


@dataclass(frozen=True)
class Part:
    """What one party brings to a job.

    Attributes:
        job: the shared part, as this party holds it.
        job_id: of this run.
        name: this party.
        role: its role.
        whole: its table, of which the job is held to the digest; None at a coordinator.
        table: the records of it that take part: all, or as many as ``align.at_most`` allows.
        randomness: its own for this job; the same on every attempt.
        folder: where it keeps what the job needs and leaves.
        progress: whom to tell.
        attempt: how often it has begun this job.
        device: where tensors are.
        workers: who computes group operations.
        processes: who computes on ciphertexts.
        memory: what this node remembers of the other data party; None at a coordinator.
        limits: how small and how large sets may be.
        obfuscation: this owner's own wishes for an obfuscated set.
        protection: what this owner does about what tensors tell.
        predicting: what it brings to a job of predictions, else None.
    """

    job: Job
    job_id: str
    name: str
    role: Role
    whole: Table | None
    table: Table | None
    randomness: Randomness
    folder: JobFolder
    progress: Progress
    attempt: int
    device: torch.device
    workers: Engine
    processes: Engine
    memory: Memory | None
    limits: Limits
    obfuscation: Obfuscation
    protection: Protection
    predicting: Predicting | None = None

    @classmethod
    def on_this_machine(
        cls,
        settings: Settings,
        job: Job,
        job_id: str,
        table: Table | None,
        randomness: Randomness,
        folder: JobFolder,
        progress: Progress,
        attempt: int,
        memory: Memory | None,
        predicting: Predicting | None = None,
    ) -> Part:
        """The part of the party with these settings, on its device and threads.

        Args:
            table: its whole table; None at a coordinator. In a job of predictions, the records that it predicts.

        Raises:
            DataError, PolicyError: as :func:`vfl_node.node.predictions.taking_part`.
        """
        part = table
        if table is not None and predicting is None:
            assert memory is not None
            part = taking_part(table, job.align, memory, settings.limits, settings.name)
        return cls(
            job=job,
            job_id=job_id,
            name=settings.name,
            role=settings.role,
            whole=table,
            table=part,
            randomness=randomness,
            folder=folder,
            progress=progress,
            attempt=attempt,
            device=choose_device(settings.device),
            workers=Threads(settings.group_workers),
            processes=Processes(settings.group_workers),
            memory=memory,
            limits=settings.limits,
            obfuscation=settings.obfuscation,
            protection=settings.protection,
            predicting=predicting,
        )


def conversations(part: Part, channels: Mapping[str, Channel]) -> list[Coroutine[Any, Any, None]]:
    """What runs side by side in one attempt: one coroutine of a data party, one for each peer at a coordinator.

    Args:
        part: what this party brings.
        channels: peer → the conversation with it, in the order of the job's parties.
    """
    parties = part.job.parties
    if part.role == "coordinator":
        desk = CoordinatorRun(part)
        return [desk.attend(peer, channel) for peer, channel in channels.items()]
    other = next(name for name in (parties.active, *parties.passive) if name != part.name)
    if part.predicting:
        return [_predict(part, channels[other], part.predicting)]
    return [_play(part, channels[other], channels[parties.coordinator] if parties.coordinator else None)]


async def _play(part: Part, channel: Channel, helper: Channel | None) -> None:
    """Play a data party's ``part`` to its end; report and model lie in its folder's ``artefacts`` then.

    Args:
        part: what it brings.
        channel: the conversation with the other data party.
        helper: the conversation with the coordinator, where the job has one.

    Raises:
        VflError: this party's or a peer's error.

    Leaks: what the job's alignment and training leak; the report says it in words.
    """
    assert part.whole is not None
    started, digest = now(), part.whole.digest()
    checkpoints = FileCheckpoints(part.folder.checkpoints)
    points = [ALIGNED, *checkpoints.names()] if part.folder.load_alignment(channel.peer) else []
    if part.folder.whole:
        points.append(KEPT)
    agreed = await _meet(part, channel, points, digest)
    if helper:
        await _meet(part, helper, [KEPT] if agreed.checkpoint == KEPT else [], digest)
    if agreed.checkpoint != KEPT:
        alignment, seconds, traffic = await _aligned(part, channel, resume=agreed.checkpoint is not None)
        training = None
        if part.job.train:
            which = _which_training(part, alignment)
            _check_enough_to_train(part, alignment)
            check_steps(part.job, len(alignment), part.limits)
            if takes := after_alignment(part.job, alignment):
                part.progress.remark(takes)
            resume_from = None if agreed.checkpoint == ALIGNED else agreed.checkpoint
            training = await _trained(part, channel, helper, alignment, checkpoints, resume_from, which)
        moved = {**channel.traffic, "align": traffic}
        if helper:
            moved |= {f"{phase} (coordinator)": of for phase, of in helper.traffic.items()}
        keep(part, alignment, seconds, moved, training, started)
    failpoints.reach("finish")
    for conversation in (channel, helper):
        if conversation:
            async with conversation.phase("finish"):
                pass


async def _predict(part: Part, channel: Channel, predicting: Predicting) -> None:
    """Play a data party's ``part`` in a job of predictions to its end; args, raises and result as :func:`_play`.

    Leaks: as :func:`vfl_node.training.split.serving.learnt` says.
    """
    assert part.whole is not None
    assert part.table is not None
    assert part.job.predict is not None
    started, model = now(), predicting.model
    shown = FileShown(model.shown, part.limits.rows_per_model)
    points = [ALIGNED] if part.folder.load_alignment(channel.peer) else []
    agreed = await _meet(part, channel, [*points, KEPT] if part.folder.whole else points, part.whole.digest())
    if agreed.checkpoint != KEPT:
        made: Served | Predicted
        if part.job.predict.rows == "known":
            aligned = None
            side = _serving_side(part, model.kept, model.alignment)
            tally = FileTally(part.folder)
            made = await serve(
                channel,
                part.job.predict,
                side,
                predicting.requests,
                part.progress,
                shown=shown,
                tally=tally,
                protection=part.protection,
            )
        else:
            aligned = await _aligned(part, channel, resume=agreed.checkpoint is not None)
            side = _serving_side(part, model.kept, aligned[0])
            found = await predict_once(channel, part.job.predict, side, part.progress, shown=shown)
            if found and predicting.records:
                private_folder(part.folder.artefacts)
                write_whole(part.folder.artefacts / PREDICTIONS, predicting.records.predicted(found))
            nothing = np.empty(0, dtype=np.int64)
            made = found or Predicted(nothing, nothing.astype(np.float64), shared=len(aligned[0]))
        alignment, seconds, traffic = aligned or (None, None, None)
        moved = {**channel.traffic, "align": traffic} if traffic else channel.traffic
        keep(part, alignment, seconds, moved, None, started, made)
    failpoints.reach("finish")
    async with channel.phase("finish"):
        pass


def _serving_side(part: Part, kept: ServedModel, alignment: Alignment) -> Embedder | Scorer:
    """This party's half of a trained model, over the training's alignment or a new one."""
    assert part.table is not None
    if part.role == "active":
        return Scorer(kept, alignment, part.table, part.device)
    return Embedder(kept, alignment, part.table, part.device, part.protection.defences)


class CoordinatorRun:
    """A coordinator's conversations with the data parties, and the one report that they have in common."""

    def __init__(self, part: Part) -> None:
        parties = part.job.parties
        self._part, self._started = part, now()
        self._journals = {
            name: FileDecryptionLog(part.folder.path / f"decryptions-{name}") for name in (parties.active, *parties.passive)
        }
        self._traffic: dict[str, Traffic] = {}
        self._over: set[str] = set()
        self._one = threading.Lock()  # every conversation may have a thread of its own
        self._private: keys.PrivateKey | None = None
        assert isinstance(part.job.train, Logistic)
        each = [tensor for role in ("active", "passive") for tensor in tensors_of(part.job.train, role)]
        part.progress.phase("decrypt", part.job.train.iterations * len(each), "requests")

    async def attend(self, peer: str, channel: Channel) -> None:
        """The conversation with one data party, from the first word to the last."""
        part = self._part
        assert isinstance(part.job.train, Logistic)
        agreed = await _meet(part, channel, [KEPT], NO_INPUT)
        if agreed.checkpoint != KEPT:
            await coordinator.coordinate(
                channel,
                part.job.train,
                "active" if peer == part.job.parties.active else "passive",
                self._key(part.job.train.key_bits),
                workers=part.processes,
                journal=self._journals[peer],
                pins=part.folder,
                other=next(name for name in self._journals if name != peer),
                progress=part.progress,
            )
        await self._keep(peer, channel)
        failpoints.reach("finish")
        async with channel.phase("finish"):
            pass

    def _key(self, bits: int) -> keys.PrivateKey:
        """The job's key: made from its stored secret, so the same after a restart."""
        with self._one:
            if self._private is None:
                self._private = keys.generate(bits, self._part.randomness.derive("paillier key"))
            return self._private

    async def _keep(self, peer: str, channel: Channel) -> None:
        """Write the report once the last has no more to decrypt: where it is, the key is needed no more.

        It is written once: as soon as one conversation ends after it a data party may be done, and what is whole must stay so.
        """
        with self._one:
            self._traffic |= {f"{phase} ({peer})": of for phase, of in channel.traffic.items()}
            self._over.add(peer)
        while len(self._over) < len(self._journals):
            await channel.pause()
        with self._one:
            if not self._part.folder.whole:
                counts = {name: journal.read() for name, journal in self._journals.items()}
                keep(self._part, None, None, self._traffic, coordinator.result(self._part.job, counts), self._started)


async def _meet(part: Part, channel: Channel, points: list[str], input_digest: bytes) -> Agreement:
    return await preflight(
        channel,
        part.job,
        own=part.name,
        attempt=part.attempt,
        checkpoints=points,
        input_digest=input_digest,
        salt=part.randomness.derive("input commitment").bytes(32),
        inputs=part.folder,
    )


async def _aligned(part: Part, channel: Channel, *, resume: bool) -> tuple[Alignment, float, Traffic]:
    """The alignment, its wall time and traffic: stored by an earlier attempt, or made now."""
    assert part.whole is not None
    assert part.table is not None
    assert part.memory is not None
    assert part.role != "coordinator"
    made = part.folder.load_alignment(channel.peer)
    if made is None or not resume:
        party = Party(
            name=part.name,
            ids=part.table.ids,
            identity=part.whole.identity,
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
        failpoints.reach("align-keep")
        part.folder.save_alignment(*made)
        failpoints.reach("aligned")
    async with channel.phase("aligned"):
        pass
    part.folder.remove_lists()
    return made


def _which_training(part: Part, alignment: Alignment) -> int:
    """Which training with synthetic rows over these records with this partner it is; 1 where no row is synthetic.

    A training counts from here on, whatever becomes of it: on the disk before its first message.

    Raises:
        PolicyError: it would be more than this owner allows (``E_BUDGET``).

    Leaks: by a refusal, about how many trainings this owner allows. Whether and when it comes depends on that and on what
    both parties know, how many trainings there were over which set and whether rows can be synthetic: under apsi
    every one counts, since whether any row is would tell the passive party whether it is given the bare intersection.
    For the same reason this comes before this owner looks at how many records are shared.
    """
    assert part.whole is not None
    assert part.memory is not None
    synthetic = alignment.hides_intersection or alignment.has_synthetic_rows
    if isinstance(part.job.train, Logistic) or not synthetic:
        return 1
    return part.memory.count_trainings(part.whole.identity, part.job_id, part.limits.trainings_per_set)


def _check_enough_to_train(part: Part, alignment: Alignment) -> None:
    """Stop where fewer records are shared than the active party's owner wants, once the obfuscated set is agreed.

    Raises:
        PolicyError: so few (``E_STOPPED``).

    Leaks: that this party stops at its owner's discretion; the peer may guess why.
    """
    least, shared = part.obfuscation.min_intersection, alignment.peer.intersection
    if alignment.hides_intersection and shared is not None and shared < least:
        raise PolicyError(
            f"{shared} records are shared, fewer than this owner's minimum of {least}",
            code="E_STOPPED",
            hint="see obfuscation.min_intersection; to stop at all tells the other party something",
            for_peer="its owner does not go on",
        )


async def _trained(
    part: Part,
    channel: Channel,
    helper: Channel | None,
    alignment: Alignment,
    checkpoints: FileCheckpoints,
    resume_from: str | None,
    which: int,
) -> TrainingResult:
    job, randomness = part.job, part.randomness.derive("train")
    assert part.table is not None
    assert part.role != "coordinator"
    if isinstance(job.train, Logistic):
        regression = Regression(
            parties=job.parties,
            role=part.role,
            alignment=alignment,
            table=part.table,
            train=job.train,
            evaluate=job.evaluate,
            attempt=part.attempt,
            workers=part.processes,
            journal=FileDecryptionLog(part.folder.path / f"decryptions-{channel.peer}"),
            checkpoints=checkpoints,
            pins=part.folder,
            clock=time.monotonic,
            progress=part.progress,
        )
        return await regress(channel, helper, regression, randomness, resume_from=resume_from)
    assert job.train is not None
    device, defences = device_name(part.device), [params.model_dump(mode="json") for params in part.protection.defences]
    text = f"this node computes on {device}, and the job began on another device"
    part.folder.check_setting("device", device, text=text, code="E_DEVICE")
    text = "the job began with other defences than those in this node's settings"
    part.folder.check_setting("defences", json.dumps(defences), text=text, code="E_DEFENCES")
    if job.serve:
        check_batch_fits(job.serve.batch_size, job.train, setting="serve.batch_size")
    task = Task(
        alignment=alignment,
        table=part.table,
        train=job.train,
        evaluate=job.evaluate,
        clock=time.monotonic,
        party=part.name,
        device=part.device,
        checkpoints=checkpoints,
        pins=part.folder,
        progress=part.progress,
        protection=part.protection,
        training=which,
    )
    train = train_active if part.role == "active" else train_passive
    return await train(channel, task, randomness, resume_from=resume_from)


def keep(
    part: Part,
    alignment: Alignment | None,
    align_seconds: float | None,
    traffic: dict[str, Traffic],
    training: TrainingResult | None,
    started: str,
    predicted: Served | Predicted | None = None,
) -> None:
    """Write this party's artefacts: its half of the model, and the report last."""
    failpoints.reach("keep")
    folder = part.folder.artefacts
    private_folder(folder)
    if training and training.weights:
        head = {"job": part.job_id, "manifest_digest": part.job.digest(), "party": part.name, "encoder": training.encoder}
        storage.save(folder / "model.safetensors", training.weights, head)
    if training and part.job.serve:
        assert part.table is not None
        serving.keep(part.folder, training, part.table)
    made = envelope.build(
        job=part.job,
        job_id=part.job_id,
        party=part.name,
        alignment=alignment,
        align_seconds=align_seconds,
        records=None if part.whole is None else len(part.whole),
        protection=part.protection,
        traffic=traffic,
        training=training,
        predictions=predicted,
        started=started,
        finished=now(),
        versions=envelope.installed_versions(),
    )
    envelope.write(made, folder)
    part.folder.seal()
    failpoints.reach("kept")


def choose_device(wanted: str) -> torch.device:
    """The device that ``wanted`` names; ``auto`` is CUDA where there is one.

    Raises:
        UsageError: a CUDA device is asked for and absent (``E_DEVICE``); never a silent switch to the CPU.
    """
    failpoints.reach("device")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return torch.device("cuda:0" if count else "cpu")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise UsageError(
            f"device {wanted} is not on this machine ({count} CUDA devices)", code="E_DEVICE", hint="set device: auto or cpu"
        )
    return device
