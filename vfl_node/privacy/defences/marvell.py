"""Marvell, repaired: noise that makes both classes' gradients as alike as its power can, wherever these gradients lie.

For each batch, of its gradients G, [B, d]:

* their row space: the directions of singular values above a thousandth of the largest. A top of one layer gives one direction;
* in it Δ, the means' difference, the variances along Δ, and the shape of what lies across it: the mean of both classes'
  covariances, whatever their sizes, so that no direction of a rare class is missed;
* noise of power s·‖Δ‖²: a tenth of it across Δ in this shape, the same for both classes; the rest by
  :func:`~vfl_node.privacy.defences.marvell.solve`, across Δ in the same shape;
* outside the row space the same noise for both classes, as strong as the longest part of a row that lies there.

As published, noise across Δ is the same in all d directions, and only one class has it. In directions where gradients are zero
the residual then tells the classes apart, at an AUC of .84 to 1.00 with a top of one layer. With a ReLU in the top gradients
lie on a few cones, which are others for each class, and the class without noise across Δ keeps them: boosted trees that know
half of a batch's labels read the rest at .80 to .95, and at .56 to .66 with the common tenth (8,192 rows, 1 % to 40 %
positives, s = 4).

A batch of one class has no Δ. It gets the noise of the batch before: to send it as it is would tell its class.

What it does not do: the mean of a row's gradients over epochs has less noise than one gradient.

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
"""Singular values below this share of the largest are outside the row space."""

COMMON = 0.1
"""Share of the power that goes across Δ to both classes alike."""


class Marvell(Defence):
    """Adds noise that depends on the row's class. Its state is the noise of the newest batch with both classes.

    Cost: d² + r² multiplications a row and 15 ns a number for the noise; two milliseconds a batch for the minimum.
    """

    def __init__(self, params: MarvellParams, sender: Sender, randomness: Randomness) -> None:
        self._power, self._randomness = params.power, randomness
        self._factors = torch.empty(0)
        """Symmetric square roots of the noise's covariance, float32[2, d, d], of negatives and positives, of rows' own losses.

        A batch of another length takes it as it is: of fewer rows each has a larger gradient in the mean loss."""

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        assert leaving.labels is not None
        scale = tensor.abs().max()
        if not scale > 0:
            scale = torch.ones_like(scale) / leaving.mean_of  # no gradient at all: what is sent must not be zero
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
    """What the noise depends on, of B gradients.

    Attributes:
        counts: of negatives and positives, float64[2].
        means: of each, float64[2, d].
        covariances: of each around its mean, float64[2, d, d].
    """

    counts: Tensor
    means: Tensor
    covariances: Tensor

    @classmethod
    def from_rows(cls, rows: Tensor, positive: Tensor) -> Moments:
        """The moments of ``rows``, float32[B, d] of about unit size, of which bool[B] are ``positive``. Cost: d² a row."""
        squares, sums = _squares(rows), rows.sum(dim=0, dtype=torch.float64)
        ones = rows[positive]
        own, total = _squares(ones), ones.sum(dim=0, dtype=torch.float64)
        counts = torch.tensor([len(rows) - len(ones), len(ones)], dtype=torch.float64, device=rows.device)
        means = torch.stack([sums - total, total]) / counts.clamp_min(1)[:, None]
        second = torch.stack([squares - own, own]) / counts.clamp_min(1)[:, None, None]
        return cls(counts, means, second - means[:, :, None] * means[:, None, :])


def noise_of(rows: Tensor, positive: Tensor, power: float) -> Tensor | None:
    """The best noise for ``rows``, float32[B, d], of which bool[B] are ``positive``.

    Args:
        rows: gradients, of about unit size.
        positive: their class.
        power: s, of ‖Δ‖².

    Returns:
        Symmetric square roots of its covariance, float64[2, d, d], of negatives and positives; None where both classes have the
        same mean, or only one is there.
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
    spread, shape = spread[1:].clamp_min(0), rest @ shape[:, 1:]  # the smallest is that of Δ, which is 0
    if not spread.sum() > OUTSIDE**4 * values[-1]:  # nothing but rounding
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
    """The largest square of the part of a row that lies outside the row space, or more than that where it is tiny anyway.

    Args:
        rows: float32[B, d].
        values: eigenvalues of the rows' second moment, float64[d], ascending.
        vectors: its eigenvectors, float64[d, d].
    """
    outside = values <= OUTSIDE**2 * values[-1]
    together = len(rows) * values[outside].sum()  # of all rows: none has more
    if together <= OUTSIDE**2 * values[-1]:
        return together
    return (rows @ vectors[:, outside].to(rows.dtype)).square().sum(dim=1).max().double()


