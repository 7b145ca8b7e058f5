"""A sweep: several trainings over one alignment, of which validation rows choose one. Only that one is measured.

::

    for each trial:   train, up to the end of its last epoch                 (Trainer.try_out)
                      ◄── trial, best so far ──                              the active party tells the others
    the best one:     go on from its last checkpoint: measure held-out rows  (Trainer.run)

Each trial is a training of its own: it draws everything anew but synthetic rows, and counts as one.

Leaks: beyond what each training tells, a bit for each trial that derives from labels.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from vfl_node.errors import ProtocolError
from vfl_node.execution.folder import JobFolder
from vfl_node.ledger import Disclosure
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.trainer import SweepTrial, Trained, Trainer, TrainingData, Tried
from vfl_node.transport.generated.vfl.v1 import training_pb2


class SweepTrials:
    """The trials of one job at one party, and what is stored of them.

    Args:
        folder: of the job.
        trials: how many there are.
    """

    def __init__(self, folder: JobFolder, trials: int) -> None:
        self._folder, self._trials = folder, trials

    def points(self) -> list[str]:
        """Where this party can go on, oldest first: checkpoints of the last two trials that have any."""
        begun = [number for number in range(self._trials) if self._place(number).exists()]
        return [f"t{number:03d}-{name}" for number in begun[-3:] for name in self._checkpoints(number).names()][-4:]

    async def run(self, session: Session, data: TrainingData, trainer: Trainer, resume: str | None) -> Trained:
        """Try all settings, and measure the best.

        Args:
            session: this party's; all trials draw from its randomness.
            data: what they train on.
            trainer: of the job.
            resume: one of :meth:`points` that all parties hold, or None to begin.

        Raises:
            VflError: as :meth:`vfl_node.training.trainer.Trainer.run`; or the active party ends another trial than is due
                (``E_ORDER``).
        """
        assert session.job.sweep
        settings = session.job.sweep.settings()
        begun, name = (int(resume[1:4]), resume[5:]) if resume else (0, None)
        done = self._read()[:begun]
        split = session.attempt.split
        if split is None:  # the same for all trials
            async with session.phase("sweep"):
                split = await toss(session, session.randomness.derive("toss"))
        for number in range(begun, len(settings)):
            own, checkpoints = _session_of(session, number, split), self._checkpoints(number)
            if name is None:
                checkpoints.clear()
            tried = await trainer.try_out(own, data, checkpoints, name)
            best = await _tell_best(session, number, [each for each, is_best in done if is_best], tried)
            done.append((tried, best))
            failpoints.reach("trial")
            write_checked(self._path, json.dumps([(dataclasses.asdict(each), is_best) for each, is_best in done]).encode())
            name = None
            needed = {number, number - 1, *[place for place, (_, is_best) in enumerate(done) if is_best][-1:]}
            for past in set(range(number)) - needed:
                shutil.rmtree(self._place(past), ignore_errors=True)
        chosen = max(number for number, (_, is_best) in enumerate(done) if is_best)
        checkpoints = self._checkpoints(chosen)
        trained = await trainer.run(_session_of(session, chosen, split), data, checkpoints, checkpoints.names()[-1])
        trials = tuple(SweepTrial(settings[number], tried, number == chosen) for number, (tried, _) in enumerate(done))
        told = _disclosures(session, sum(tried.epochs for tried, _ in done), len(done))
        learnt = {name: (*entries, *told.get(name, ())) for name, entries in trained.disclosures.items()}
        return dataclasses.replace(trained, trials=trials, disclosures=learnt)

    @property
    def _path(self) -> Path:
        return self._folder.path / "trials"

    def _place(self, number: int) -> Path:
        return self._folder.checkpoints / f"t{number:03d}"

    def _checkpoints(self, number: int) -> FileCheckpoints:
        return FileCheckpoints(self._place(number))

    def _read(self) -> list[tuple[Tried, bool]]:
        try:
            return [(Tried(**tried), best) for tried, best in json.loads(read_checked(self._path, hint="submit the job again"))]
        except FileNotFoundError:
            return []


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
    bit = f"from {active} after each trial whether it suits the labels best so far; it received gradients in {every}"
    passive = {name: (Disclosure("sweep", trials, bit),) for name in session.job.parties.passive}
    return {active: (Disclosure("sweep", trials, own),), **passive}


async def _tell_best(session: Session, number: int, before: Sequence[Tried], tried: Tried) -> bool:
    """Whether this trial is the best so far: the active party knows, and tells the others.

    Raises:
        ProtocolError: it ends another trial than is due, or the first one is not the best (``E_ORDER``).
    """
    assert session.job.sweep
    async with session.phase("sweep"):
        if session.role == "active":
            best = not before or _is_better(session.job.sweep.choose, tried, before[-1])
            for channel in session.data_peers.values():
                await channel.send(training_pb2.TrialEnd(trial=number + 1, best=best))
            return best
        message = await session.peer.receive(training_pb2.TrialEnd)
        if message.trial != number + 1 or (not number and not message.best):
            text = f"{session.peer.peer} ended trial {message.trial} where trial {number + 1} was due"
            raise ProtocolError(text, code="E_ORDER")
        return message.best


def _is_better(choose: str, tried: Tried, than: Tried) -> bool:
    """Whether a trial is better than the best before; where both are equal it is not. No number is worse than any."""
    return _merit(choose, tried) > _merit(choose, than)


def _merit(choose: str, tried: Tried) -> float:
    """The larger, the better."""
    figure = tried.auc if choose == "auc" else tried.loss
    if figure is None or math.isnan(figure):
        return -math.inf
    return figure if choose == "auc" else -figure
