"""How the shared rows are cut into the batches in which wanted rows hide: the same at both parties."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness


class Batches:
    """A fixed partition of the ``size`` shared rows, in a random order; the last batch is filled up from the first.

    Args:
        seed: 32 bytes that both parties know.
        size: number of shared rows m, at least 1.
        rows: rows of a batch B.
    """

    def __init__(self, seed: bytes, size: int, rows: int) -> None:
        order = Randomness(seed).derive("batches").permutation(size)
        self.rows = rows
        self._order = order
        self._place = np.empty(size, dtype=np.int64)
        self._place[order] = np.arange(size)

    def __len__(self) -> int:
        """Number of batches, ⌈m/B⌉."""
        return -(-len(self._order) // self.rows)

    def positions(self, number: int) -> NDArray[np.int64]:
        """The shared positions of batch ``number``, int64[B]; in the last one some may occur twice."""
        places = np.arange(number * self.rows, (number + 1) * self.rows)
        return self._order[places % len(self._order)]

    def find(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where ``positions``, int64[k], are.

        Returns:
            int64[j], their batches, ascending and distinct, and int64[k], the place of each
            position in these batches, one behind the other.
        """
        places = self._place[positions]
        numbers, index = np.unique(places // self.rows, return_inverse=True)
        return numbers, index * self.rows + places % self.rows

    @property
    def fingerprint(self) -> bytes:
        """Names the partition without telling it."""
        state = hashlib.sha256(b"vfl-node prediction batches" + self.rows.to_bytes(8, "big"))
        state.update(self._order.astype("<i8").tobytes())
        return state.digest()
