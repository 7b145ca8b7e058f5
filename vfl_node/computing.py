"""What a training says that it will compute, before it runs: how many rows go through which network.

A trainer measures what a row takes in each of them on the machine of an estimate. Light: no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vfl_node.trainers import DataRole

ROWS_AT_ONCE = 8192
"""Rows that go through a network together where nothing is learnt."""


@dataclass(frozen=True)
class Network:
    """What rows go through.

    Attributes:
        bottom: whether the party's own bottom comes first.
        dense: width of what the first dense layer reads, then that of each dense layer; empty: there are none. What a bottom
            does not give of the first width comes from elsewhere.
    """

    bottom: bool
    dense: tuple[int, ...] = ()


@dataclass(frozen=True)
class Passes:
    """Rows through a network.

    Attributes:
        at: the party that computes.
        network: what they go through.
        rows: how many, each time that one goes through counted.
        batch: how many at a time.
        learns: whether weights are updated by each batch; else there is no gradient.
    """

    at: DataRole
    network: Network
    rows: float
    batch: int
    learns: bool = True


@dataclass(frozen=True)
class OutsideCost:
    """What learning from rows outside of the alignment takes.

    Attributes:
        rows: of the active party, outside.
        when: in which epochs they are learnt from: words for after a number of rows.
        work: of all repeats.
        pace: ``module:attribute`` of what measures a :class:`Pace`, called with the job, :class:`~vfl_node.trainers.TableShape`
            by role as far as tables are known, and the models of the node's settings.
    """

    rows: int
    when: str
    work: tuple[Passes, ...]
    pace: str


Pace = Callable[[Passes], float]
"""Seconds that they take on one core of this machine."""
