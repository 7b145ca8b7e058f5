"""The longitudinal attack: a synthetic row that is drawn anew each epoch jumps, a real one drifts.

Against features redrawn each epoch it reached AUC .86, .93 and 1.00 after 2, 3 and 10 epochs
where the attack of one batch stayed at chance; against one fixed draw it stayed at .50.

Source: the reference notes on FLORIST (Song et al. 2021); the paper does not run it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from vfl_node.privacy.attacks.attack import EpochAttack, Positions, Scope
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch

SMALLEST = 1e-300
"""Norm below which a row has no direction; gradients of rows that are predicted well are tiny and still have one."""


def change(before: Tensor, after: Tensor) -> Tensor:
    """1 − cosine between rows, float[…, d] → float64[…] in 0 … 2. Two zero rows are no change."""
    before, after = (normalize(rows.double(), dim=-1, eps=SMALLEST) for rows in (before, after))
    still = (before == after).all(dim=-1)  # also two zero rows, which have no cosine
    return (1 - (before * after).sum(dim=-1)).masked_fill(still, 0.0)


class Longitudinal(EpochAttack):
    """AUC of the mean change between consecutive epochs, at positions met in every epoch."""

    title = "longitudinal"
    reading = "how a row changes from epoch to epoch"
    epochs = 2

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        super().__init__(truth, scope)
        self._before: tuple[Positions, Tensor] | None = None

    @property
    @override
    def judged(self) -> int | None:
        rows = super().judged
        return rows if self._number >= self.epochs else None

    def state(self) -> dict[str, Tensor]:
        """As :meth:`~vfl_node.privacy.attacks.attack.Attack.state`, with the rows of the newest epoch."""
        state = super().state()
        if self._before:
            positions, rows = self._before
            state |= {"positions": torch.from_numpy(positions.copy()), "rows": rows.clone()}
        return state

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        super().restore(state)
        self._before = (state["positions"].numpy().copy(), state["rows"].clone()) if "rows" in state else None

    def _gather(self, batch: Batch) -> tuple[Positions, Tensor]:
        followed = self._scope.alone(batch)
        return followed.positions, followed.rows

    def _judge(self, epoch: TranscriptEpoch) -> None:
        positions, rows = epoch.sort()
        if self._before:
            common, earlier, now = np.intersect1d(self._before[0], positions, assume_unique=True, return_indices=True)
            changes = change(self._before[1][torch.from_numpy(earlier)], rows[torch.from_numpy(now)])
            self._tally.add(common, changes.numpy())
        self._before = positions, rows

    @property
    def _known(self) -> NDArray[np.bool_]:
        return (self._tally.counts > 0) & (self._tally.counts == self._number - 1)
