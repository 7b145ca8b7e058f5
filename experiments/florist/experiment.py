"""One training over a union, by the product's own halves, measured as only one who has both tables can.

Both halves (``vfl_node/training/split``) talk over memory channels, a step at a time, so that
baselines and figures within an epoch are possible, which the product's own loop has no use for.
Each party owns a row with a chance of its own, so some rows are synthetic on both sides, as under
dummies. The test rows, a quarter, have both parties' real columns.

Within one seed all trainings share split, batches, owners and initial randomness: differences
between them are paired. A row that a party lacks at one ratio it lacks at every larger one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.leakage import GradientDirection, judged, scores
from benchmarks.sessions import session
from experiments.florist.data import SOURCES, Records
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.tables import Table
from vfl_node.job import Parties, load_job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics import classes as metrics
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.storage import take_part
from vfl_node.privacy.attacks import ATTACKS, joint, spectral
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.privacy.equal_weights import works_at_once
from vfl_node.progress import Silent
from vfl_node.training.boosted_tree import design
from vfl_node.training.network.half import RepeatStart
from vfl_node.training.network.local import local_logits, train_local
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Calibration, Composition, calibration
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.split.tasks import local_rate
from vfl_node.training.trainer import TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels
from vfl_node.transport.recorder import Recorder

JOB = Path(__file__).with_name("job.yaml")
OTHERWISE: dict[str, dict[str, Any]] = {
    "talkingdata": {"batch_size": 128, "learning_rate": 0.01},
    "made_up": {"batch_size": 64},
}
"""Settings that differ from those of the job; all were chosen once, for the baseline that lacks no row (see README.md)."""

ACTIVE, PASSIVE = "bank", "bureau"
PARTIES = Parties(active=ACTIVE, passive=(PASSIVE,))
POINTS = 12
"""How often a training is measured on its way."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Trial:
    """One training. What is equal here gives equal bits.

    Attributes:
        data: name of the records.
        seed: of everything that is drawn.
        alpha: share of rows whose features the passive party makes up.
        beta: share of rows whose labels the active party makes up.
        labels: how (see docs/explanations/training/split.md); ``features``, ``draws`` and ``calibration`` likewise.
        real_only: the baseline that leaves synthetic rows out of each batch.
        rows: how many are trained on; 0: all.
        epochs: 0: as the job says; ``learning_rate`` likewise.
        attacked: after which epochs the transcript is attacked, by ``attacks``.
        watched: whether it is measured on its way.
        at_active: how many columns are the active party's, the first ones.
        joint: whether each party runs the joint attack at the end; then the first half of the columns is the active party's.
        training: which training over the same alignment it is; another one has other weights, batches and draws.
        kept: whether its synthetic rows, and labels that are fixed, are those of training 0 all the same.
    """

    data: str
    seed: int
    alpha: float = 0.0
    beta: float = 0.0
    labels: str = "majority"
    features: str = "sampling"
    draws: int = 1
    calibration: str = "none"
    real_only: bool = False
    rows: int = 0
    epochs: int = 0
    learning_rate: float = 0.0
    attacked: tuple[int, ...] = ()
    attacks: tuple[str, ...] = ("spectral",)
    watched: bool = False
    at_active: int = 0
    joint: bool = False
    training: int = 0
    kept: bool = True

    @property
    def train(self) -> Train:
        """The section of a job."""
        missing: dict[str, Any] = {name: getattr(self, name) for name in ("labels", "features", "calibration")}
        if self.draws > 1:
            missing["draws"] = self.draws
        if self.calibration != "none":
            missing["shares"] = {"active": 1 - self.beta, "passive": 1 - self.alpha}
        chosen = {name: value for name in ("epochs", "learning_rate") if (value := getattr(self, name))}
        changes = OTHERWISE.get(self.data, {}) | chosen
        return Train.model_validate(_job().model_dump() | changes | {"missing": missing})

    @property
    def name(self) -> str:
        """Tells it from every other trial, and from the same one under other settings of the job."""
        chosen = [f"{field.name}={value}" for field in fields(self) if (value := getattr(self, field.name)) != field.default]
        settings = hashlib.sha256(self.train.model_dump_json(exclude={"missing"}).encode()).hexdigest()
        return " ".join([*chosen, f"settings={settings[:8]}"])