def _squares(rows: Tensor) -> Tensor:
    """rowsᵀ·rows, float64[d, d]; sums of products of a thousand rows each, so that float32 has the bits that count."""
    return torch.stack([(part.T @ part).double() for part in torch.split(rows, 1024)]).sum(dim=0)


# The noise of a given power that makes two classes' gradients as alike as can be: Marvell's minimum.
#
# Both classes are taken as normal around their means, Δ apart: of variance u1 and v1 along Δ, u2 and v2 in each of the n
# directions across it (u of negatives, v of positives). Noise adds λ1 along Δ and λ2 in each direction across. Twice the sum of
# both Kullback-Leibler divergences, but for constants, is
#
#     n·(a/b + b/a) + (A + ‖Δ‖²)/B + (B + ‖Δ‖²)/A,   a = λ2⁰ + u2, b = λ2¹ + v2, A = λ1⁰ + u1, B = λ1¹ + v1
#
# and noise costs  p·(λ1¹ + n·λ2¹) + (1−p)·(λ1⁰ + n·λ2⁰) ≤ P  with 0 ≤ λ2 ≤ λ1 for each class.
#
# All power is used, and across Δ only the class of less variance gets noise. So two numbers are left, the share of the power
# that goes across, and the share of the rest that goes to the positives. They are searched on a grid that closes in on the
# minimum.
#
# Source: Li et al. 2022 (ICLR), section 5, theorem 2 and appendix; there u1 = u2 and v1 = v2.


POINTS = 33
"""Points of the grid in each of both directions."""

ROUNDS = 7
"""How often the grid closes in, each time on an eighth of it: to about a millionth."""


@dataclass(frozen=True)
class Classes:
    """What the noise depends on, of one batch.

    Attributes:
        positive: p, the share of positives, between 0 and 1.
        gap: ‖Δ‖².
        along: (u1, v1), variances of negatives and positives along Δ.
        across: (u2, v2), in each direction across Δ.
        directions: n, how many there are across Δ.
    """

    positive: float
    gap: float
    along: tuple[float, float]
    across: tuple[float, float]
    directions: int


@dataclass(frozen=True)
class Variances:
    """Variances of the noise: (negatives, positives) each.

    Attributes:
        along: λ1⁰ and λ1¹, along Δ.
        across: λ2⁰ and λ2¹, in each direction across it.
    """

    along: tuple[float, float]
    across: tuple[float, float]


def solve(classes: Classes, power: float) -> Variances:
    """The best noise of mean ``power``, P > 0. Costs 7 grids of 33 × 33 points, about two milliseconds."""
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
    """KL of the classes both ways together, with noise of these variances; infinite where a class has no variance at all."""
    n, gap = classes.directions, classes.gap
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.asarray(noise + own) for noise, own in zip(across, classes.across, strict=True))
        both = np.where((a == 0) & (b == 0), 2.0, a / b + b / a)  # neither has any: they are alike
        negative, positive = (np.asarray(noise + own) for noise, own in zip(along, classes.along, strict=True))
        value = (n * both + (negative + gap) / positive + (positive + gap) / negative) / 2 - n - 1
    return np.nan_to_num(np.asarray(value, dtype=np.float64), nan=np.inf, posinf=np.inf)


def cost(classes: Classes, noise: Variances) -> float:
    """The mean power of noise of these variances."""
    shares = (1 - classes.positive, classes.positive)
    each = (along + classes.directions * across for along, across in zip(noise.along, noise.across, strict=True))
    return sum(share * power for share, power in zip(shares, each, strict=True))


def _variances(
    classes: Classes, power: float, to_across: NDArray[np.float64], to_positives: NDArray[np.float64]
) -> tuple[tuple[NDArray[np.float64], ...], tuple[NDArray[np.float64], ...]]:
    """λ1 and λ2 of both classes where these shares of ``power`` go across Δ, and of what is left along it to positives."""
    p, (u, v), n = classes.positive, classes.across, classes.directions
    less = p if v < u else 1 - p  # the share of the class that has less variance
    most = power / (less * (n + 1))  # along Δ there is at least as much as across
    across = np.minimum(to_across * most, abs(u - v)) if n else np.zeros_like(to_across)
    rest = power - across * less * (n + 1)
    two = (across * (u < v), across * (v < u))
    one = (two[0] + (1 - to_positives) * rest / (1 - p), two[1] + to_positives * rest / p)
    return one, two
