"""A sweep: several trainings over one alignment, of which validation rows choose one. Only that one is measured.

::

    for each rung:
        for each trial that is left:   train, up to the rung's last epoch                        (Trainer.try_out)
                                       ◄── trial, those that are kept so far ──                  the active party tells
    the one that is kept:              go on from its last checkpoint: measure held-out rows     (Trainer.run)

Without halving there is one rung, and one trial is kept in it. Each trial is a training of its own: it draws everything
anew but synthetic rows, and counts as one. It goes on in the next rung from its last checkpoint.

Leaks: beyond what each training tells, which trials are kept after each one, which derives from labels.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vfl_node.errors import ProtocolError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.process import failpoints
from vfl_node.process.files import make_names_durable, read_checked, write_checked
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.trainer import SweepTrial, Trained, Trainer, TrainingData, Tried
from vfl_node.transport.generated.vfl.v1 import training_pb2


@dataclass(frozen=True)
class TrialStep:
    """One trial in one rung, done.

    Attributes:
        trial: its number, from 0.
        tried: what it has come to.
        kept: the trials of the rung that are kept so far, ascending.
    """

    trial: int
    tried: Tried
    kept: tuple[int, ...]


@dataclass(frozen=True)
class DueStep:
    """The next step.

    Attributes:
        trial: its number, from 0.
        until: the rung's last epoch; None: as many as the trial says.
        before: the step in which the trial was trained before; None: it begins.
        candidates: trials that were kept in the rung before this step, ascending.
        waiting: the step before of each trial that is yet to come in the rung.
        keeps: how many trials are kept at its end.
    """

    trial: int
    until: int | None
    before: int | None
    candidates: tuple[int, ...]
    waiting: tuple[int, ...]
    keeps: int


def due(job: Job, done: Sequence[TrialStep]) -> DueStep | None:
    """What comes after the steps that are ``done``; None: nothing but to measure the one that is kept."""
    assert job.sweep
    rungs = job.sweep.rungs(getattr(job.train, "epochs", 1))
    last, left, first = _last_steps(done), tuple(range(rungs[0].trials)), 0
    for rung, later in zip(rungs, [*(rung.trials for rung in rungs[1:]), 1], strict=True):
        if (place := len(done) - first) < rung.trials:
            trial, waiting = left[place], tuple(last[each] for each in left[place + 1 :] if each in last)
            return DueStep(trial, rung.epochs, last.get(trial), done[-1].kept if place else (), waiting, later)
        first += rung.trials
        left = done[first - 1].kept
    return None


def _newest(done: Sequence[TrialStep]) -> dict[int, Tried]:
    """Trial → what it has come to in its last step."""
    return {step.trial: step.tried for step in done}


def _last_steps(done: Sequence[TrialStep]) -> dict[int, int]:
    """Trial → the step in which it was trained last."""
    return {step.trial: number for number, step in enumerate(done)}


class SweepTrials:
    """The trials of one job at one party, and what is stored of them.

    Args:
        folder: of the job.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder

    def points(self) -> list[str]:
        """Where this party can go on, oldest first: checkpoints of the last steps that have any."""
        done = len(self._read())  # later ones are of a run that all began anew, and say nothing of what is due then
        begun = sorted(number for path in self._folder.checkpoints.glob("t*") if (number := int(path.name[1:])) <= done)
        return [f"t{number:03d}-{name}" for number in begun[-3:] for name in self._checkpoints(number).names()][-4:]

    async def run(self, session: Session, data: TrainingData, trainer: Trainer, resume: str | None) -> Trained:
        """Try all settings, and measure the best.

        Args:
            session: this party's; all trials draw from its randomness.
            data: what they train on.
            trainer: of the job.
            resume: one of :meth:`points` that all parties hold, or None to begin.

        Raises:
            VflError: as :meth:`vfl_node.training.trainer.Trainer.run`; or the active party ends another trial than is due, or
                keeps others than it may (``E_ORDER``).
        """
        begun, name = (int(resume[1:4]), resume[5:]) if resume else (0, None)
        done = self._read()[:begun]
        split = session.attempt.split
        if split is None:  # the same for all trials
            async with session.phase("sweep"):
                split = await toss(session, session.randomness.derive("toss"))
        while step := due(session.job, done):
            number = len(done)
            checkpoints = self._checkpoints(number)
            if name is None:
                checkpoints.clear()
                name = self._take_over(step.before, number)
            tried = await trainer.try_out(_session_of(session, step.trial, split), data, checkpoints, name, step.until)
            kept = await tell_kept(session, step, _newest(done) | {step.trial: tried})
            done.append(TrialStep(step.trial, tried, kept))
            failpoints.reach("trial")
            write_checked(self._path, json.dumps([dataclasses.asdict(each) for each in done]).encode())
            name, last = None, _last_steps(done)
            needed = {number, number - 1, step.before, *step.waiting, *(last[trial] for trial in done[-1].kept)}
            for past in set(range(number)) - needed:
                shutil.rmtree(self._place(past), ignore_errors=True)
        (chosen,) = done[-1].kept
        checkpoints = self._checkpoints(_last_steps(done)[chosen])
        trained = await trainer.run(_session_of(session, chosen, split), data, checkpoints, checkpoints.names()[-1])
        every = _newest(done)
        assert session.job.sweep
        settings = session.job.sweep.settings()
        trials = tuple(SweepTrial(setting, every[number], number == chosen) for number, setting in enumerate(settings))
        told = _disclosures(session, sum(tried.epochs for tried in every.values()), len(trials))
        learnt = {name: (*entries, *told.get(name, ())) for name, entries in trained.disclosures.items()}
        return dataclasses.replace(trained, trials=trials, disclosures=learnt)

    def _take_over(self, before: int | None, number: int) -> str | None:
        """Begin a step at the last checkpoint of the trial's step before; its name, or None: there was none."""
        if before is None:
            return None
        name = self._checkpoints(before).names()[-1]
        file = f"{name}.checkpoint"
        os.link(self._place(before) / file, self._place(number) / file)
        make_names_durable(self._place(number))
        return name

    @property
    def _path(self) -> Path:
        return self._folder.path / "trials"

    def _place(self, number: int) -> Path:
        return self._folder.checkpoints / f"t{number:03d}"

    def _checkpoints(self, number: int) -> FileCheckpoints:
        return FileCheckpoints(self._place(number))

    def _read(self) -> list[TrialStep]:
        try:
            stored: list[dict[str, Any]] = json.loads(read_checked(self._path, hint="submit the job again"))
        except FileNotFoundError:
            return []
        return [TrialStep(each["trial"], Tried(**each["tried"]), tuple(each["kept"])) for each in stored]


