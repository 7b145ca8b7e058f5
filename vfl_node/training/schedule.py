"""The public schedule: which shared rows are held out, and how the others fall into batches.

All data parties compute it from a seed that they toss jointly (:mod:`vfl_node.session.toss`), and from the number of
shared rows; never from who owns a row. A schedule derived from one party's own order would tell the
peer which rows that party owns.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness


class Schedule:
    """The order in which the ``size`` shared rows are used.

    Args:
        seed: 32 bytes, tossed jointly.
        size: number of shared rows m.
        salt: the job's public seed.
    """

    def __init__(self, seed: bytes, size: int, salt: int) -> None:
        self.size = size
        self._seed = hashlib.sha256(b"vfl-node schedule" + salt.to_bytes(8, "big") + seed).digest()

    @property
    def fingerprint(self) -> str:
        """Names the schedule without revealing its seed; a resumed job must have the same."""
        return hashlib.sha256(b"vfl-node schedule fingerprint" + self._seed + self.size.to_bytes(8, "big")).hexdigest()

    def split(self, repeat: int, test_fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shared positions to train on and to test on, each ascending.

        ⌈size · test_fraction⌉ are held out; with a fraction of 0 all rows are in both.
        """
        held_out = math.ceil(self.size * test_fraction)
        if held_out == 0:
            everything = np.arange(self.size, dtype=np.int64)
            return everything, everything
        order = self._stream(f"split/{repeat}").permutation(self.size)
        return np.sort(order[held_out:]), np.sort(order[:held_out])

    def batches(self, repeat: int, epoch: int, positions: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
        """``positions`` in a new order, cut into batches; the last may be smaller."""
        failpoints.reach("batches")
        order = self._stream(f"batches/{repeat}/{epoch}").permutation(len(positions))
        return cut(positions[order], batch_size)

    def derive(self, label: str) -> bytes:
        """32 bytes that both parties have in common for a purpose named ``label``."""
        return self._stream(label).bytes(32)

    def _stream(self, label: str) -> Randomness:
        return Randomness(self._seed).derive(label)


def cut(positions: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """``positions`` in their order, ``batch_size`` at a time."""
    return [positions[start : start + batch_size] for start in range(0, len(positions), batch_size)]
