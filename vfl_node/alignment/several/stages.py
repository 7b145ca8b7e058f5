"""When each party of an alignment with several passive parties computes what: its counts, stage by stage.

In one *stage* all parties compute at the same time; each waits for the others where a stage ends. Party 0 is the active one,
1 … k are the passive ones. What one of these has for another one goes through the active party.

=====  ======  ===========================================================================================================
round  stages  in each of them
=====  ======  ===========================================================================================================
one    1       everybody blinds its own list
       k       each list goes one party further: a passive party's to the active one last
two    1       the active party raises the shared order; passive parties blind their own lists of round three
       k       the shared order goes one passive party further; in the first stage the active party blinds its own list
three  k       as in round one
       1       everybody raises what came back of its own list
=====  ======  ===========================================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import pairwise

from vfl_node.alignment.costs import Counts
from vfl_node.alignment.several.costs import PartyCounts
from vfl_node.roles import DATA_ROLES

ACTIVE = 0

NOTHING = PartyCounts(0, 0, 0, 0, 0)
"""The counts of a party that takes no part in a stage."""


def party_counts(counts: Counts) -> tuple[PartyCounts, ...]:
    """The counts of a protocol of two, the active party's first."""
    return tuple(PartyCounts(**{kind.name: getattr(counts, kind.name)[role] for kind in fields(counts)}) for role in DATA_ROLES)


def sum_stages(stages: Sequence[tuple[PartyCounts, ...]]) -> tuple[PartyCounts, ...]:
    """What each party does in all stages together."""
    return tuple(
        PartyCounts(**{kind.name: sum(getattr(each, kind.name) for each in of_one) for kind in fields(PartyCounts)})
        for of_one in zip(*stages, strict=True)
    )


def stages_of_several(sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
    """The summands of :func:`~vfl_node.alignment.several.costs.counts_of_several`, in order; arguments as there.

    Returns:
        For each stage the counts of each party.
    """
    k = len(sizes) - 1
    stages = [
        _blinding(sizes),
        *_round(sizes, back=False),
        *_shared_order(sizes, m),
        *_round(sizes, back=True),
        _last(sizes),
    ]
    return [stage.counts(k) for stage in stages]


class _Stage:
    """What happens in one stage, added up by party."""

    def __init__(self) -> None:
        self._hashes, self._powers, self._sent, self._received = (Counter[int]() for _ in range(4))

    def blind(self, party: int, count: int) -> None:
        """A party hashes and raises its own list."""
        self._hashes[party] += count
        self._powers[party] += count

    def move(self, sender: int, receiver: int, count: int, *, raised: bool = True) -> None:
        """A list goes from one party to another, who may raise it."""
        by_way_of = [sender, receiver] if ACTIVE in (sender, receiver) else [sender, ACTIVE, receiver]
        for one, other in pairwise(by_way_of):
            self._sent[one] += count
            self._received[other] += count
        self._powers[receiver] += count * raised

    def raises(self, party: int, count: int) -> None:
        """A party raises a list that it has."""
        self._powers[party] += count

    def counts(self, k: int) -> tuple[PartyCounts, ...]:
        """The counts of all parties."""
        return tuple(
            PartyCounts(
                hashes=self._hashes[party],
                powers=self._powers[party],
                sent=self._sent[party],
                received=self._received[party],
                spilled=self._powers[party] + self._received[party],
            )
            for party in range(k + 1)
        )


def _blinding(sizes: Sequence[int]) -> _Stage:
    stage = _Stage()
    for party, count in enumerate(sizes):
        stage.blind(party, count)
    return stage


def _round(sizes: Sequence[int], *, back: bool) -> Iterator[_Stage]:
    """Every list goes round all other parties, and in the end ``back`` to its owner; the active party's always does."""
    k = len(sizes) - 1
    ways = [_way(owner, k) for owner in range(k + 1)]
    for hop in range(k):
        stage = _Stage()
        for way, count in zip(ways, sizes, strict=True):
            stage.move(way[hop], way[hop + 1], count)
            if hop + 1 == k and (back or way[0] == ACTIVE):
                stage.move(way[-1], way[0], count, raised=False)
        yield stage


def _way(owner: int, k: int) -> list[int]:
    """The parties that a list visits, its owner first."""
    if owner == ACTIVE:
        return list(range(k + 1))
    return [*((owner - 1 + hop) % k + 1 for hop in range(k)), ACTIVE]


def _shared_order(sizes: Sequence[int], m: int) -> Iterator[_Stage]:
    """The shared order goes from the active party through all passive ones, and from the last one to everybody."""
    active, *passive = sizes
    stage = _Stage()
    stage.raises(ACTIVE, m)
    for party, count in enumerate(passive, 1):
        stage.blind(party, count)
    yield stage
    for party in range(1, len(sizes)):
        stage = _Stage()
        stage.move(party - 1, party, m)
        if party == 1:
            stage.blind(ACTIVE, active)
        if party == len(passive):
            stage.move(party, ACTIVE, m, raised=False)
            for other in range(1, party):
                stage.move(ACTIVE, other, m, raised=False)
        yield stage


def _last(sizes: Sequence[int]) -> _Stage:
    stage = _Stage()
    for party, count in enumerate(sizes):
        stage.raises(party, count)
    return stage
