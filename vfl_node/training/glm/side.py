"""One party's linear model: its columns, its weights, and the decoys for shared rows that it does not own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.fixed_point import decode
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import Design
from vfl_node.errors import DataError
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.scales import SCORE_RANGE
from vfl_node.transport.codec import MOST

Positions = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_AT_ONCE = 8192

START_SCORES = 0.5
"""Standard deviation of the label holder's scores over its genuine rows at the start.

If all weights started at zero, all residuals of the first iteration would be ±½/|I|, and the passive party could read |I| from
its first gradient. Scores that vary less than this still show it if columns are coarse (docs/explanations/privacy).
"""

START_WEIGHTS = 0.01
"""Weights of the other party start uniform between minus and plus this number."""


class Side:
    """d columns at m shared rows, and K weight vectors.

    Args:
        rows: int64[m], the local row at each shared position, or −1.
        design: this party's columns, n rows.
        used: bool[columns of the design], which of them enter the model.
        train: the job's section.
        randomness: this party's own for the job, for decoys and initial weights.
        intercept: whether a column of ones is added, whose weight does not decay.

    Attributes:
        weights: float64[d, K], the intercept last; 0 for a column of zeros, which moves none of them.
        integers: int64[n, d], the columns without their steps.
        owned: bool[m], which shared rows are this party's own.
    """

    def __init__(
        self,
        rows: Positions,
        design: Design,
        used: NDArray[np.bool_],
        train: GeneralisedLinear,
        randomness: Randomness,
        *,
        intercept: bool,
    ) -> None:
        count = len(design)
        self._used, self._intercept = used, intercept
        self.integers = np.concatenate([design.integers[:, used], np.ones((count, int(intercept)), np.int64)], axis=1)
        self._steps = np.concatenate([design.steps[used], np.ones(int(intercept))])
        self._decay = np.full((self.width, 1), train.l2)
        self._decay[self.width - int(intercept) :] = 0
        self._rate = train.learning_rate
        self.owned = rows >= 0
        # a row that is not ours has the columns of one that is, as a decoy: it costs the same work and time as the others
        self._source = np.where(self.owned, rows, randomness.derive("decoys").choices(count, len(rows)))
        start = randomness.derive("start").uniform((self.width, train.outputs))
        self._varies = (np.count_nonzero(self.integers, axis=0) > 0)[:, None]
        self.weights: Floats = START_WEIGHTS * (2 * start - 1) * self._varies

    def spread(self, positions: Positions, randomness: Randomness) -> None:
        """Start from normal weights, scaled so that scores at the genuine ``positions`` vary by :data:`START_SCORES`."""
        normal = randomness.normal(self.weights.shape).astype(np.float64) * self._varies
        if self._intercept:
            normal[-1] *= START_SCORES
        self.weights = normal
        scores = self.scores(positions)
        deviation, peak = scores.std(axis=0), np.abs(scores).max(axis=0)
        varies = deviation > 1e-9 * peak  # smaller deviations are rounding errors
        columns = self.width - int(self._intercept)
        self.weights[:columns] *= np.where(varies, START_SCORES / np.where(varies, deviation, 1), 0)

    @property
    def width(self) -> int:
        """Number of columns d, the intercept's included."""
        return len(self._steps)

    def take(self, positions: Positions) -> NDArray[np.int64]:
        """The integers at shared ``positions``, int64[B, d]; those of a decoy where the row is not ours."""
        return self.integers[self._source[positions]]

    def scores(self, positions: Positions) -> Floats:
        """Linear scores float64[B, K]; those of a decoy where the row is not ours.

        Raises:
            DataError: one is no longer a number (``E_DIVERGED``).
        """
        scaled = self._steps[:, None] * self.weights
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            parts = [self.take(part).astype(np.float64) @ scaled for part in _cut(positions)]
        return check_finite(np.concatenate(parts) if parts else np.empty((0, scaled.shape[1])))

    def gradient(self, positions: Positions, residuals: Floats) -> Floats:
        """Σ residual · x over ``positions``, float64[d, K], from residuals float64[B, K] in clear."""
        total = np.zeros_like(self.weights)
        for start, part in zip(range(0, len(positions), ROWS_AT_ONCE), _cut(positions), strict=True):
            total += self.take(part).astype(np.float64).T @ residuals[start : start + ROWS_AT_ONCE]
        return total * self._steps[:, None]

    def product(self, gradient: Floats) -> float:
        """θ·g over all weights, of a gradient float64[d, K]: Σ residual · score over the rows of the gradient."""
        return float((self.weights * gradient).sum())

    def decode_sums(self, sums: list[list[int]], fraction: int) -> Floats:
        """float64[d, K] from exact sums of integers: ``sums[j][k]`` has ``fraction`` fractional bits and no step."""
        values = np.array([decode(row, fraction) for row in sums]).reshape(self.weights.shape)
        return values * self._steps[:, None]

    def update(self, gradient: Floats) -> None:
        """θ ← θ − η(g + λθ). Raises DataError (``E_DIVERGED``)."""
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            weights = self.weights - self._rate * (gradient + self._decay * self.weights)
        self.weights = check_finite(weights)

    def model(self) -> dict[str, Tensor]:
        """The linear model: ``weight`` float64[K, columns of the design], 0 for those left out, and ``bias`` float64[K]."""
        weight = np.zeros((len(self._used), self.weights.shape[1]))
        weight[self._used] = self.weights[: self.width - int(self._intercept)]
        bias = {"bias": torch.from_numpy(self.weights[-1].copy())} if self._intercept else {}
        return {"weight": torch.from_numpy(weight.T.copy()), **bias}

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {"weights": torch.from_numpy(self.weights.copy())}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self.weights = tensors["weights"].numpy().copy()


def find_varied(integers: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """bool[d]: columns of int64[m, d] in which at least ``least`` rows differ from the most frequent value.

    The gradient of a column in which only a few rows differ is the sum of their residuals, and so shows them.
    """
    counts = (np.unique(column, return_counts=True)[1] for column in integers.T)
    return np.fromiter((len(integers) - frequency.max(initial=0) >= least for frequency in counts), np.bool_, integers.shape[1])


def check_finite(values: Floats) -> Floats:
    """``values`` themselves, if all are finite and no larger than what a peer lets in (:data:`vfl_node.transport.codec.MOST`).

    Raises:
        DataError: training has diverged (``E_DIVERGED``).
    """
    if not (np.abs(values) <= MOST).all():  # NaN is not
        raise divergence_error()
    return values


def check_range(scores: Floats) -> Floats:
    """``scores`` themselves, if all are within the fixed-point range. Raises DataError (``E_DIVERGED``)."""
    if not (np.abs(scores) < 2.0**SCORE_RANGE).all():
        raise divergence_error()
    return scores


def divergence_error() -> DataError:
    """The error of a training whose values grow without bound."""
    return DataError(
        "training diverged: scores have left the range they are computed in",
        code="E_DIVERGED",
        hint="lower train.learning_rate, or scale the columns (train.scaling: standard)",
        for_peer="training diverged; a lower train.learning_rate may help",
        peer_code="E_DIVERGED",
    )


def _cut(positions: Positions) -> Iterator[Positions]:
    for start in range(0, len(positions), ROWS_AT_ONCE):
        yield positions[start : start + ROWS_AT_ONCE]
