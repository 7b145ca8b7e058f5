"""What asymmetric private set intersection costs (:mod:`vfl_node.alignment.apsi.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vfl_node.alignment.apsi.sizes import is_open, obfuscated_size
from vfl_node.alignment.costs import ListCost, ListWork
from vfl_node.alignment.plan import AlignmentPlan
from vfl_node.job.alignment import Align
from vfl_node.settings.node import Obfuscation


class AsymmetricPlan(AlignmentPlan):
    """The lists of the protocol, and the length of the obfuscated set."""

    compared_with = "psi"

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentPlan.lists`, of the first job over two sets, which draws the obfuscated set."""
        return [
            ListCost("passive", n_p, ListWork.HASHED, 1, powered=2),  # 3
            ListCost("active", n_a, ListWork.HASHED, 1, powered=2),  # 4
            ListCost("passive", n_a, ListWork.STORED, 2),  # 6
            ListCost("active", m, ListWork.POWERED, 3, powered=3),  # 8
            ListCost("passive", m, ListWork.STORED, 4, powered=4),  # 10
            ListCost("active", m, ListWork.POWERED, 5, powered=5),  # 12: sent as it is, its powers are the sender's own
        ]

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """All of the passive party's records."""
        return n_p

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """The obfuscated set, from the intersection to all of the passive party's records."""
        _, n_p = sizes
        if is_open(align, obfuscation):
            yield max(1, shared)
            yield n_p
        else:
            yield obfuscated_size(shared, n_p, align, obfuscation)

    def lengths_of_one(self, own: int, both: int | None) -> None:
        """Nothing: the size depends on both sets."""

    def notes(self, align: Align, obfuscation: Obfuscation) -> Iterator[str]:
        """Whether the size is open, and that a later job costs less."""
        if is_open(align, obfuscation):
            size = "from the shared records to all of the passive set"
            yield f"nothing here fixes how large the obfuscated set of APSI is: {size}"
        yield "a later APSI job over the same two sets takes the same obfuscated set, and costs less"
