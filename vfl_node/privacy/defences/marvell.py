"""Marvell with repairs: noise that makes the gradients of two classes as alike as noise of a given power can.

Symbols: G, float32[B, d], has the gradients of the B rows of a batch; d is the width of the cut layer. The two classes are
called negatives (label 0) and positives (label 1). Δ is the mean gradient of the positives minus that of the negatives. *Along
Δ* is the direction of Δ; *across Δ* are the directions at right angles to it. The power of noise is its mean squared length; s
is the setting ``power``.

The steps for each batch:

1. Find the row space of G: the directions whose singular values are above a thousandth of the largest. A top of one layer gives
   only one direction. Steps 2 and 3 work in this space.
2. Compute Δ, the variance of each class along Δ, and a *shape*: how variance is divided among the directions across Δ. The
   shape is that of the mean of both classes' covariances. Both count the same, so that no direction of a rare class is missed.
3. Add noise of power s·‖Δ‖². A tenth of it goes across Δ, in this shape, to both classes alike.
   :func:`~vfl_node.privacy.defences.marvell.solve` divides the rest between the classes, and between along and across Δ. What
   goes across has the same shape.
4. Add the same noise for both classes outside the row space. Each row has a component there. In each direction, the standard
   deviation of the noise is at least the length of the longest of these components.

In the published method the noise across Δ is equally strong in all d directions, and only one class gets it. In directions in
which no row has a gradient, this noise then shows the class. With a top of one layer the attack ``residual`` reaches an AUC of
.84 to 1.00. If the top has a ReLU, gradients lie on a few cones, which differ between the classes. The cones stay visible in
the class that gets no noise across Δ. Boosted trees that know half of the labels of a batch then find the other half with an
AUC of .80 to .95. With the tenth for both classes they reach .56 to .66 (8,192 rows, 1 % to 40 % positives, s = 4).

A batch with one class only has no Δ. It gets the noise of the newest batch that had both classes; its class would show
without noise.

Limit: if an attacker averages the gradients of a row over epochs, less noise is left than in one gradient.

Source: Li et al. 2022 (ICLR, "Label leakage and protection in two-party split learning"), section 5. Deviations: as above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.specs import MarvellParams

OUTSIDE = 1e-3
"""Directions whose singular value is below this share of the largest are outside the row space."""

COMMON = 0.1
"""Share of the power of the noise that goes across Δ to both classes alike."""


class Marvell(Defence):
    """Adds noise that depends on the class of the row.

    Its state is the covariance of the noise of the newest batch that had both classes.

    Cost, with r directions in the row space: d² + r² multiplications for each row, 15 ns for each number of the noise, and two
    milliseconds for each batch to find the best noise.
    """

    def __init__(self, params: MarvellParams, sender: Sender, randomness: Randomness) -> None:
        self._power, self._randomness = params.power, randomness
        self._factors = torch.empty(0)
        """Symmetric square roots of the covariance of the noise for negatives and positives, float32[2, d, d]; empty at first.

        They are for gradients of the loss of a single row. The gradients of a batch are of its mean loss, so the noise is
        divided by ``mean_of`` of the batch. So they fit batches of any length."""

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        assert leaving.labels is not None
        scale = tensor.abs().max()
        if not scale > 0:
            scale = torch.ones_like(scale) / leaving.mean_of  # all gradients are 0, and are not divided by 0
        unit, positive = tensor / scale, leaving.labels >= 0.5
        factors = noise_of(unit, positive, self._power)
        if factors is not None:
            self._factors = (factors * scale * leaving.mean_of).to(tensor.dtype)
        elif not len(self._factors):
            spread = (self._power * unit.square().sum(dim=1).mean() / unit.shape[1]).sqrt() * scale * leaving.mean_of
            self._factors = spread * torch.eye(unit.shape[1], dtype=tensor.dtype, device=tensor.device).repeat(2, 1, 1)
        drawn = normal(noise(self._randomness, leaving, tensor), tensor)
        own = self._factors.to(tensor.device) / leaving.mean_of
        added = drawn @ own[0]
        added[positive] = drawn[positive] @ own[1]
        return added.add_(tensor)

    @override
    def state(self) -> dict[str, Tensor]:
        return {"factors": self._factors} if len(self._factors) else {}

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._factors = state.get("factors", self._factors)


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of both classes of a batch, on which the noise depends. Index 0 is negatives, 1 is positives.

    Attributes:
        counts: numbers of rows, float64[2].
        means: mean gradients, float64[2, d].
        covariances: covariances around the mean of the class, float64[2, d, d].
    """

    counts: Tensor
    means: Tensor
    covariances: Tensor

    @classmethod
    def from_rows(cls, rows: Tensor, positive: Tensor) -> Moments:
        """The moments of a batch. Cost: d² multiplications for each row.

        Args:
            rows: gradients, float32[B, d], scaled so that the largest number is 1.
            positive: whether each row is positive, bool[B].
        """
        squares, sums = _squares(rows), rows.sum(dim=0, dtype=torch.float64)
        ones = rows[positive]
        own, total = _squares(ones), ones.sum(dim=0, dtype=torch.float64)
        counts = torch.tensor([len(rows) - len(ones), len(ones)], dtype=torch.float64, device=rows.device)
        means = torch.stack([sums - total, total]) / counts.clamp_min(1)[:, None]
        second = torch.stack([squares - own, own]) / counts.clamp_min(1)[:, None, None]
        return cls(counts, means, second - means[:, :, None] * means[:, None, :])


