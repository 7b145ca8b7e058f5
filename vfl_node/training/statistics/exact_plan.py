"""What everybody knows of figures that are computed in shares: bins, whose they are, and which constants values are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares import logarithm
from vfl_node.crypto.shares.functions import Guess
from vfl_node.crypto.shares.values import Shared

MOST_ROWS = 1 << 22
"""Shared records of a column with one label, trained on or held out, at most."""

GUESS = Guess.from_range(1, 4 * MOST_ROWS, 0)
"""Thresholds of twice a number of records."""

ALONE = 1 << (logarithm.LOGARITHM_FRACTION - 2)
"""By how much less the logarithm of a single record counts (:mod:`vfl_node.training.statistics.worth`)."""

CONSTANTS = (*logarithm.CONSTANTS, GUESS.thresholds, GUESS.changes, logarithm.logarithm_weights(GUESS), (ALONE,))
"""What values are made of."""

_LOOKED_UP = 1 << 20  # at a time: so memory is bounded


@dataclass(frozen=True)
class ExactPlan:
    """What is public of the columns.

    Attributes:
        bins: of each column, at least 1.
        owners: place of each column's owner.
        least_rows: records of either kind that a figure is of in a bin, at least 1.
    """

    bins: tuple[int, ...]
    owners: tuple[int, ...]
    least_rows: int

    @cached_property
    def column(self) -> NDArray[np.intp]:
        """The column of each bin."""
        return np.repeat(np.arange(len(self.bins)), self.bins)

    @cached_property
    def with_pools(self) -> ExactPlan:
        """The same with one more bin at the end of each column, for its small bins together."""
        return ExactPlan(tuple(count + 1 for count in self.bins), self.owners, self.least_rows)

    @property
    def pools(self) -> NDArray[np.intp]:
        """Which bins of :attr:`with_pools` are those."""
        return np.cumsum(self.with_pools.bins) - 1

    @property
    def places(self) -> NDArray[np.intp]:
        """Which are the others."""
        return np.arange(len(self.column)) + self.column

    def insert_pools(self, value: Shared, pools: Shared) -> Shared:
        """Numbers of bins and of pools together, [..., B] and [..., C] → [..., B + C]."""
        part = np.empty((*value.shape[:-1], len(self.with_pools.column)), np.uint64)
        part[..., self.places], part[..., self.pools] = value.part, pools.part
        return Shared(part, value.fraction)

    def add_up(self, value: Shared) -> Shared:
        """Sums over the bins of each column, [..., B] → [..., C]."""
        return Shared(np.add.reduceat(value.part, self._starts, axis=-1), value.fraction)

    def accumulate(self, value: Shared) -> Shared:
        """Sums over the first bins of each column, [B] → [B]."""
        sums = np.cumsum(value.part, dtype=np.uint64)
        before = np.concatenate([np.zeros(1, np.uint64), sums])[self._starts]
        return Shared(sums - before[self.column], value.fraction)

    def split(self, numbers: int) -> Iterator[tuple[slice, slice, ExactPlan]]:
        """Bins, columns and plans of some columns at a time, of which each bin has so many ``numbers`` that are looked up."""
        most, first = _LOOKED_UP // (numbers * (1 + len(GUESS.thresholds))), 0
        ends = np.cumsum(self.bins)
        while first < len(self.bins):
            start = int(ends[first]) - self.bins[first]
            last = max(first + 1, int(np.searchsorted(ends, start + most, side="right")))
            plan = ExactPlan(self.bins[first:last], self.owners[first:last], self.least_rows)
            yield slice(start, int(ends[last - 1])), slice(first, last), plan
            first = last

    def owned(self, parties: int) -> NDArray[np.bool_]:
        """Which columns are each party's own, bool[parties, C]."""
        return np.array(self.owners) == np.arange(parties)[:, None]

    def find_receivers(self, parties: int) -> NDArray[np.bool_]:
        """To which parties figures of each column are opened, bool[parties, C]: its owner and the active one."""
        return self.owned(parties) | (np.arange(parties)[:, None] == 0)

    def find_places(self) -> list[NDArray[np.intp]]:
        """The bins of each column."""
        return np.split(np.arange(len(self.column)), self._starts[1:])

    @property
    def _starts(self) -> NDArray[np.intp]:
        return np.cumsum([0, *self.bins[:-1]])
