"""The near-duplicate attack: a synthetic row that copies a real one has a twin in the same epoch.

The twin of a copied row is its source, and the source scores as high, so the attack is worth
more the fewer of the rows are sources. It works even if each copy is drawn once only
(AUC .72–.77 with continuous features).

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vfl_node.privacy.attacks.attack import EpochAttack, Scope, Subset
from vfl_node.privacy.attacks.transcript import TranscriptEpoch

ROWS_AT_ONCE = 1024


def scores(rows: Tensor) -> Tensor:
    """Minus the distance of each row to the nearest other one, by :func:`nearest`.

    Args:
        rows: float[k, d], one epoch.

    Returns:
        float64[k]; larger: more likely synthetic.
    """
    return -nearest(rows, torch.arange(len(rows)))


def nearest(rows: Tensor, which: Tensor) -> Tensor:
    """The Euclidean distance of each of the rows ``which`` to the nearest other row.

    The nearest is sought in the rows' own precision, where one of several nearly equally near
    may win; the distance to it is exact to float64, since that of twins is a difference of
    large numbers.

    Args:
        rows: float[k, d].
        which: int64[q], numbers of rows.

    Returns:
        float64[q] on the CPU; infinite if there is no other row.

    Cost: q·k·d multiplications.
    """
    if len(rows) < 2:
        return torch.full((len(which),), torch.inf, dtype=torch.float64)
    half_norms = rows.norm(dim=1).square() / 2  # (k,)
    distances = []
    for asked in torch.split(which.to(rows.device), ROWS_AT_ONCE):
        # ‖q − r‖²/2 less ‖q‖²/2, which does not change the order
        near = torch.addmm(half_norms[None], rows[asked], rows.mT, alpha=-1)  # (q, k)
        near.scatter_(1, asked[:, None], torch.inf)  # not itself
        distances.append((rows[asked].double() - rows[near.argmin(dim=1)].double()).norm(dim=1).cpu())
    return torch.cat(distances) if distances else torch.empty(0, dtype=torch.float64)


class NearDuplicate(EpochAttack):
    """AUC of minus the mean distance over epochs, at positions met in every epoch."""

    title = "near duplicate"
    reading = "how near the nearest row of the epoch is"
    lasts = "job"  # synthetic rows are the same in every repeat

    @staticmethod
    def _judging(scope: Scope) -> Subset:
        return scope.met

    def _judge(self, epoch: TranscriptEpoch) -> None:
        positions, distances = self._scope.nearest(epoch)
        self._tally.add(positions, -distances)
