"""How the shared rows are cut into batches, in which the rows of a request are hidden; the same at both parties."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness


class Batches:
    """A fixed partition of the ``size`` shared rows, in a random order, into parts that are as equal as possible.

    Each part is filled up to a full batch with rows of the next part. If instead the last batch had only the remaining rows,
    it could have a single one, which would not be hidden.

    Args:
        seed: 32 bytes that both parties know.
        size: number of shared rows m, at least 1.
        rows: rows of a batch B.

    Leaks: that the asker needs one of at least ⌊m/⌈m/B⌉⌋ rows, which is more than B/2 (one of all m rows, if m < B).
    """

    def __init__(self, seed: bytes, size: int, rows: int) -> None:
        self.rows = rows
        self._order = Randomness(seed).derive("batches").permutation(size)
        self._place = np.argsort(self._order)
        count = -(-size // rows)
        self._starts = np.arange(count) * size // count

    def __len__(self) -> int:
        """Number of batches, ⌈m/B⌉."""
        return len(self._starts)

    def positions(self, number: int) -> NDArray[np.int64]:
        """The shared positions of batch ``number``, int64[B], those of its own part first."""
        places = self._starts[number] + np.arange(self.rows)
        return self._order[places % len(self._order)]

    def find(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The batches in which ``positions``, int64[k], are asked for.

        Returns:
            int64[j], the numbers of these batches, ascending and distinct, and int64[k], the place of each
            position in all these batches together.
        """
        places = self._place[positions]
        batches = np.searchsorted(self._starts, places, side="right") - 1
        numbers, index = np.unique(batches, return_inverse=True)
        return numbers, index * self.rows + places - self._starts[batches]

    @property
    def fingerprint(self) -> bytes:
        """A digest that identifies the partition without revealing it."""
        state = hashlib.sha256(b"vfl-node prediction batches" + self.rows.to_bytes(8, "big"))
        state.update(self._order.astype("<i8").tobytes())
        return state.digest()