def trial_name(job_id: str, number: int) -> str:
    """What stands for one trial of a job where trainings are counted, from 0; the first is the job itself."""
    return f"{job_id}.t{number:03d}" if number else job_id


def _session_of(session: Session, number: int, split: bytes) -> Session:
    """The session of one trial, which holds out the rows of all."""
    attempt = dataclasses.replace(session.attempt.part(f"trial {number}"), split=split)
    return dataclasses.replace(
        session,
        job=session.job.trial(number),
        randomness=session.randomness.derive(f"trial/{number}"),
        attempt=dataclasses.replace(attempt, job_id=trial_name(session.attempt.job_id, number)),
    )


def _disclosures(session: Session, epochs: int, trials: int) -> dict[str, tuple[Disclosure, ...]]:
    """What each party learnt by the trials, beside what the chosen one told."""
    active, every = session.job.parties.active, f"all {trials} trials, {epochs:,} epochs together"
    own = f"by the validation loss of its own labels which setting is the best; it received embeddings in {every}"
    parts = "trial" if session.job.sweep and session.job.sweep.by != "halving" else "part of a trial"
    told = f"from {active} after each {parts} which ones suit the labels best so far; it received gradients in {every}"
    passive = {name: (Disclosure("sweep", trials, told),) for name in session.job.parties.passive}
    return {active: (Disclosure("sweep", trials, own),), **passive}


async def tell_kept(session: Session, step: DueStep, tried: Mapping[int, Tried]) -> tuple[int, ...]:
    """Which trials of the rung are kept so far: the active party knows, and tells the others. Where two are equal, the earlier.

    Raises:
        ProtocolError: it ends another trial than is due, or keeps others than it may (``E_ORDER``).
    """
    assert session.job.sweep
    candidates = (*step.candidates, step.trial)
    count = min(step.keeps, len(candidates))
    async with session.phase("sweep"):
        if session.role == "active":
            choose = session.job.sweep.choose
            best = sorted(candidates, key=lambda trial: -_merit(choose, tried[trial]))
            kept = tuple(sorted(best[:count]))
            end = training_pb2.TrialEnd(trial=step.trial + 1, kept=[trial + 1 for trial in kept])
            for channel in session.data_peers.values():
                await channel.send(end)
            return kept
        message = await session.peer.receive(training_pb2.TrialEnd)
        kept = tuple(trial - 1 for trial in message.kept)
        if message.trial != step.trial + 1 or len(kept) != count or kept != tuple(sorted(set(kept) & set(candidates))):
            text = (
                f"{session.peer.peer} ended trial {message.trial} where trial {step.trial + 1} was due, or kept another number"
            )
            raise ProtocolError(f"{text} of trials than {count}", code="E_ORDER")
        return kept


def _merit(choose: str, tried: Tried) -> float:
    """The larger, the better; no number is worse than any."""
    figure = tried.auc if choose == "auc" else tried.loss
    if figure is None or math.isnan(figure):
        return -math.inf
    return figure if choose == "auc" else -figure