def run(trial: Trial, folder: Path) -> dict[str, Any]:
    """Train, and measure on the test rows.

    Args:
        trial: what.
        folder: of the shared data sets.

    Returns:
        JSON. ``test``: reading → {auc, ace, nll}, where ``plain`` is the model as it was trained, ``te`` calibrated
        afterwards for what is synthetic, ``te-labels`` for the labels alone. ``attacks``: attack → AUC after each of the
        epochs :attr:`Trial.attacked`; ``equal weights``: on all rows as the last weights embed them.
        ``joint``: attacker → AUC of the joint attack; empty where it is not asked for.
        ``curve``: (step, training loss since the last point, test loss, test AUC).
        ``real``: rows that are real on both sides.
    """
    training = Training(trial, folder)
    curve = []
    for step, loss in training.steps():
        if trial.watched:
            measured = training.measure()["plain"]
            curve.append((step, loss, measured["nll"], measured["auc"]))
    found = [training.attack(epochs) for epochs in trial.attacked]
    return {
        "test": training.measure(),
        "attacks": {name: [outcome[name] for outcome in found] for name in trial.attacks if found},
        "equal weights": training.attack_at_once() if trial.attacked and len(trial.attacks) > 1 else {},
        "joint": {party: training.joint(name) for party, name in (("active", ACTIVE), ("passive", PASSIVE))}
        if trial.joint
        else {},
        "curve": curve,
        "real": training.real,
    }


