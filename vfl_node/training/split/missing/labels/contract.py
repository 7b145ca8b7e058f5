"""What a label strategy knows, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError
from vfl_node.training.split.missing.calibration import Rate
from vfl_node.training.split.missing.strategies import LabelStrategy
from vfl_node.training.targets import TargetScale


@dataclass(frozen=True)
class Known:
    """What a strategy may know: the same in every repeat, so that what it fixes is the same, too.

    Attributes:
        labels: float32[k], all real labels of shared rows, held out or not, 0 … classes−1; of a regression scaled targets,
            float64[k].
        shared: number of shared positions, m.
        classes: number of classes K; of no meaning in a regression.
        randomness: this party's own for this job; the same gives the same labels.
        scale: of the targets of a regression, which differs between repeats; None for classes.

    Raises:
        DataError: there is no real label (``E_EMPTY``).
    """

    labels: NDArray[Any]
    shared: int
    classes: int
    randomness: Randomness
    scale: TargetScale | None = None

    def __post_init__(self) -> None:
        if len(self.labels) == 0:
            raise DataError(
                "the active party owns none of the shared rows drawn for training, so there is no label to learn from",
                code="E_EMPTY",
                hint="use more records, or a smaller evaluate.test_fraction",
            )

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """int64[K]: real labels of each class."""
        return np.bincount(self.labels.astype(np.int64), minlength=self.classes)

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """int64[K]: the classes, most frequent first; the lower one first where two are even."""
        return np.argsort(-self.counts, kind="stable")


@dataclass(frozen=True)
class Step:
    """One training batch as the active party has it. B rows, embeddings of width d, K classes.

    Attributes:
        number: of the step, which names what is drawn in it.
        positions: int64[B], the shared positions.
        real: bool[B], which rows have a real label.
        targets: float32[B], or [B, K] for K above 2; right for real rows, meaningless elsewhere. Of a regression scaled.
        seen: the same shape, detached: the probability P' of each class as the training data, synthetic labels included, show
            it; of a regression the mean target that they show.
        embedding: float32[B, d], detached, as received from the passive party; of several, side by side.
    """

    number: int
    positions: NDArray[np.int64]
    real: Tensor
    targets: Tensor
    seen: Tensor
    embedding: Tensor


class Labels(Protocol):
    """A strategy in one repeat."""

    @property
    def rate(self) -> Rate:
        """How often its labels are positive, for the calibration of two classes; of a regression their mean, scaled."""

    def targets(self, step: Step) -> Tensor:
        """Synthetic targets of every row of the batch; the caller takes those it lacks. As :attr:`Step.targets`."""


def build(strategy: LabelStrategy, known: Known) -> Labels:
    """The labels of the ``strategy`` that the job chose.

    Raises:
        UsageError: it makes no labels up (``E_USAGE``), or its package cannot be loaded (``E_EXTENSION``).
    """
    if not strategy.fills:
        raise UsageError(
            "some shared rows have no label at the active party and train.missing.labels is none",
            hint="set train.missing.labels: majority, or align by psi",
        )
    labels: Labels = load(strategy.implementation, what="a strategy of train.missing.labels")(strategy, known)
    return labels
