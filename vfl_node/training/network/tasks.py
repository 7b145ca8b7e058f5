"""What the active party's labels are, and what depends on it: targets, losses, what outputs say, what is measured of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, one_hot

from vfl_node.metrics.classes import ModelOutput
from vfl_node.metrics.counts import PredictedCounts
from vfl_node.metrics.numbers import PredictedNumbers
from vfl_node.metrics.weighted import EPSILON
from vfl_node.training.class_weight import weight_of_classes
from vfl_node.training.evaluation import class_shares, measure
from vfl_node.training.intervals import Output
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.targets import TargetScale

Numbers = NDArray[np.float64]

MOST_LOG = 20.0
"""A logarithm of a mean beyond plus or minus this number counts as it: e²⁰ is 5·10⁸ times the mean rate."""


@dataclass(frozen=True)
class ClassTask:
    """Labels 0 to K − 1; logits give probabilities.

    Attributes:
        classes: K.
        shares: float64[K], how frequent each class is among the labels trained on; None without any.
        rate: q, the rate of positives among them, at a party without columns.
        weights: float64[K], how much each class counts in the loss (``train.class_weight``); None: all alike.
    """

    classes: int
    shares: Numbers | None = field(repr=False)
    rate: float = field(repr=False)
    weights: Numbers | None = field(default=None, repr=False)

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """float32[m], or float32[m, K] with a 1 in each row."""
        values = torch.from_numpy(labels.astype(np.float32))
        return values if self.classes == 2 else one_hot(values.long(), self.classes).float()

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row, float32[B]."""
        if self.weights is not None:
            return weighted_losses(torch.from_numpy(self.weights).float().to(logits.device), logits, targets)
        loss = binary_cross_entropy_with_logits if logits.dim() == 1 else cross_entropy
        return loss(logits, targets, reduction="none")

    def offsets(self, values: Numbers) -> Tensor:
        """What is added to logits for offsets ``values``, float64[m]: float32[m]."""
        return torch.from_numpy(values).float()

    @property
    def largest_weight(self) -> float:
        """The most that a row counts in the loss."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def mean_loss(self, labels: NDArray[Any], scores: Numbers, weights: Numbers | None = None) -> float | None:
        """What validation looks at: the NLL of rows with these labels, which count as in training; None without rows.

        Args:
            labels: int or float [m], 0 to K − 1.
            scores: float64[m] or [m, K].
            weights: float64[m], how much each row counts besides (``data.weight``); None: all alike.
        """
        if (self.weights is None and weights is None) or len(labels) == 0:
            return measure(("nll",), labels, scores)["nll"]
        classes = labels.astype(np.int64)
        true = np.where(classes == 1, scores, 1 - scores) if scores.ndim == 1 else scores[np.arange(len(classes)), classes]
        counts = (1.0 if self.weights is None else self.weights[classes]) * (1.0 if weights is None else weights)
        return float((counts * -np.log(np.clip(true, EPSILON, 1))).mean())

    def plain_scores(self, logits: Tensor) -> Numbers:
        """Scores as logits give them, without calibration: :func:`probabilities`."""
        return probabilities(logits)

    def output(self, scores: Numbers, offsets: Numbers | None = None) -> Output:
        """What is measured of ``scores``: probabilities, which may leave 0 … 1 by a correction for synthetic rows."""
        return ModelOutput.clip(scores)

    def prediction(self, scores: Numbers) -> Numbers:
        """What ``scores`` predict: probabilities."""
        return np.clip(scores, 0, 1)

    def constant(self, rows: int, offsets: Numbers | None = None) -> Output | None:
        """What a model says of each of ``rows`` rows that knows the labels trained on, and of each row its offset at most."""
        return None if self.shares is None else ModelOutput.constant(self.shares, rows)

    def to_json(self) -> dict[str, Any]:
        """What predictions need of it."""
        return {"positive_rate": self.rate}


@dataclass(frozen=True)
class NumberTask:
    """Numbers, of which the networks see standard deviations from the mean; an output is such a number itself.

    Attributes:
        scale: of the targets trained on.
        rate: q at a party without columns: the mean, in scaled units.
    """

    scale: TargetScale = field(repr=False)
    rate: float = 0.0

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Scaled, float32[m]."""
        return torch.from_numpy(self.scale.apply(labels).astype(np.float32))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row, float32[B]: the squared error in scaled units."""
        return mse_loss(logits, targets, reduction="none")

    def offsets(self, values: Numbers) -> Tensor:
        """As :meth:`ClassTask.offsets`: in standard deviations."""
        return torch.from_numpy(values / self.scale.deviation).float()

    @property
    def largest_weight(self) -> float:
        """1: all rows count alike."""
        return 1.0

    def mean_loss(self, labels: NDArray[Any], scores: Numbers, weights: Numbers | None = None) -> float | None:
        """As :meth:`ClassTask.mean_loss`: the mean squared error of rows with these targets, in scaled units."""
        errors = (scores - self.scale.apply(labels)) ** 2
        return float((errors if weights is None else weights * errors).mean()) if len(labels) else None

    def plain_scores(self, logits: Tensor) -> Numbers:
        """Scores as logits give them, without calibration: the same as float64."""
        return np.asarray(logits.double().cpu().numpy())

    def output(self, scores: Numbers, offsets: Numbers | None = None) -> Output:
        """What is measured of ``scores``: numbers in the target's unit."""
        return PredictedNumbers(self.scale.undo(scores))

    def prediction(self, scores: Numbers) -> Numbers:
        """What ``scores`` predict: numbers in the target's unit."""
        return self.scale.undo(scores)

    def constant(self, rows: int, offsets: Numbers | None = None) -> Output:
        """The mean for each row."""
        return PredictedNumbers.constant(self.scale.mean, rows)

    def to_json(self) -> dict[str, Any]:
        """What predictions need of it."""
        return {"positive_rate": self.rate, "target": self.scale.to_json()}


