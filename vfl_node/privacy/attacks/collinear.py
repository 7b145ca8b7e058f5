"""The collinearity attack: a synthetic row made up between two real ones has them on opposite sides.

A linear map keeps a row on the segment of its parents, and a ReLU network nearly does: seen from
the row one parent lies straight behind the other, whatever the distance. Rows of one step meet
equal weights, and so do all rows that are held out or predicted, which are one batch here.

Source: our own; the paper does not blend rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.privacy.attacks.attack import ScoringAttack
from vfl_node.privacy.attacks.neighbours import ROWS_AT_ONCE, nearest_rows
from vfl_node.privacy.attacks.transcript import Batch

TWIN = 1e-5
"""Relative distance below which a row is equal to another up to rounding, and lies in no direction from it."""


def scores(rows: Tensor, which: Tensor | None = None) -> Tensor:
    """How nearly each row lies between two of the 16 rows nearest to it: minus the least cosine between the ways to them.

    Args:
        rows: float[B, d], embedded by the same weights.
        which: int64[q], numbers of the rows asked for; None: all.

    Returns:
        float64[q] on the CPU, 1 exactly between two others; −1 where there are fewer than two.

    Cost: q·B·d + 256·q·d multiplications.
    """
    which = torch.arange(len(rows)) if which is None else which
    return scores_beside(rows, which, nearest_rows(rows, which))


def scores_beside(rows: Tensor, which: Tensor, beside: Tensor) -> Tensor:
    """The same, where it is known which rows are the nearest to each: ``beside``, int64[q, 16] or fewer."""
    if beside.shape[1] < 2:
        return torch.full((len(which),), -1.0, dtype=torch.float64)
    cosines = []
    for asked, near in zip(torch.split(which.to(rows.device), ROWS_AT_ONCE), torch.split(beside, ROWS_AT_ONCE), strict=True):
        ways = rows[near] - rows[asked][:, None]  # (q, 16, d)
        lengths = ways.norm(dim=2, keepdim=True)
        ways = torch.where(lengths > TWIN * rows[asked].norm(dim=1)[:, None, None], ways / lengths, 0)
        cosines.append((ways @ ways.mT).amin(dim=(1, 2)).double().cpu())
    return -torch.cat(cosines) if cosines else torch.empty(0, dtype=torch.float64)


class Collinear(ScoringAttack):
    """AUC of the largest score over all steps, at positions met at all."""

    title = "collinear"
    reading = "how nearly a row lies between two others of the batch"

    @override
    def see(self, batch: Batch) -> None:
        self._tally.raise_to(*self._scope.score_between(batch))
