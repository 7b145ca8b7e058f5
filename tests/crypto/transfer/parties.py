"""Two parties with their base transfers made, for the tests."""

from __future__ import annotations

from functools import cache

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.transfer.base import BaseReceiver, BaseSender, ChosenSeeds, SeedPairs
from vfl_node.crypto.transfer.extension import RandomReceiver, RandomSender


def randomness(name: str) -> Randomness:
    return Randomness(name.encode().ljust(32)[:32])


@cache
def seeds(name: str = "job") -> tuple[SeedPairs, ChosenSeeds]:
    """What base transfers give: to the receiver of the extension, and to its sender."""
    offering = BaseSender(randomness(f"{name}, offering"))
    answer, chosen = BaseReceiver(randomness(f"{name}, choosing")).answer(offering.announcement)
    return offering.pairs(answer), chosen


def parties(name: str = "job") -> tuple[RandomReceiver, RandomSender]:
    pairs, chosen = seeds(name)
    return RandomReceiver(pairs), RandomSender(chosen)


def bits(name: str, count: int) -> np.ndarray:
    """Uniform bits, uint8[count]."""
    return (randomness(name).uint64(count) >> np.uint64(63)).astype(np.uint8)


def ones(words: np.ndarray) -> int:
    """How many bits are 1."""
    return int(np.unpackbits(np.ascontiguousarray(words).view(np.uint8)).sum())


def bound(bits_seen: int, tries: int, alarm: float = 2.0**-40) -> float:
    """How far a share of ones may be from a half.

    For independent fair bits, Hoeffding's inequality: 2·exp(−2·bits·bound²) for one try, which is ``alarm`` for all of them.
    """
    return float(np.sqrt(np.log(2 * tries / alarm) / (2 * bits_seen)))
