"""The same-step twin attack: equal rows under equal weights have equal embeddings.

Two rows of one batch meet the same weights, so a copied row and its source are equal up to
rounding whenever a batch has both, and the same holds for all rows that are held out or
predicted. In how many batches a row met its equal is what counts: a copy meets its source
beside other copies, a source other copies only.

Source: our own; the paper does not run it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.privacy.attacks.attack import Scope, ScoringAttack, Subset
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch

EXACT = 1e-5
"""Distance of equal rows relative to their norm, at most: float32 rounds at about 1e-7."""

ROWS_AT_ONCE = 1024

WAITING = 4096
"""Rows of steps of one size that wait until their twins are sought together; a step's may be more."""


def twins(rows: Tensor) -> NDArray[np.bool_]:
    """Which rows of a batch, float[B, d], are equal to another one of it up to rounding: bool[B].

    Cost: B²·d multiplications.
    """
    rows = rows.double().cpu()
    parts = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        asked = rows[start : start + ROWS_AT_ONCE]
        distances = torch.cdist(asked, rows)
        own = torch.arange(len(asked))
        distances[own, start + own] = torch.inf
        parts.append(distances.amin(dim=1) <= EXACT * asked.norm(dim=1))
    return torch.cat(parts).numpy() if parts else np.zeros(0, dtype=np.bool_)


class SameStepTwin(ScoringAttack):
    """AUC of the share of steps in which a row met its equal, at positions met at all."""

    title = "same-step twin"
    reading = "in how many batches an equal row stands"
    lasts = "job"  # synthetic rows are the same in every repeat

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        super().__init__(truth, scope)
        self._waiting = TranscriptEpoch(0)

    @staticmethod
    def _judging(scope: Scope) -> Subset:
        return scope.met

    @override
    def see(self, batch: Batch) -> None:
        waiting, size = self._waiting, len(batch.positions)
        if waiting.positions and (waiting.number != batch.epoch or len(waiting.positions[0]) != size):
            self._settle()
        self._waiting.number = batch.epoch
        self._waiting.positions.append(batch.positions)
        self._waiting.rows.append(self._scope.reduce(batch))
        if len(self._waiting.rows) * size >= WAITING:
            self._settle()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, TranscriptEpoch(self._waiting.number)
        if waiting.rows:
            self._tally.add(np.concatenate(waiting.positions), self._scope.twins(waiting.rows).ravel())

    def _forget(self) -> None:
        self._waiting = TranscriptEpoch(0)
