"""How much an alignment with several passive parties computes, sends and stores: exact counts of elements, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PartyCounts:
    """Elements, of one party.

    Attributes:
        hashes: identifiers hashed into the group.
        powers: group operations.
        sent: elements sent.
        received: elements received; each is checked (decoded) once.
        spilled: elements written to files, ``group.width`` bytes each.
    """

    hashes: int
    powers: int
    sent: int
    received: int
    spilled: int


def counts_of_several(sizes: Sequence[int], m: int) -> tuple[PartyCounts, ...]:
    """What each party computes, sends and stores (:mod:`vfl_node.alignment.several.protocol`).

    Args:
        sizes: elements that each data party announces, in the job's order: the active party's first.
        m: elements of the shared order.

    Returns:
        One for each party, in the same order.
    """
    k, everybody = len(sizes) - 1, sum(sizes)
    active, passive = sizes[0], everybody - sizes[0]
    lists = 2 * k * active  # its own, to each passive party and back, in rounds one and three
    traffic = [(lists + (2 * k - 1) * (passive + m), lists + 2 * k * passive + k * m)]  # sent, received
    for number, own in enumerate(sizes[1:], 1):
        union = 0 if number == k else m  # the last passive party sorts the shared order, and the others receive it
        traffic.append((2 * everybody + m, 2 * everybody - own + m + union))
    return tuple(
        PartyCounts(2 * own, powers := own + 2 * everybody + m, sent, received, powers + received)
        for own, (sent, received) in zip(sizes, traffic, strict=True)
    )
