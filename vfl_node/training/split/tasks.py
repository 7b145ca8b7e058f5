"""What split training knows of labels beside what every network does: made-up ones, and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.classifier import Classifier
from vfl_node.training.network.tasks import MOST_LOG, ClassTask, NumberTask, RateTask, facts_of_classes, means_of
from vfl_node.training.split.class_weight import WeightedIdentity
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Calibration, Composition, Probabilities, Rate, calibration
from vfl_node.training.split.missing.labels.contract import Known
from vfl_node.training.split.missing.number_calibration import AsPredicted, number_calibration
from vfl_node.training.targets import TargetScale

LOCAL_RATE_MARGIN = 1e-3
"""The local model's probability is kept this far from 0 and 1 where calibration uses it."""


@dataclass(frozen=True)
class ClassLabels(ClassTask):
    """Labels 0 to K − 1, some of them made up."""

    def build_known(self, labels: NDArray[Any], shared: int, randomness: Randomness) -> Known:
        """What a strategy for made-up labels may know: all real ``labels`` of so many ``shared`` rows."""
        return Known(labels, shared, self.classes, randomness)

    @property
    def start(self) -> float | None:
        """The rate at which a calibrated network starts; None where there is no such."""
        return self.rate if 0 < self.rate < 1 else None

    def base_rate(self, logits: Tensor) -> Tensor:
        """As :func:`local_rate`."""
        return local_rate(logits)

    def calibration(self, name: str, composition: Composition | None, rate: Rate) -> Calibration:
        """As :func:`~vfl_node.training.split.missing.calibration.calibration`; class weights are for ``none``."""
        if self.weights is not None:
            return WeightedIdentity(self.weights)
        return calibration(name, composition, rate)


@dataclass(frozen=True)
class ScaledTargets(NumberTask):
    """Numbers, some of them made up."""

    def build_known(self, labels: NDArray[Any], shared: int, randomness: Randomness) -> Known:
        """What a strategy for made-up targets may know: all real ``labels`` of so many ``shared`` rows."""
        return Known(self.scale.apply(labels), shared, 0, randomness, self.scale)

    @property
    def start(self) -> None:
        """None: outputs start at the mean."""

    def base_rate(self, logits: Tensor) -> Tensor:
        """What the active party's own model says, float32[B]."""
        return logits

    def calibration(self, name: str, composition: Composition | None, rate: Rate) -> Calibration:
        """As :func:`~vfl_node.training.split.missing.number_calibration.number_calibration`."""
        return number_calibration(name, composition, rate)


@dataclass(frozen=True)
class ScaledRates(RateTask, ScaledTargets):
    """Counts, some of them made up."""

    def calibration(self, name: str, composition: Composition | None, rate: Rate) -> Calibration:
        """``none``, the only one that a job can have."""
        return AsRate(self)


class AsRate(AsPredicted):
    """Logits are logarithms of means; ``task`` says the loss."""

    def __init__(self, task: RateTask) -> None:
        self._task = task

    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """The mean over the batch's rows."""
        return self._task.losses(logits, targets).mean()

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """The mean of each row, scaled, detached."""
        return logits.detach().clamp(-MOST_LOG, MOST_LOG).exp()

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """The same, as it is predicted."""
        return means_of(logits)


SplitTask = ClassLabels | ScaledTargets


def task_of(train: Train, labels: NDArray[Any], offsets: NDArray[np.float64] | None = None) -> SplitTask:
    """As :func:`vfl_node.training.network.tasks.task_of`; ``offsets`` of the same rows."""
    if train.task == "poisson":
        return ScaledRates(TargetScale.fit_rate(labels, None if offsets is None else np.exp(offsets)))
    if train.task == "regression":
        return ScaledTargets(TargetScale.fit(labels))
    return ClassLabels(*facts_of_classes(train, labels))


def stored_task(train: Train, rate: float, target: TargetScale | None) -> SplitTask:
    """The job's task as predictions need it, from what :meth:`ClassLabels.to_json` or its twin gave."""
    if target is not None:
        return (ScaledRates if train.task == "poisson" else ScaledTargets)(target, rate)
    return ClassLabels(train.classes, None, rate)


def start_at_rate(model: Classifier, task: SplitTask, train: Train) -> None:
    """Set the first probabilities of ``model``, if calibration needs others than ½."""
    if train.missing.calibration == "train" and task.start is not None:
        # From ½ down to a rare class's rate logits overshoot, w10·q explains the labels, and no gradient leads back.
        model.start_at(task.start)


def local_rate(logits: Tensor) -> Tensor:
    """q of rows with these logits of the active party's own model, float32[B]."""
    return torch.sigmoid(logits).clamp(LOCAL_RATE_MARGIN, 1 - LOCAL_RATE_MARGIN)