def randomness_of(data: str, seed: int) -> Randomness:
    """What all draws of one seed follow from."""
    return Randomness(hashlib.sha256(f"florist, {data}, {seed}".encode()).digest())


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a seed fixes for every training.

    Attributes:
        tested: records on which models are tested.
        trained: those on which they are trained.
        owns: party → bool of each of the latter: whether the party has it.
    """

    tested: NDArray[np.int64]
    trained: NDArray[np.int64]
    owns: dict[str, Bools]

    @classmethod
    def draw(cls, randomness: Randomness, records: int, *, alpha: float, beta: float, rows: int = 0) -> Drawn:
        """See :class:`Trial`; a quarter of the ``records`` is tested on."""
        tested, trained = np.split(randomness.derive("split").permutation(records), [records // 4])
        trained = trained[: rows or None]

        def owned(name: str, lacks: float) -> Bools:
            return np.asarray(randomness.derive(f"owned by {name}").uint64(len(trained)) >= lacks * 2.0**64)

        return cls(tested, trained, {ACTIVE: owned(ACTIVE, beta), PASSIVE: owned(PASSIVE, alpha)})


class Training:
    """Both parties of one trial, and the rows that it is tested on."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self._trial, records = trial, records_of(trial.data, folder)
        randomness = randomness_of(trial.data, trial.seed)
        drawn = Drawn.draw(randomness, len(records), alpha=trial.alpha, beta=trial.beta, rows=trial.rows)
        tested, trained, owns = drawn.tested, drawn.trained, drawn.owns
        both = owns[ACTIVE] & owns[PASSIVE]
        kept = both if trial.real_only else np.ones_like(both)
        anew = randomness.derive(f"training/{trial.training}") if trial.training else randomness
        schedule = Schedule(anew.derive("schedule").bytes(32), len(trained), salt=0)
        self.real = int(both.sum())
        self._batches = list(_batches(schedule, trial.train, kept))
        self._secret = {name: ~owned[kept] for name, owned in owns.items()}

        names = list(records.columns)
        self._at_active = len(names) // 2 if trial.joint else trial.at_active
        columns = {ACTIVE: names[: self._at_active], PASSIVE: names[self._at_active :]}
        self._recorder = Recorder()
        channels = dict(zip(owns, memory_channels(ACTIVE, PASSIVE), strict=True))
        if trial.attacked:
            channels = {name: self._recorder.wrap(name, channel) for name, channel in channels.items()}
        self._own = randomness.derive(ACTIVE)
        self._halves: dict[str, Any] = {}
        self._tables: dict[str, Table] = {}
        self._rows: dict[str, NDArray[np.int64]] = {}
        self._tested: dict[str, Table] = {}
        for name, other, half_of in ((ACTIVE, PASSIVE, ActiveHalf), (PASSIVE, ACTIVE, PassiveHalf)):
            mine = owns[name][kept]
            view = Alignment(
                ALIGNMENTS["psu"],
                "curve25519",
                np.where(mine, np.cumsum(mine) - 1, NOT_MINE),
                ours=int(mine.sum()),
                peers={
                    other: PeerFacts(int(owns[other][kept].sum()), intersection=self.real, missing=int(mine.sum()) - self.real)
                },
            )
            table = self._tables[name] = records.table(trained[kept][mine], columns[name], labelled=name == ACTIVE)
            self._rows[name] = view.rows
            own_session = session(name, {other: channels[name]}, anew, train=trial.train, parties=PARTIES, clock=lambda: 0.0)
            lasting = (randomness if trial.kept else anew).derive(f"{name} draws")
            start = RepeatStart(anew.derive(name), anew.derive(f"{name} draws"), 0, np.arange(len(mine)), lasting=lasting)
            self._halves[name] = half_of(own_session, TrainingData(view, table), start)
            self._tested[name] = records.table(tested, columns[name], labelled=name == ACTIVE)
        self._labels = np.where(owns[ACTIVE], records.labels[trained], 0.0)[kept].astype(np.float32)

    def steps(self) -> Iterator[tuple[int, float]]:
        """Train; yields about :data:`POINTS` times the number of steps so far and the mean loss since."""
        active, passive = self._halves[ACTIVE], self._halves[PASSIVE]
        pause = max(1, len(self._batches) // POINTS)
        for step, (_, positions) in enumerate(self._batches, 1):
            _run_together(passive.step(step, positions), active.step(step, positions))
            if step % pause == 0:
                yield step, float(active.figures().loss)

    def measure(self) -> dict[str, dict[str, float | None]]:
        """Reading → metrics on the test rows; a row's probability is for one known to carry real columns of both."""
        logits, base_rate = self._score()
        labels, found = self._tested[ACTIVE].labels, {}
        assert labels is not None
        for name, way in self._readings().items():
            scores = way.probability(logits, base_rate)
            found[name] = metrics.compute(("auc", "ace", "nll"), labels, scores, np.clip(scores, 0, 1))
        return found

    def attack(self, epochs: int) -> dict[str, float | None]:
        """Attack → AUC on what the party received that could tell the other one's synthetic rows, in the first ``epochs``."""
        by_active = self._secret[PASSIVE].any()
        secret = self._secret[PASSIVE if by_active else ACTIVE]
        transcript = [
            Batch(epoch, positions, h if by_active else g * len(positions), g * len(positions))
            for (epoch, positions), h, g in zip(
                self._batches, *map(self._tensors, (training_pb2.Embedding, training_pb2.Gradient)), strict=True
            )
            if epoch < epochs
        ]
        labelled = spectral.append_labels(transcript, self._labels) if by_active else transcript  # as in the paper
        return {
            name: follow(ATTACKS[name], labelled if name == "spectral" else transcript, secret).score()
            for name in self._trial.attacks
        }

    def joint(self, attacker: str, permuted: bool = False) -> float | None:
        """AUC of the joint attack of one party on the rows that it owns: which of them does the other one lack.

        Args:
            attacker: the active party, with the last embedding of each row; or the passive one, with its mean gradient.
            permuted: whether it has other rows' columns and labels, as a control.
        """
        secret, _ = self.received(attacker)
        return metrics.auc(secret, self.joint_scores(attacker, permuted))

    def joint_scores(self, attacker: str, permuted: bool = False, attempt: int = 0) -> NDArray[np.float64]:
        """The scores behind :meth:`joint`; in each ``attempt`` the attacker draws otherwise."""
        randomness, table = self._own.derive(f"joint/{attacker}"), self._tables[attacker]
        rows = self._rows[attacker][self._judged(attacker)]
        if permuted:
            rows = rows[randomness.derive("permuted").permutation(len(rows))]
        cells, categorical = design(table, rows)
        if table.labels is not None:
            cells, categorical = np.column_stack([cells, table.labels]), [*categorical, False]
        _, shown = self.received(attacker)
        drawn = randomness.derive(f"attempt/{attempt}") if attempt else randomness
        return joint.scores(cells[rows], shown, drawn, categorical=np.array(categorical, bool))

    def received(self, attacker: str) -> tuple[Bools, NDArray[np.float64]]:
        """Which of the rows of one party the other lacks, at most 6,000 rows, and what was received of each, float64[k, d]."""
        mine = self._judged(attacker)
        secret = self._secret[PASSIVE if attacker == ACTIVE else ACTIVE]
        return secret[mine], self._gather_received(attacker)[mine].astype(np.float64)

    def _judged(self, attacker: str) -> NDArray[np.int64]:
        """The rows on which that party's attacks are judged."""
        return joint.sample(np.flatnonzero(~self._secret[attacker]), self._own.derive(f"joint/{attacker}").derive("sample"))

    def _gather_received(self, attacker: str) -> NDArray[np.float32]:
        """float32[m, d], of each row the last embedding, or the mean of the gradients of its own loss."""
        kind, shown = training_pb2.Embedding if attacker == ACTIVE else training_pb2.Gradient, None
        for (_, positions), tensor in zip(self._batches, self._tensors(kind), strict=True):
            if shown is None:
                shown = np.zeros((len(self._labels), tensor.shape[1]), np.float32)
            if attacker == ACTIVE:
                shown[positions] = tensor.numpy()
            else:
                shown[positions] += tensor.numpy() * len(positions) / self._trial.train.epochs
        assert shown is not None
        return shown

    def labels_read(self) -> float | None:
        """AUC of the direction of the gradients that the passive party received, on labels of rows that the active one has."""
        gradients = self._tensors(training_pb2.Gradient)
        batches = [Batch(epoch, rows, gradient) for (epoch, rows), gradient in zip(self._batches, gradients, strict=True)]
        found = scores(GradientDirection, batches, len(self._labels))
        return judged(self._labels == 1, found, ~self._secret[ACTIVE])

    def _tensors(self, kind: type[Any]) -> Iterator[Tensor]:
        """The tensors of all messages of ``kind``, in order."""
        tensors = (message.tensor for message in self._recorder.messages(kind))
        return (codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)) for tensor in tensors)

    def attack_at_once(self) -> dict[str, float | None]:
        """Attack → AUC on the rows trained on if all of them are embedded by the same weights, as predictions are."""
        secret = self._secret[PASSIVE]
        if not secret.any():
            return {}
        every = np.arange(len(secret))
        with torch.no_grad():
            rows = self._halves[PASSIVE]._embedding("equal weights", every, learn=False)
        names = [name for name in ATTACKS if works_at_once(ATTACKS[name])]
        return {name: follow(ATTACKS[name], [Batch(0, every, rows)], secret).score() for name in names}

    def _readings(self) -> dict[str, Calibration]:
        trial, active = self._trial, self._halves[ACTIVE]
        ways = {"plain": Calibration.from_json(active.scoring()["calibration"])}
        if trial.labels == "majority" and trial.calibration == "none" and not trial.real_only:
            p_a, p_p = 1 - trial.beta, 1 - trial.alpha
            ways["te"] = calibration("test", Composition(p_a * p_p, p_a * (1 - p_p), 1 - p_a), 0.0)  # eq. 3
            ways["te-labels"] = calibration("test", Composition(p_a, 0.0, 1 - p_a), 0.0)
        return ways

    @torch.no_grad()
    def _score(self) -> tuple[Tensor, Tensor]:
        """Logits float32[t] of the test rows, and q of each."""
        everything = np.arange(len(self._tested[ACTIVE]))
        inputs = {}
        for name, half in self._halves.items():
            features = Encoder.from_json(half.encoder).transform(self._tested[name])
            inputs[name] = PositionedInput.from_features(features, everything, torch.device("cpu"))
        active, passive = self._halves[ACTIVE], self._halves[PASSIVE]
        for half in (active, passive):
            half.learner.rest()
        embedding = passive.learner.model["bottom"](inputs[PASSIVE].take(everything))  # (t, d)
        logits = active.learner.model(inputs[ACTIVE].take(everything), [embedding])  # (t,)
        if not self._at_active:
            return logits, torch.full((len(everything),), active.scoring()["positive_rate"])
        local = build_classifier(architecture_of(self._trial.train.model), self._trial.train, inputs[ACTIVE].schema, [])
        if weights := take_part("local", active.weights()):
            local.load_state_dict(weights)
        else:  # trained without calibration, which is read off it afterwards: the model that would give q is trained now
            own, rows = self._own.derive("local/0"), np.arange(len(self._labels))
            initialise(local, own)
            with torch.enable_grad():
                args = local, self._trial.train, active._inputs, active._supervision.targets, rows, own, Silent()
                train_local(*args, counted=active._supervision.real, losses=active._supervision.task.losses)
        return logits, local_rate(local_logits(local, inputs[ACTIVE], everything))


@cache
def _job() -> Train:
    """What all trials begin with."""
    train = load_job(JOB).train
    assert isinstance(train, Train)
    return train


@cache
def records_of(name: str, folder: Path) -> Records:
    """The records of that name."""
    return SOURCES[name](folder)


def _batches(schedule: Schedule, train: Train, kept: Bools) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(epoch, positions among the rows kept) of each batch that has any."""
    place = np.cumsum(kept) - 1
    for epoch in range(train.epochs):
        for positions in schedule.batches(0, epoch, np.arange(len(kept)), train.batch_size):
            if kept[positions].any():
                yield epoch, place[positions[kept[positions]]]


def _run_together(*steps: Coroutine[Any, Any, None]) -> None:
    """Let both parties take a step, in turns."""
    pending = list(steps)
    while pending:
        for step in tuple(pending):
            try:
                step.send(None)
            except StopIteration:
                pending.remove(step)
