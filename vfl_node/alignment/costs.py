"""How much an alignment computes, sends and stores: exact counts of elements, before it runs.

A protocol names its lists, one line each (:meth:`vfl_node.alignment.plan.AlignmentPlan.lists`). The sender computes a list, or
has it already as the powers of an earlier one. The receiver checks it, stores it, and may compute its powers. Each list that a
party computes, receives or powers is a file at that party. In one *stage* both parties compute at the same time; each waits for
the other where a stage ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from vfl_node.alignment.lists.buckets import PLACE_BYTES, bucket_bits, slice_bytes
from vfl_node.roles import OTHER_ROLE

if TYPE_CHECKING:
    from vfl_node.roles import Role

BASE_BYTES = 64 << 20
"""Memory of an alignment of few records: chunks and blocks that are computed, sent and received."""

ROW_BYTES = 64
"""Memory for each element that any party announces: places in lists, and how they are drawn: 58 were measured, of PSU."""

OWN_BYTES = 48
"""In addition for each of a party's own elements: its orders, its place, and its identifier again where sets are padded."""

ID_BYTES = 80
"""A party's own identifier of twelve digits, as it is read and ordered: 61 were measured (docs/reference/estimate.md)."""

_SLICES, _BUCKETS = 4, 10
"""How often a worker holds what it divides, and a bucket that it searches: with copies, places and sorted words."""


def memory_bytes(own: int, announced: int, width: int, workers: int) -> int:
    """Memory that an alignment takes, beside the identifiers of this party.

    Args:
        own: elements that this party announces.
        announced: those of all parties.
        width: bytes an element.
        workers: of its engine.
    """
    bits, size = bucket_bits(announced, width), announced * width
    worker = _SLICES * min(size, slice_bytes(bits)) + _BUCKETS * (size >> bits)
    return BASE_BYTES + (workers + 1) * worker + ROW_BYTES * announced + OWN_BYTES * own


def divided_bytes(announced: int, width: int) -> int:
    """Disk that buckets take at most, while elements are looked for among others; arguments as :func:`memory_bytes`."""
    return 2 * announced * (width + PLACE_BYTES)


class ListWork(Enum):
    """What a list costs its sender: hashes and powers an element."""

    HASHED = (1, 1)
    POWERED = (0, 1)
    STORED = (0, 0)


@dataclass(frozen=True)
class ListCost:
    """One list of a protocol.

    Attributes:
        sender: role of the party that sends it.
        count: its elements.
        work: what the sender does for each element.
        stage: in which the sender does it.
        powered: stage in which the receiver computes the powers of the elements; None: it does not.
    """

    sender: Role
    count: int
    work: ListWork
    stage: int
    powered: int | None = None


def _nobody() -> dict[Role, int]:
    return {"active": 0, "passive": 0}


@dataclass(frozen=True)
class Counts:
    """Elements, for each role.

    Attributes:
        hashes: identifiers hashed into the group.
        powers: group operations.
        sent: elements sent.
        received: elements received; each is checked (decoded) once.
        spilled: elements written to files, ``group.width`` bytes each.
    """

    hashes: dict[Role, int] = field(default_factory=_nobody)
    powers: dict[Role, int] = field(default_factory=_nobody)
    sent: dict[Role, int] = field(default_factory=_nobody)
    received: dict[Role, int] = field(default_factory=_nobody)
    spilled: dict[Role, int] = field(default_factory=_nobody)


def total(lists: Sequence[ListCost]) -> Counts:
    """What all lists cost together."""
    return _tally(lists, _stages(lists))


def stage_counts(lists: Sequence[ListCost]) -> list[Counts]:
    """The same, stage by stage."""
    return [_tally(lists, [stage]) for stage in _stages(lists)]


def _stages(lists: Sequence[ListCost]) -> range:
    return range(1, 1 + max(max(item.stage, item.powered or 0) for item in lists))


def _tally(lists: Sequence[ListCost], within: Collection[int]) -> Counts:
    counts = Counts()
    for item in lists:
        receiver = OTHER_ROLE[item.sender]
        if item.stage in within:
            hashes, powers = (each * item.count for each in item.work.value)
            counts.hashes[item.sender] += hashes
            counts.powers[item.sender] += powers
            counts.spilled[item.sender] += powers
            counts.sent[item.sender] += item.count
            counts.received[receiver] += item.count
            counts.spilled[receiver] += item.count
        if item.powered in within:
            counts.powers[receiver] += item.count
            counts.spilled[receiver] += item.count
    return counts
