"""What a training says that it will send and compute, before it runs: bytes, and how many rows go through which network.

A trainer measures what a row takes in each of them on the machine of an estimate. Light: no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vfl_node.roles import DataRole

ROWS_AT_ONCE = 8192
"""Rows that go through a network together where nothing is learnt."""


@dataclass(frozen=True)
class TrainingCost:
    """What training over some number of shared rows takes, all repeats together unless it says otherwise.

    Bytes are those of tensors and ciphertexts; the frames around them, some hundred bytes a message, are left out.

    Attributes:
        rows: trained on in a :attr:`~vfl_node.trainers.TrainerConfig.unit`: an epoch, or an iteration.
        batches: likewise.
        steps: messages sent whose answers are awaited, one after the other.
        active_bytes: sent by the active party.
        passive_bytes: sent by all passive parties together.
        coordinator_bytes: sent by the coordinator to all data parties together, while these send theirs.
        coordinator_memory: bytes that the coordinator takes for it.
        counted_with: what was taken for granted, since nothing says it, in words for people; empty: nothing.
        said: what else an owner should know of it before it runs; sentences without a capital and a full stop.
    """

    rows: int
    batches: int
    steps: int
    active_bytes: int
    passive_bytes: int
    coordinator_bytes: int = 0
    coordinator_memory: int = 0
    counted_with: str = ""
    said: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Of data parties, both ways."""
        return self.active_bytes + self.passive_bytes


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
