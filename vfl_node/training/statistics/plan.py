"""What everybody knows of statistics in shares, the dealer too: shapes, and how much noise there is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.gdp import mu_of
from vfl_node.training.statistics import correlations
from vfl_node.training.statistics.exact_plan import ExactPlan

BLOCK_CELLS = 1 << 26
"""Cells that are masked and counted at a time: so memory is bounded, whatever the number of columns is."""

MOST_COMPARED = 500
"""Columns of all parties together that are compared with each other, at most: each pair has a number in the report."""

SCORE_GROUPS = 10
"""Groups of about as many records of the active party, by its own score."""

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Some columns of one party.

    Attributes:
        owner: its place.
        first, last: of its columns from ``first`` up to, but not including, ``last``.
    """

    owner: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class StatisticsPlan:
    """The shapes of the statistics of a job.

    Attributes:
        rows: length of the shared order, n.
        columns: of each party, in the order of the job.
        cells: of each column, the one of missing values included.
        groups: shared positions of each group of rows: those trained on, and those held out, if there are any.
        epsilon: of all numbers that are opened; None: none is, but rounded results.
        least_rows: records of either label in a bin, at least.
        correlations: whether columns are compared with each other, too.
        worth: whether passive parties' columns are counted by groups of the active party's own score, too.
    """

    rows: int
    columns: tuple[int, ...]
    cells: int
    groups: tuple[Positions, ...]
    epsilon: float | None
    least_rows: int
    correlations: bool = False
    worth: bool = False

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All columns of all parties, some of them at a time."""
        return tuple(blocks_of(self.rows, self.columns, self.cells))

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of each number of records; 0 without."""
        return noise_of(self._mu, sum(self.columns)) if self.epsilon else 0.0

    @property
    def deviation_of_products(self) -> float:
        """The same of each number that correlations are made of."""
        return correlations.noise_of(self._mu, sum(self.columns))

    @property
    def _mu(self) -> float:
        """μ of each kind of numbers: squares add up."""
        assert self.epsilon is not None
        return mu_of(self.epsilon) / math.sqrt(1 + self.correlations)

    @property
    def score_groups(self) -> int:
        """In how many groups the active party's rows are counted."""
        return SCORE_GROUPS if self.worth else 1

    @property
    def exact(self) -> ExactPlan:
        """All columns, as :func:`~.exact.summarise` takes them."""
        owners = np.repeat(np.arange(len(self.columns)), self.columns)
        return ExactPlan((self.cells,) * len(owners), tuple(owners.tolist()), self.least_rows)

    @property
    def judged(self) -> ExactPlan:
        """Those of passive parties."""
        others = self.exact.owners[self.columns[0] :]
        return ExactPlan((self.cells,) * len(others), others, self.least_rows)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of each party in a row that is compared."""
        return self.columns[0] + correlations.BESIDE, *self.columns[1:]


def blocks_of(rows: int, columns: Sequence[int], cells: int) -> Iterator[Block]:
    """Blocks of up to :data:`BLOCK_CELLS` cells, one column at least."""
    at_once = max(1, BLOCK_CELLS // max(1, rows * cells))
    for owner, count in enumerate(columns):
        for first in range(0, count, at_once):
            yield Block(owner, first, min(first + at_once, count))


def noise_of(mu: float, columns: int) -> float:
    """The standard deviation of the noise of each number, over so many columns of all parties.

    A record is in one bin of each column. Neighbouring worlds differ in one record that is shared, or is so instead of another
    one, or in one label: so two numbers of each column differ by 1, at most, and all of them together by √(2·columns).
    """
    return math.sqrt(2 * columns) / mu
