"""The public schedule: which shared rows are held out, and how the others fall into batches.

Both parties compute it from a seed they toss jointly, and from the number of shared rows;
never from who owns a row. A schedule derived from one party's own order would tell the
peer which rows that party owns.

Source: Blum 1983 (coin flipping by telephone) for the toss.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
from numpy.typing import NDArray

from vfl_node import failpoints
from vfl_node.alignment.alignment import Pins
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import ProtocolError
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

SHARE_BYTES = 32


async def toss(channel: Channel, randomness: Randomness, *, first: bool, pins: Pins) -> bytes:
    """A joint 32-byte seed that neither party chose: commit, share, open.

    The committing party could still stop once it has seen the other's share, as in every
    two-party toss; it cannot steer the seed and go on. Nor can a party in a later attempt of
    the job, when it knows the other's share: each is held to the first thing it ever sent.

    Args:
        channel: the conversation; one message or two each way.
        randomness: this party's own; a restart with the same repeats the same share.
        first: whether this party commits (the active one does) or answers.
        pins: digests of what the peer sent in earlier attempts.

    Raises:
        ProtocolError: the commitment was opened to another share (``E_TOSS``).
        StateError: the peer came with another share than in an earlier attempt (``E_REPLAY``).

    Leaks: nothing but the two uniform shares.
    """
    ours = randomness.bytes(SHARE_BYTES)
    failpoints.reach("toss")
    if first:
        await channel.send(training_pb2.TossCommit(sha256=_commitment(ours)))
        theirs = await _receive_share(channel)
        pins.check("toss share", hashlib.sha256(theirs).digest())
        await channel.send(training_pb2.TossShare(share=ours))
        return _seed(ours, theirs)
    commitment = (await channel.receive(training_pb2.TossCommit)).sha256
    # now, not when it is opened: an attempt cut off in between has already shown the peer our share
    pins.check("toss commitment", hashlib.sha256(commitment).digest())
    await channel.send(training_pb2.TossShare(share=ours))
    theirs = await _receive_share(channel)
    if not hmac.compare_digest(commitment, _commitment(theirs)):
        raise ProtocolError(f"{channel.peer} opened its commitment of the coin toss to another share", code="E_TOSS")
    return _seed(theirs, ours)


async def _receive_share(channel: Channel) -> bytes:
    share = (await channel.receive(training_pb2.TossShare)).share
    if len(share) != SHARE_BYTES:
        raise ProtocolError(f"{channel.peer} sent a share of {len(share)} bytes in the coin toss", code="E_TOSS")
    return share


def _commitment(share: bytes) -> bytes:
    return hashlib.sha256(b"vfl-node toss commitment" + share).digest()


def _seed(first: bytes, second: bytes) -> bytes:
    return hashlib.sha256(b"vfl-node toss seed" + first + second).digest()


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