def noise_of(rows: Tensor, positive: Tensor, power: float) -> Tensor | None:
    """The best noise for a batch.

    Args:
        rows: gradients, float32[B, d], scaled so that the largest number is 1.
        positive: whether each row is positive, bool[B].
        power: s, the power of the noise as a multiple of ‖Δ‖².

    Returns:
        Symmetric square roots of the covariance of the noise for negatives and positives, float64[2, d, d]. None if both
        classes have the same mean, or if the batch has one class only.
    """
    moments = Moments.from_rows(rows, positive)
    means, counts = moments.means, moments.counts
    if not counts.min() > 0:
        return None
    shares = counts / counts.sum()
    within = shares[0] * moments.covariances[0] + shares[1] * moments.covariances[1]
    values, vectors = torch.linalg.eigh(within + (shares[:, None] * means).T @ means)
    values = values.clamp_min(0)
    inside = vectors[:, values > OUTSIDE**2 * values[-1]]  # (d, r)
    delta = (means[1] - means[0]) @ inside
    gap = delta.square().sum().item()
    if not gap > 0:
        return None
    direction = delta / delta.norm()
    rest = torch.eye(len(delta), dtype=delta.dtype, device=delta.device) - torch.outer(direction, direction)
    own = inside.T @ moments.covariances @ inside  # (2, r, r)
    spread, shape = torch.linalg.eigh(rest @ own.mean(dim=0) @ rest)
    spread, shape = spread[1:].clamp_min(0), rest @ shape[:, 1:]  # (r − 1,), (r, r − 1): without Δ, whose value is 0
    if not spread.sum() > OUTSIDE**4 * values[-1]:  # no variance across Δ, only rounding
        spread, shape = spread[:0], shape[:, :0]
    relative = (spread / spread.mean()).clamp_min(OUTSIDE**2) if len(spread) else spread
    along = (own @ direction @ direction).clamp_min(0)  # (2,)
    across = ((own @ shape) * shape).sum(dim=1).clamp_min(0) / relative  # (2, r − 1)
    white = across.mean(dim=1) if len(spread) else torch.zeros_like(along)
    total = power * gap
    common = COMMON * total / len(spread) if len(spread) else 0.0
    classes = Classes(
        positive=shares[1].item(),
        gap=gap,
        along=(along[0].item(), along[1].item()),
        across=(white[0].item() + common, white[1].item() + common),
        directions=len(spread),
    )
    best = solve(classes, total - common * len(spread))
    outside = (max(power, 1.0) * torch.maximum(OUTSIDE**2 * values[-1], _farthest(rows, values, vectors))).sqrt()
    both = []
    for one, two in zip(best.along, best.across, strict=True):
        inner = one**0.5 * torch.outer(direction, direction) + (shape * ((two + common) * relative).sqrt()) @ shape.T
        both.append(inside @ inner @ inside.T + outside * torch.eye(means.shape[1], dtype=means.dtype, device=means.device))
    return torch.stack(both)


