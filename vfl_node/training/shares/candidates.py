"""One party's candidates for splits: for each of its columns the ways in which a row may go left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from vfl_node.crypto.shares.masked import Narrow, gather_columns, spread_words
from vfl_node.crypto.shares.ring import Ring


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of one party over the shared order, as :class:`~vfl_node.crypto.shares.cells.OwnCells`.

    Attributes:
        bins: uint16[n, C], the bin of each row in each column; of a row that is not its own any one.
        left: for each column bool[bins, candidates]: whether rows of a bin go left under a candidate.
    """

    bins: NDArray[np.uint16]
    left: Sequence[NDArray[np.bool_]]

    def select(self, first: int, last: int) -> Candidates:
        """Those of some of the columns, from ``first`` up to, but not including, ``last``."""
        return Candidates(self.bins[:, first:last], self.left[first:last])

    @property
    def width(self) -> int:
        """W, how many candidates there are."""
        return sum(each.shape[1] for each in self.left)

    @property
    def ends(self) -> Ring:
        """1 at the last candidate of each column, uint64[W]."""
        found = np.zeros(self.width, np.uint64)
        found[np.cumsum([each.shape[1] for each in self.left]) - 1] = 1
        return found

    def block(self, start: int, stop: int) -> Narrow:
        """Some rows of the matrix."""
        bins = self.bins[start:stop]
        parts = [each[bins[:, column]] for column, each in enumerate(self.left)]
        return np.concatenate(parts, axis=1).astype(np.uint16)

    def sums(self, values: Ring) -> Ring:
        """As in the contract: sums by bin, and of these by candidate."""
        by_row, parts = np.ascontiguousarray(values.T), []
        ones, ends = np.ones(len(self.bins), np.uint64), np.arange(len(self.bins) + 1, dtype=np.int32)
        for column, each in enumerate(self.left):
            bins_of_rows = csc_array((ones, self.bins[:, column].astype(np.int32), ends), shape=(len(each), len(self.bins)))
            parts.append((bins_of_rows @ by_row).T @ each.astype(np.uint64))
        return np.concatenate(parts, axis=1)

    def pick(self, selected: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """As in the contract: for each column a table of bins, with all K answers in one number."""
        parts = []
        for chosen in gather_columns(selected):
            found, first = np.zeros(len(self.bins), np.uint64), 0
            for column, each in enumerate(self.left):
                table = np.bitwise_xor.reduce(chosen[first : first + each.shape[1]] * each, axis=1, dtype=np.uint64)
                found ^= table[self.bins[:, column]]
                first += each.shape[1]
            parts.append(found)
        return spread_words(parts, len(selected))
