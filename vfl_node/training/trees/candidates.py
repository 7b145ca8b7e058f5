"""One party's candidates for splits: for each of its columns the ways in which a row may go left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

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

    @property
    def width(self) -> int:
        """W, how many candidates there are."""
        return sum(each.shape[1] for each in self.left)

    def block(self, start: int, stop: int) -> Narrow:
        """Some rows of the matrix."""
        bins = self.bins[start:stop]
        parts = [each[bins[:, column]] for column, each in enumerate(self.left)]
        return np.concatenate(parts, axis=1).astype(np.uint16)

    def sums(self, values: Ring) -> Ring:
        """As in the contract: sums by bin, and of these by candidate."""
        by_bin = (self._bins_of_rows @ values.T).T
        parts, first = [], 0
        for each in self.left:
            parts.append(by_bin[:, first : first + len(each)] @ each.astype(np.uint64))
            first += len(each)
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

    @cached_property
    def _bins_of_rows(self) -> csr_array:
        """1 where a row is in a bin, uint64[bins of all columns, n]."""
        rows, columns = self.bins.shape
        firsts = np.cumsum([0, *(len(each) for each in self.left)])
        places = (self.bins + firsts[:-1]).ravel().astype(np.int32)
        ones, ends = np.ones(places.size, np.uint64), np.arange(0, places.size + 1, columns)
        return csr_array((ones, places, ends), shape=(rows, int(firsts[-1]))).T.tocsr()