def _farthest(rows: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """The largest squared length that any row has outside the row space, a float64; if it is tiny, an upper bound of it.

    Args:
        rows: gradients, float32[B, d].
        values: eigenvalues of rowsᵀ·rows / B, float64[d], ascending.
        vectors: their eigenvectors, float64[d, d], one in each column.
    """
    outside = values <= OUTSIDE**2 * values[-1]
    together = len(rows) * values[outside].sum()  # the sum over all rows: no single row has more
    if together <= OUTSIDE**2 * values[-1]:
        return together
    return (rows @ vectors[:, outside].to(rows.dtype)).square().sum(dim=1).max().double()


def _squares(rows: Tensor) -> Tensor:
    """rowsᵀ·rows, float64[d, d]. 1,024 rows at a time are multiplied in float32 and added in float64, to round little."""
    return torch.stack([(part.T @ part).double() for part in torch.split(rows, 1024)]).sum(dim=0)


# The minimum of Marvell: the noise of mean power P that makes the gradients of two classes as alike as possible.
#
# The gradients of each class are taken as normally distributed, with means that differ by Δ.
#
#     u1, v1      variance of the gradients along Δ: u of negatives, v of positives
#     u2, v2      variance of the gradients in each of the n directions across Δ
#     λ1⁰, λ1¹    variance of the noise along Δ: ⁰ for negatives, ¹ for positives; these superscripts are no powers
#     λ2⁰, λ2¹    variance of the noise in each direction across Δ
#     p           share of positives among the rows
#
# The sum of the two Kullback-Leibler divergences between the classes, times two and without constants, is
#
#     n·(a/b + b/a) + (A + ‖Δ‖²)/B + (B + ‖Δ‖²)/A,   a = λ2⁰ + u2, b = λ2¹ + v2, A = λ1⁰ + u1, B = λ1¹ + v1
#
# It is to be as small as possible, under p·(λ1¹ + n·λ2¹) + (1−p)·(λ1⁰ + n·λ2⁰) ≤ P and 0 ≤ λ2 ≤ λ1 for each class.
#
# At the minimum all power is used, and across Δ only the class with less variance gets noise. So two numbers remain: λ2 of that
# class, as a share of the largest possible; and which share of the remaining power goes to the positives, along Δ. They are
# searched on a grid, which is made smaller around the best point several times.
#
# Source: Li et al. 2022 (ICLR), section 5, theorem 2 and appendix; there u1 = u2 and v1 = v2.


POINTS = 33
"""Points of the grid for each of the two numbers."""

ROUNDS = 7
"""How many grids are searched, each an eighth as wide as the one before; the last has steps below a millionth."""


@dataclass(frozen=True)
class Classes:
    """The figures of one batch on which the noise depends; symbols as above.

    Attributes:
        positive: p, the share of positives, between 0 and 1.
        gap: ‖Δ‖².
        along: (u1, v1), variances of negatives and of positives along Δ.
        across: (u2, v2), their variances in each direction across Δ.
        directions: n, the number of directions across Δ.
    """

    positive: float
    gap: float
    along: tuple[float, float]
    across: tuple[float, float]
    directions: int


@dataclass(frozen=True)
class Variances:
    """Variances of the noise, each for (negatives, positives).

    Attributes:
        along: (λ1⁰, λ1¹), along Δ.
        across: (λ2⁰, λ2¹), in each direction across Δ.
    """

    along: tuple[float, float]
    across: tuple[float, float]


def solve(classes: Classes, power: float) -> Variances:
    """The variances of the best noise of mean ``power``, which is above 0. Cost: 7 grids of 33 × 33 points, about two ms."""
    low, width = np.zeros(2), 1.0
    for _ in range(ROUNDS):
        grid = np.linspace(0, 1, POINTS) * width
        shares = np.meshgrid(np.clip(low[0] + grid, 0, 1), np.clip(low[1] + grid, 0, 1), indexing="ij")
        values = divergence(classes, *_variances(classes, power, *shares))
        best = np.unravel_index(int(np.argmin(values)), values.shape)
        width /= 8
        low = np.clip([share[best] - width / 2 for share in shares], 0, 1 - width)
    along, across = _variances(classes, power, *(share[best] for share in shares))
    return Variances((float(along[0]), float(along[1])), (float(across[0]), float(across[1])))


def divergence(
    classes: Classes, along: Sequence[NDArray[np.float64] | float], across: Sequence[NDArray[np.float64] | float]
) -> NDArray[np.float64]:
    """The sum of both Kullback-Leibler divergences between the classes, with noise of the variances ``along`` and ``across``.

    It is infinite if a class has no variance along Δ, or if only one of them has variance across Δ.
    """
    n, gap = classes.directions, classes.gap
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.asarray(noise + own) for noise, own in zip(across, classes.across, strict=True))
        both = np.where((a == 0) & (b == 0), 2.0, a / b + b / a)  # neither class has any variance: they are alike
        negative, positive = (np.asarray(noise + own) for noise, own in zip(along, classes.along, strict=True))
        value = (n * both + (negative + gap) / positive + (positive + gap) / negative) / 2 - n - 1
    return np.nan_to_num(np.asarray(value, dtype=np.float64), nan=np.inf, posinf=np.inf)


def cost(classes: Classes, noise: Variances) -> float:
    """The power of ``noise``, as a mean over all rows."""
    shares = (1 - classes.positive, classes.positive)
    each = (along + classes.directions * across for along, across in zip(noise.along, noise.across, strict=True))
    return sum(share * power for share, power in zip(shares, each, strict=True))


def _variances(
    classes: Classes, power: float, to_across: NDArray[np.float64], to_positives: NDArray[np.float64]
) -> tuple[tuple[NDArray[np.float64], ...], tuple[NDArray[np.float64], ...]]:
    """λ1 and λ2, each for (negatives, positives), at some points of the grid.

    Args:
        classes: the figures of the batch.
        power: P, the mean power of the noise.
        to_across: λ2 of the class with less variance across Δ, as a share of the largest possible.
        to_positives: the share of the power left that goes to the positives, along Δ.
    """
    p, (u, v), n = classes.positive, classes.across, classes.directions
    less = p if v < u else 1 - p  # the share of rows in the class with less variance across Δ
    most = power / (less * (n + 1))  # the largest λ2: along Δ the class must have as much
    across = np.minimum(to_across * most, abs(u - v)) if n else np.zeros_like(to_across)
    rest = power - across * less * (n + 1)
    two = (across * (u < v), across * (v < u))
    one = (two[0] + (1 - to_positives) * rest / (1 - p), two[1] + to_positives * rest / p)
    return one, two
