"""The distance-ratio attack: a row drawn around a real one has it nearer than a place so dense lets expect.

How near the nearest row is, by itself, tells a dense place from an empty one; divided by the distance
to the 16th it tells a row with one close relative, wherever it lies.

Source: the ratio test of Lowe 2004 (section 7.1), there of features of images; its use here is our own, and the paper draws
nothing around a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vfl_node.privacy.attacks.attack import EpochAttack
from vfl_node.privacy.attacks.neighbours import NEAR, ROWS_AT_ONCE, nearest_rows
from vfl_node.privacy.attacks.transcript import TranscriptEpoch

FURTHER = NEAR
"""The row whose distance the nearest one's is compared with."""


def scores(rows: Tensor, which: Tensor | None = None) -> Tensor:
    """Minus the distance of each row to the nearest other one, divided by that to the 16th.

    Args:
        rows: float[B, d], embedded by the same weights, or nearly.
        which: int64[q], numbers of the rows asked for; None: all.

    Returns:
        float64[q] on the CPU, from −1 to 0; −1 where these are equally far, or there is one other row at most.

    Cost: q·B·d multiplications.
    """
    which = torch.arange(len(rows)) if which is None else which
    if len(rows):
        rows = rows / rows.abs().amax().clamp_min(torch.finfo(rows.dtype).tiny)  # squares of tiny gradients are not 0
    return scores_beside(rows, which, nearest_rows(rows, which))


def scores_beside(rows: Tensor, which: Tensor, beside: Tensor) -> Tensor:
    """The same, where it is known which rows are the nearest to each: ``beside``, int64[q, 16] or fewer."""
    if beside.numel() == 0:
        return torch.full((len(which),), -1.0, dtype=torch.float64)
    parts = []
    for asked, near in zip(torch.split(which.to(rows.device), ROWS_AT_ONCE), torch.split(beside, ROWS_AT_ONCE), strict=True):
        ways = rows[near] - rows[asked][:, None]  # (q, 16, d)
        ways = ways / ways.abs().amax().clamp_min(torch.finfo(rows.dtype).tiny)  # squares of tiny gradients are not 0
        squares = ways.square().sum(dim=2)
        parts.append(ratios(torch.cat([squares, torch.full_like(squares[:, :1], torch.inf)], dim=1)).double().cpu())
    return torch.cat(parts)


def ratios(squares: Tensor) -> Tensor:
    """:func:`scores` by squared distances float[..., B], ∞ where there is no other row; float[...]."""
    count = min(FURTHER, squares.shape[-1] - 1)
    if count < 2:
        return squares.new_full(squares.shape[:-1], -1)
    near = squares.topk(count, dim=-1, largest=False).values.clamp_min(0)
    ratio = (near[..., 0] / near[..., -1]).sqrt()
    return -torch.where(near[..., -1] > 0, ratio, 1)


class DistanceRatio(EpochAttack):
    """AUC of the mean over epochs, at positions met in every epoch."""

    title = "distance ratio"
    reading = "how near the nearest row is, for so dense a place"

    def _judge(self, epoch: TranscriptEpoch) -> None:
        self._tally.add(*self._scope.ratios(epoch))
