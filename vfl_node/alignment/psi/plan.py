"""What private set intersection costs (:mod:`vfl_node.alignment.psi.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vfl_node.alignment.costs import ListCost, ListWork
from vfl_node.alignment.plan import AlignmentPlan
from vfl_node.job.alignment import Align
from vfl_node.settings.node import Obfuscation


class IntersectionPlan(AlignmentPlan):
    """Which lists the protocol sends, and how many rows it aligns."""

    compared_with = "psu"

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentPlan.lists`. The comments number the protocol's steps."""
        return [
            ListCost("active", n_a, ListWork.HASHED, 1, powered=1),  # 1
            ListCost("passive", n_p, ListWork.HASHED, 1, powered=1),  # 2
            ListCost("passive", n_a, ListWork.STORED, 2),  # 3
            ListCost("active", n_p, ListWork.STORED, 2),  # 4
        ]

    def is_duplex(self, parties: int) -> bool:
        """As :meth:`AlignmentPlan.is_duplex`: of two; of several one after the other sends."""
        return parties == 2

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """0, which stands for any length: the lists do not depend on it."""
        return 0

    def longest(self, sizes: Sequence[int]) -> int:
        """The size of the smallest set: all its records may be shared."""
        return min(sizes)

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """One length only: the number of shared records."""
        yield shared

    def lengths_of_one(self, own: int, both: int | None) -> tuple[int, int | None]:
        """The fewest and the most rows: from none to all of this party's records."""
        return 0, own
