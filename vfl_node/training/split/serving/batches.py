"""How the shared rows are cut into the batches in which wanted rows hide: the same at both parties."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness


class Batches:
    """A fixed partition of the ``size`` shared rows, in a random order, into as equal parts as can be.

    Each part is filled up to a full batch with the rows of the next. A last batch with the rest
    instead could hold a single row that is not asked for by another batch.

    Args:
        seed: 32 bytes that both parties know.
        size: number of shared rows m, at least 1.
        rows: rows of a batch B.

    Leaks: who asks for a batch wants one of at least ⌊m/⌈m/B⌉⌋ rows, more than B/2 (of all m, where these are fewer than B).
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
        """Where ``positions``, int64[k], are asked for.

        Returns:
            int64[j], their batches, ascending and distinct, and int64[k], the place of each
            position in these batches, one behind the other.
        """
        places = self._place[positions]
        batches = np.searchsorted(self._starts, places, side="right") - 1
        numbers, index = np.unique(batches, return_inverse=True)
        return numbers, index * self.rows + places - self._starts[batches]

    @property
    def fingerprint(self) -> bytes:
        """Names the partition without telling it."""
        state = hashlib.sha256(b"vfl-node prediction batches" + self.rows.to_bytes(8, "big"))
        state.update(self._order.astype("<i8").tobytes())
        return state.digest()
