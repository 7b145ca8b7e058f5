"""Marvell, repaired: noise that makes both classes' gradients as alike as its power can, wherever these gradients lie.

For each batch, of its gradients G, [B, d]:

* their row space: the directions of singular values above a thousandth of the largest. A top of one layer gives one direction;
* in it Δ, the means' difference, the variances along Δ, and the shape of what lies across it: the mean of both classes'
  covariances, whatever their sizes, so that no direction of a rare class is missed;
* noise of power s·‖Δ‖²: a tenth of it across Δ in this shape, the same for both classes; the rest by
  :func:`~vfl_node.privacy.defences.marvell.solve.solve`, across Δ in the same shape;
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

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.marvell.solve import Classes, solve
from vfl_node.privacy.defences.marvell.spec import MarvellParams

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

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`Defence.protect`."""
        assert leaving.labels is not None
        scale = tensor.abs().max()
        if not scale > 0:
            scale = torch.ones_like(scale) / leaving.mean_of  # no gradient at all: what is sent must not be zero
        unit, positive = tensor / scale, leaving.labels >= 0.5
        factors = noise_of(unit.double(), positive, self._power)
        if factors is not None:
            self._factors = (factors * scale * leaving.mean_of).to(tensor.dtype)
        elif not len(self._factors):
            spread = (self._power * unit.square().sum(dim=1).mean() / unit.shape[1]).sqrt() * scale * leaving.mean_of
            self._factors = spread * torch.eye(unit.shape[1], dtype=tensor.dtype, device=tensor.device).repeat(2, 1, 1)
        drawn = normal(noise(self._randomness, leaving, tensor), tensor)
        own = self._factors.to(tensor.device) / leaving.mean_of
        return tensor + torch.where(positive[:, None], drawn @ own[1], drawn @ own[0])

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Defence.state`."""
        return {"factors": self._factors} if len(self._factors) else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """As :meth:`Defence.restore`."""
        self._factors = state.get("factors", self._factors)


def noise_of(rows: Tensor, positive: Tensor, power: float) -> Tensor | None:
    """The best noise for ``rows``, float64[B, d], of which bool[B] are ``positive``.

    Args:
        rows: gradients, of about unit size.
        positive: their class.
        power: s, of ‖Δ‖².

    Returns:
        Symmetric square roots of its covariance, float64[2, d, d], of negatives and positives; None where both classes have the
        same mean, or only one is there.
    """
    share = positive.double().mean().item()
    if not 0 < share < 1:
        return None
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    values = values.clamp_min(0)
    inside = vectors[:, values > OUTSIDE**2 * values[-1]]  # (d, r)
    at = rows @ inside
    means = torch.stack([at[~positive].mean(dim=0), at[positive].mean(dim=0)])
    delta = means[1] - means[0]
    gap = delta.square().sum().item()
    if not gap > 0:
        return None
    direction = delta / delta.norm()
    centred = at - means[positive.long()]
    along = centred @ direction  # (B,)
    across = centred - along[:, None] * direction
    negatives, positives = across[~positive], across[positive]
    pooled = (negatives.T @ negatives / len(negatives) + positives.T @ positives / len(positives)) / 2
    spread, shape = torch.linalg.eigh(pooled)
    spread, shape = spread[1:].clamp_min(0), shape[:, 1:]  # the smallest is that of Δ, which is 0
    shape = shape - direction[:, None] * (direction @ shape)
    if not spread.sum() > 0:
        spread, shape = spread[:0], shape[:, :0]
    relative = (spread / spread.mean()).clamp_min(OUTSIDE**2) if len(spread) else spread
    white = across @ shape / relative.sqrt()  # (B, r − 1)
    total = power * gap
    common = COMMON * total / len(spread) if len(spread) else 0.0
    classes = Classes(
        positive=share,
        gap=gap,
        along=(_variance(along[~positive]), _variance(along[positive])),
        across=(_variance(white[~positive]) + common, _variance(white[positive]) + common),
        directions=len(spread),
    )
    best = solve(classes, total - common * len(spread))
    farthest = (rows - at @ inside.T).square().sum(dim=1).max()
    outside = max(power, 1.0) * torch.maximum(OUTSIDE**2 * values[-1] / len(rows), farthest)
    both = []
    for one, two in zip(best.along, best.across, strict=True):
        inner = one**0.5 * torch.outer(direction, direction) + (shape * ((two + common) * relative).sqrt()) @ shape.T
        both.append(inside @ inner @ inside.T + outside.sqrt() * torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device))
    return torch.stack(both)


def _variance(centred: Tensor) -> float:
    """Mean square of numbers around 0; 0 of none."""
    return centred.square().mean().item() if centred.numel() else 0.0
