"""Which party's columns help: how much worse the metrics are where one party's part belongs to other rows.

::

    several times, for each party that has columns:
        its part of the held-out rows is permuted: its embeddings, or the active party's own columns
        the top reads it beside the true parts of all others
        drop = how much worse each metric is then

Only the active party computes, from embeddings that it has received for the evaluation anyway: no further message. It permutes
the rows that it owns, whose metrics it measures, among themselves, so that as many of them have synthetic columns as before.
All rows are computed, since how long that takes must not tell how many it owns.

What a drop does not say: where columns of two parties tell the same, each can stand in for the other, and both drops are small.
A permuted part may not fit the other parts, so that the model is asked about rows that do not exist.

Leaks: nothing.

Source: Breiman 2001 (random forests, section 10), with all columns of a party as one variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.training.evaluation import Repeats, Values
from vfl_node.training.network.half import Positions

PERMUTATIONS = 5

MOST_ROWS = 1 << 15
"""Held-out rows whose embeddings are stored for this; of more, the first ones, which are as random as any."""


class HeldOutInputs:
    """What the top reads of held-out rows, ``most`` of them at most."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._positions: list[Positions] = []
        self._embeddings: list[Sequence[Tensor]] = []
        self._room = most

    def add(self, positions: Positions, embeddings: Sequence[Tensor]) -> None:
        """Store a batch: int64[B], and float32[B, d] of each passive party; nothing once there are as many as wanted."""
        if self._room:
            self._positions.append(positions[: self._room])
            self._embeddings.append([embedding[: self._room] for embedding in embeddings])
            self._room -= len(self._positions[-1])

    @property
    def positions(self) -> Positions:
        """Positions of all rows, int64[n]."""
        return np.concatenate(self._positions)

    @property
    def embeddings(self) -> list[Tensor]:
        """Embeddings of each passive party, float32[n, d]."""
        return [torch.cat(parts) for parts in zip(*self._embeddings, strict=True)]


def drops(
    parts: HeldOutInputs,
    owned: NDArray[np.bool_],
    active: str | None,
    passive: Sequence[str],
    measure: Callable[[Positions, Sequence[Tensor]], Values],
    randomness: Randomness,
) -> dict[str, Repeats]:
    """Party → metric → its drop in each permutation; above 0 where the metric is worse than with the party's true part.

    Args:
        parts: of n held-out rows.
        owned: bool[m], which shared rows the active party owns.
        active: its name; None where it has no columns.
        passive: names of the others, in the order of ``parts``.
        measure: gives the metrics of all n rows, from the shared position whose own columns are read for each, int64[n], and
            each passive party's embeddings, float32[n, d].
        randomness: of this alone.

    Cost: :data:`PERMUTATIONS` forward passes of the active party's half for each party.
    """
    positions, embeddings = parts.positions, parts.embeddings
    places = np.flatnonzero(owned[positions])
    whole = measure(positions, embeddings)

    def order(number: int) -> NDArray[np.int64]:
        rows = np.arange(len(positions))
        rows[places] = places[randomness.derive(str(number)).permutation(len(places))]
        return rows

    def permute(party: str, rows: NDArray[np.int64]) -> Values:
        if party == active:
            return measure(positions[rows], embeddings)
        return measure(
            positions,
            [part[torch.from_numpy(rows)] if name == party else part for name, part in zip(passive, embeddings, strict=True)],
        )

    orders = [order(number) for number in range(PERMUTATIONS)]
    dropped = {
        party: [_drop(whole, permute(party, rows)) for rows in orders] for party in ([active] if active else []) + [*passive]
    }
    return {party: {name: [values[name] for values in each] for name in whole} for party, each in dropped.items()}


def _drop(whole: Values, permuted: Values) -> Values:
    """How much worse each metric is; None where it is not defined."""

    def drop(name: str) -> float | None:
        true, other = whole[name], permuted[name]
        if true is None or other is None:
            return None
        return other - true if name in LOWER_IS_BETTER else true - other

    return {name: drop(name) for name in whole}
