"""What private set union costs (:mod:`vfl_node.alignment.psu.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vfl_node.alignment.costs import ListCost, ListWork
from vfl_node.alignment.plan import AlignmentPlan
from vfl_node.job.alignment import Align
from vfl_node.settings.node import Obfuscation


class UnionPlan(AlignmentPlan):
    """The lists of the protocol, and the length of the union."""

    compared_with = "psi"

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentPlan.lists`; the numbers are the paper's steps."""
        return [
            ListCost("active", n_a, ListWork.HASHED, 1, powered=1),  # 3
            ListCost("passive", n_p, ListWork.HASHED, 1, powered=1),  # 5
            ListCost("passive", n_a, ListWork.STORED, 2),  # 4
            ListCost("active", m, ListWork.POWERED, 3, powered=3),  # 8
            ListCost("active", n_a, ListWork.HASHED, 4, powered=4),  # 11, request
            ListCost("passive", m, ListWork.STORED, 4),  # 9
            ListCost("passive", n_p, ListWork.HASHED, 4, powered=4),  # 12, request
            ListCost("passive", n_a, ListWork.STORED, 5, powered=5),  # 11, reply
            ListCost("active", n_p, ListWork.STORED, 5, powered=5),  # 12, reply
        ]

    def is_duplex(self, parties: int) -> bool:
        """As :meth:`AlignmentPlan.is_duplex`: of two; of several one after the other sends."""
        return parties == 2

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """The union of sets that share nothing."""
        return n_a + n_p

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """The union; with dummies none or all of both pools are in both sets.

        A record that not all have is in one set, or in all but one.
        """
        others = len(sizes) - 1
        rest = [size - shared for size in sizes]
        yield shared + sum(rest)
        yield shared + max(*rest, -(-sum(rest) // others)) - 2 * align.dummies

    def lengths_of_one(self, own: int, both: int | None) -> tuple[int, int | None]:
        """All of this party's, and up to all of the other's."""
        return own, both
