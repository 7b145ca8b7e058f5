"""The public schedule: which shared rows are held out, and how the others fall into batches.

All data parties compute it from a seed that they toss jointly (:mod:`vfl_node.session.toss`), and from the number of
shared rows; never from who owns a row. A schedule derived from one party's own order would tell the
peer which rows that party owns.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.session.toss import toss


class Parts(NamedTuple):
    """What the shared rows of a repeat are for: shared positions, each ascending.

    Attributes:
        training: trained on.
        testing: measured on at the end; those trained on where no row is held out.
        validation: measured on after every epoch; none where the job sets none apart.
    """

    training: NDArray[np.int64]
    testing: NDArray[np.int64]
    validation: NDArray[np.int64]


class Schedule:
    """The order in which the ``size`` shared rows are used.

    Args:
        seed: 32 bytes, tossed jointly.
        size: number of shared rows m.
        salt: the job's public seed.
        split: :attr:`split_seed` of an earlier job over the same rows, which held out the same ones; None: there is none.
    """

    def __init__(self, seed: bytes, size: int, salt: int, split: bytes | None = None) -> None:
        self.size = size
        self._seed = hashlib.sha256(b"vfl-node schedule" + salt.to_bytes(8, "big") + seed).digest()
        self.split_seed = split or self._seed

    @property
    def fingerprint(self) -> str:
        """Names the schedule without revealing its seed; a resumed job must have the same."""
        split = b"" if self.split_seed == self._seed else self.split_seed
        return hashlib.sha256(b"vfl-node schedule fingerprint" + self._seed + self.size.to_bytes(8, "big") + split).hexdigest()

    def split(self, repeat: int, test_fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shared positions to train on and to test on, as :meth:`parts` without validation."""
        training, testing, _ = self.parts(repeat, test_fraction, 0.0)
        return training, testing

    def parts(self, repeat: int, test_fraction: float, validation_fraction: float) -> Parts:
        """Which rows are for what in a repeat.

        ⌈size · fraction⌉ are tested on, and set apart for validation; the former are the same with and without validation.
        With a ``test_fraction`` of 0 the rows trained on are tested on.
        """
        held_out = math.ceil(self.size * test_fraction)
        apart = held_out + math.ceil(self.size * validation_fraction)
        order = Randomness(self.split_seed).derive(f"split/{repeat}").permutation(self.size)
        testing, validation, training = map(np.sort, np.split(order, [held_out, apart]))
        return Parts(training, testing if held_out else training, validation)

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


async def toss_schedule(session: Session, size: int, salt: int) -> Schedule:
    """The schedule of a training: batches by a seed that is tossed now, held-out rows as in a job whose alignment is reused.

    A party that knew the seed of batches before the job was written could choose ``salt`` so that a row is alone in a batch.

    Raises, and leaks: as :func:`~vfl_node.session.toss.toss`.
    """
    return Schedule(await toss(session, session.randomness.derive("toss")), size, salt, session.attempt.split)


def cut(positions: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """``positions`` in their order, ``batch_size`` at a time."""
    return [positions[start : start + batch_size] for start in range(0, len(positions), batch_size)]
