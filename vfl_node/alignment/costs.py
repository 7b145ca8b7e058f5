"""How much an alignment computes, sends and stores: exact counts of elements, before it runs.

Every protocol is its lists, one line each. A list is made by its sender, or lies there already
as the powers of an earlier one; the receiver checks it, stores it, and may power it. Whatever is
made, received or powered is a file at that party. In one *stage* both parties compute at the
same time; each waits for the other where a stage ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from vfl_node.settings import Role

ROW_BYTES = 128
"""Memory for each element that either party announces (docs/estimate.md)."""

_OTHER: dict[Role, Role] = {"active": "passive", "passive": "active"}


class _Made(Enum):
    """What a list costs its sender: hashes and powers an element."""

    HASHED = (1, 1)
    POWERED = (0, 1)
    STORED = (0, 0)


@dataclass(frozen=True)
class _List:
    """One list: who sends how many elements, how they were made and in which stage; in which its receiver powers them."""

    sender: Role
    count: int
    made: _Made
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


def counts(protocol: str, n_a: int, n_p: int, m: int) -> Counts:
    """What the whole alignment costs.

    Args:
        protocol: ``psu``, ``psi`` or ``apsi``; for the last one a first job, that draws the obfuscated set.
        n_a: elements that the active party announces.
        n_p: elements that the passive party announces.
        m: elements of the shared order: the union, the intersection or the obfuscated set.
    """
    return _tally(_lists(protocol, n_a, n_p, m), _stages(protocol))


def stages(protocol: str, n_a: int, n_p: int, m: int) -> list[Counts]:
    """The same, stage by stage; what both do in one stage happens at the same time."""
    lists = _lists(protocol, n_a, n_p, m)
    return [_tally(lists, [stage]) for stage in _stages(protocol)]


def most(protocol: str, n_a: int, n_p: int) -> Counts:
    """What it costs at most, whatever is shared."""
    return counts(protocol, n_a, n_p, {"psu": n_a + n_p, "psi": 0, "apsi": n_p}[protocol])


def _lists(protocol: str, n_a: int, n_p: int, m: int) -> list[_List]:
    """All lists, in the order of the protocol's own file."""
    hashed, powered, stored = _Made.HASHED, _Made.POWERED, _Made.STORED
    if protocol == "psu":
        return [
            _List("active", n_a, hashed, 1, powered=2),  # 3
            _List("passive", n_p, hashed, 1, powered=2),  # 5
            _List("passive", n_a, stored, 2),  # 4
            _List("active", m, powered, 3, powered=3),  # 8
            _List("active", n_a, hashed, 4, powered=5),  # 11, request
            _List("passive", m, stored, 4),  # 9
            _List("passive", n_p, hashed, 4, powered=5),  # 12, request
            _List("passive", n_a, stored, 5, powered=6),  # 11, reply
            _List("active", n_p, stored, 5, powered=6),  # 12, reply
        ]
    if protocol == "psi":
        return [
            _List("active", n_a, hashed, 1, powered=2),  # 1
            _List("passive", n_p, hashed, 1, powered=2),  # 2
            _List("passive", n_a, stored, 2),  # 3
            _List("active", n_p, stored, 2),  # 4
        ]
    return [
        _List("passive", n_p, hashed, 1, powered=2),  # 3
        _List("active", n_a, hashed, 1, powered=2),  # 4
        _List("passive", n_a, stored, 2),  # 6
        _List("active", m, powered, 3, powered=3),  # 8
        _List("passive", m, stored, 4, powered=4),  # 10
        _List("active", m, powered, 5, powered=5),  # 12: sent as it is, its powers are the sender's own
    ]


def _stages(protocol: str) -> range:
    return range(1, 1 + max(max(item.stage, item.powered or 0) for item in _lists(protocol, 0, 0, 0)))


def _tally(lists: list[_List], within: Collection[int]) -> Counts:
    total = Counts()
    for item in lists:
        receiver = _OTHER[item.sender]
        if item.stage in within:
            hashes, powers = (each * item.count for each in item.made.value)
            total.hashes[item.sender] += hashes
            total.powers[item.sender] += powers
            total.spilled[item.sender] += powers
            total.sent[item.sender] += item.count
            total.received[receiver] += item.count
            total.spilled[receiver] += item.count
        if item.powered in within:
            total.powers[receiver] += item.count
            total.spilled[receiver] += item.count
    return total