@dataclass(frozen=True)
class RateTask(NumberTask):
    """Counts, or other numbers from 0. A logit is the logarithm of the mean, in multiples of the rate of the labels trained on.

    The loss is the Poisson log-likelihood, but for a constant: exp(s) − y·s. Beyond ±:data:`MOST_LOG` the exponential goes on
    as a straight line, so that no loss overflows and no row is lost. Scores are means, scaled as targets are.
    """

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row, float32[B]."""
        bounded = logits.clamp(-MOST_LOG, MOST_LOG)
        return bounded.exp() * (1 + logits - bounded) - targets * logits

    def offsets(self, values: Numbers) -> Tensor:
        """As :meth:`ClassTask.offsets`: logarithms, as they are."""
        return torch.from_numpy(values).float()

    def mean_loss(self, labels: NDArray[Any], scores: Numbers, weights: Numbers | None = None) -> float | None:
        """As :meth:`ClassTask.mean_loss`, by the loss of training."""
        losses = scores - self.scale.apply(labels) * np.log(scores)
        return float((losses if weights is None else weights * losses).mean()) if len(labels) else None

    def plain_scores(self, logits: Tensor) -> Numbers:
        """Means, scaled, float64."""
        return means_of(logits)

    def output(self, scores: Numbers, offsets: Numbers | None = None) -> Output:
        """What is measured of ``scores``: counts, and the exposure behind them, if there is one."""
        return PredictedCounts(self.scale.undo(scores), None if offsets is None else np.exp(offsets))

    def constant(self, rows: int, offsets: Numbers | None = None) -> Output:
        """The rate for each row, by its exposure."""
        return self.output(np.ones(rows) if offsets is None else np.exp(offsets), offsets)


NetworkTask = ClassTask | NumberTask


def task_of(train: NetworkConfig, labels: NDArray[Any]) -> NetworkTask:
    """The job's task, with what is known of the ``labels`` trained on, at least one.

    Raises:
        DataError: of a regression, they are all the same (``E_ONE_CLASS``).
    """
    return NumberTask(TargetScale.fit(labels)) if train.task == "regression" else ClassTask(*facts_of_classes(train, labels))


def facts_of_classes(train: NetworkConfig, labels: NDArray[Any]) -> tuple[int, Numbers | None, float, Numbers | None]:
    """What a :class:`ClassTask` holds of the ``labels`` trained on, in its order."""
    shares = class_shares(labels, train.classes)
    weights = None if train.class_weight is None or shares is None else weight_of_classes(train.class_weight, shares)
    return train.classes, shares, float((labels == 1).mean()), weights


def weighted_losses(weights: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """Losses float32[B], by the weight of each target's class; ``weights`` float32[K], the others as for a task's losses."""
    if logits.dim() == 2:
        return cross_entropy(logits, targets, weight=weights, reduction="none")
    ratio = weights[1] / weights[0]
    return weights[0] * binary_cross_entropy_with_logits(logits, targets, pos_weight=ratio, reduction="none")


def means_of(logits: Tensor) -> Numbers:
    """The means that logits float32[B] of counts say, scaled, float64[B]."""
    return np.asarray(logits.detach().double().clamp(-MOST_LOG, MOST_LOG).exp().cpu().numpy())


def probabilities(logits: Tensor) -> Numbers:
    """What logits float32[B] or float32[B, K] say, float64 of the same shape."""
    exact = logits.double()
    likelihood = torch.sigmoid(exact) if logits.dim() == 1 else torch.softmax(exact, dim=1)
    return np.asarray(likelihood.cpu().numpy())
