"""Generalised linear models in plaintext: what the protocol computes in clear, and the reference for the rest.

Notation: n rows, K outputs (one for two classes and for a number, else one a class, each against the rest),
z[n, K] linear scores, y[n, K] in {0, 1} or scaled targets, y' = 2y − 1, d = ∂ℓ/∂z of one row. With parts
X_1, X_2, … of the features, one a party, and an intercept b that is not regularised::

    z = b + Σ_k X_k θ_k        g_k = (1/n) X_kᵀ d        θ_k ← θ_k − η (g_k + λ θ_k)        b ← b − η · mean(d)

The Taylor loss is the second-order polynomial of the exact one at z = 0: good for |z| ≲ 2,
with an optimum of its own. What is encrypted must equal the plaintext *of the same loss*.

The squares are ℓ = ½(z − y)², a polynomial themselves, with the residual d = z − y; reported is the mean squared error, twice
their mean. Their optimum is known: (XᵀX/n + λI) θ = Xᵀy/n for centred columns, ridge regression with a penalty of n·λ.

Source: arXiv 2004.07427, Algorithm 2 and §4.1; the polynomial: Hardy et al. 2017 (arXiv 1711.10677).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sigmoid(z: Floats) -> Floats:
    """1 / (1 + e^−z), of any shape; nothing overflows."""
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1.0 + small)


def exact_residual(z: Floats, y: Floats) -> Floats:
    """d = σ(z) − y, [n, K]."""
    return sigmoid(z) - y


def exact_loss(z: Floats, y: Floats) -> float:
    """Mean over rows of the sum over outputs of log(1 + e^(−y'z)); NaN without rows."""
    return _mean_of_sums(np.logaddexp(0.0, (1 - 2 * y) * z))


def taylor_residual(z: Floats, y: Floats) -> Floats:
    """d = ¼z − ½y', [n, K]."""
    return z / 4 - (y - 0.5)


def taylor_loss(z: Floats, y: Floats) -> float:
    """Mean over rows of the sum over outputs of log 2 − ½y'z + ⅛z²; NaN without rows."""
    return _mean_of_sums(math.log(2) - (y - 0.5) * z + z**2 / 8)


def squares_residual(z: Floats, y: Floats) -> Floats:
    """d = z − y, [n, K]."""
    return z - y


def squares_loss(z: Floats, y: Floats) -> float:
    """Mean over rows of the sum over outputs of (z − y)², twice the loss that is descended; NaN without rows."""
    return _mean_of_sums((z - y) ** 2)


@dataclass(frozen=True)
class Polynomial:
    """A loss that can be computed under encryption: ℓ(z) = constant(y) − slope(y)·z + ½·2^−shift·z², d = 2^−shift·z − slope(y).

    Attributes:
        constant: y → its part without z.
        slope: y → minus its derivative at z = 0.
        constant_most: the largest constant; targets that are numbers lie within ±2⁸.
        slope_most: the largest magnitude of a slope, likewise.
        shift: by how many bits the second derivative is below 1.
        reported: the loss that is reported, as a multiple of ℓ.
    """

    constant: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    constant_most: float
    slope_most: float
    shift: int
    reported: float = 1.0

    @property
    def curvature(self) -> float:
        """The second derivative, 2^−shift."""
        return 2.0**-self.shift

    def value(self, z: Floats, y: Floats) -> Floats:
        """ℓ of each row."""
        return self.constant(y) - self.slope(y) * z + self.curvature / 2 * z**2

    def derivative(self, z: Floats, y: Floats) -> Floats:
        """d of each row."""
        return self.curvature * z - self.slope(y)

    def value_most(self, scores: float) -> float:
        """The largest ℓ of a row whose z lies within ±``scores``."""
        return self.constant_most + self.slope_most * scores + self.curvature / 2 * scores**2

    def derivative_most(self, scores: float) -> float:
        """The largest |d| of a row whose z lies within ±``scores``."""
        return self.curvature * scores + self.slope_most


@dataclass(frozen=True)
class Loss:
    """A loss and its derivative by the scores.

    Attributes:
        residual: z[n, K], y[n, K] → d[n, K], of each row alone (not divided by n).
        loss: z[n, K], y[n, K] → mean over rows of the sum over outputs.
        polynomial: the same as a polynomial of z; None where it is none. Then |d| is at most 1.
        numbers: whether y are scaled targets, within ±2⁸, and not classes.
    """

    residual: Callable[[Floats, Floats], Floats]
    loss: Callable[[Floats, Floats], float]
    polynomial: Polynomial | None = None
    numbers: bool = False

    def targets(self, labels: NDArray[Any], outputs: int) -> Floats:
        """y, float64[n, ``outputs``], of labels [n]: classes, or targets that are scaled already."""
        return labels.astype(np.float64)[:, None] if self.numbers else one_hot(labels, max(outputs, 2))


LOSSES: dict[str, Loss] = {
    "exact": Loss(exact_residual, exact_loss),
    "taylor": Loss(
        taylor_residual,
        taylor_loss,
        Polynomial(lambda y: np.full_like(y, math.log(2)), lambda y: y - 0.5, math.log(2), 0.5, shift=2),
    ),
    "squares": Loss(
        squares_residual,
        squares_loss,
        Polynomial(lambda y: y**2 / 2, lambda y: y, 2.0**15, 2.0**8, shift=0, reported=2.0),
        numbers=True,
    ),
}
"""Name (:attr:`~vfl_node.training.glm.config.GeneralisedLinear.objective`) → loss."""


def mean_loss(loss: Loss, z: Floats, y: Floats, shares: Floats) -> float:
    """Mean over rows that count differently.

    Args:
        loss: one of :data:`LOSSES`.
        z: scores, [n, K].
        y: targets, [n, K].
        shares: float64[n], how much each row counts, 1 in all; with class weights there are few different values.
    """
    alike = (shares == value for value in np.unique(shares[shares > 0]))
    return math.fsum(shares[rows].sum() * loss.loss(z[rows], y[rows]) for rows in alike)


def one_hot(labels: NDArray[Any], classes: int) -> Floats:
    """Labels 0 … ``classes`` − 1, float32[n], as y: float64[n, 1] for two classes, else float64[n, classes]."""
    if classes == 2:
        return labels.astype(np.float64)[:, None]
    return (labels[:, None] == np.arange(classes)).astype(np.float64)


def logits(parts: Sequence[Floats], weights: Sequence[Floats], intercepts: Floats) -> Floats:
    """z = b + Σ_k X_k θ_k, [n, K].

    Args:
        parts: the features of each party, float64[n, d_k]; one party at least.
        weights: float64[d_k, K] of each.
        intercepts: float64[K].
    """
    return intercepts + sum(x @ theta for x, theta in zip(parts, weights, strict=True))


def probabilities(z: Floats) -> Floats:
    """Probabilities float64[n, K] of scores z: of class 1 where K = 1, else σ(z) of each class, scaled to sum to 1."""
    if z.shape[1] == 1:
        return sigmoid(z)
    logarithms = -np.logaddexp(0.0, -z)
    shares = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))  # σ itself may be 0 in a whole row
    return shares / shares.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted regression.

    Attributes:
        weights: float64[d_k, K] of each part.
        intercepts: float64[K].
        losses: of each iteration, before its step, over its rows; without the penalty.
    """

    weights: tuple[Floats, ...]
    intercepts: Floats
    losses: tuple[float, ...]


def fit(
    parts: Sequence[Floats],
    labels: NDArray[Any],
    start: Sequence[Floats],
    *,
    loss: Loss,
    l2: float,
    learning_rate: float,
    iterations: int,
    tolerance: float,
    batches: Sequence[NDArray[np.int64]] | None = None,
    intercepts: Floats | None = None,
    row_weights: Floats | None = None,
) -> Fit:
    """Gradient descent on the joint rows.

    Args:
        parts: the features of each party, float64[n, d_k], as :attr:`vfl_node.data.design.Design.values`.
        labels: float32[n], 0 … classes − 1; or scaled targets, where ``loss`` is of numbers.
        start: initial weights of each part, float64[d_k, K]; K = 1 says two classes, else K classes.
        loss: one of :data:`LOSSES`.
        l2: λ.
        learning_rate: η.
        iterations: at most.
        tolerance: an iteration is the last, its step included, where its loss differs from the one
            before by no more than ``tolerance`` · max(1, that); 0: never.
        batches: rows int64[B] of iteration t at place t, from the first again behind the last;
            None: all rows in each.
        intercepts: initial ones, float64[K]; None: 0.
        row_weights: float64[n], how much each row counts among the others; None: all alike.

    Cost: two products of [n, d] and [d, K] an iteration.
    """
    outputs = start[0].shape[1]
    y = loss.targets(labels, outputs)
    weights = [theta.astype(np.float64) for theta in start]
    intercepts = np.zeros(outputs) if intercepts is None else intercepts
    losses: list[float] = []
    for t in range(iterations):
        rows = slice(None) if batches is None else batches[t % len(batches)]
        own = [x[rows] for x in parts]
        z = logits(own, weights, intercepts)
        d = loss.residual(z, y[rows])
        if row_weights is None:
            losses.append(loss.loss(z, y[rows]))
        else:
            shares = row_weights[rows] / row_weights[rows].sum()
            losses.append(mean_loss(loss, z, y[rows], shares))
            d = d * (shares * len(d))[:, None]
        weights = [theta - learning_rate * (x.T @ d / len(d) + l2 * theta) for x, theta in zip(own, weights, strict=True)]
        intercepts = intercepts - learning_rate * d.mean(axis=0)
        if tolerance > 0 and t > 0 and abs(losses[-1] - losses[-2]) <= tolerance * max(1.0, abs(losses[-2])):
            break
    return Fit(tuple(weights), intercepts, tuple(losses))


def _mean_of_sums(losses: Floats) -> float:
    return float(losses.sum(axis=1).mean())
