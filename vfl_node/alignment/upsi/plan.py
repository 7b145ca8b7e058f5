"""What unbalanced private set intersection costs (:mod:`vfl_node.alignment.upsi.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from vfl_node.alignment.costs import Counts, ListCost, ListWork, stage_counts, total
from vfl_node.alignment.psi.plan import IntersectionPlan
from vfl_node.alignment.upsi.rice import RiceCode
from vfl_node.job.alignment import Align
from vfl_node.roles import OTHER_ROLE, Role
from vfl_node.settings.node import Obfuscation

USUAL_REST_BYTES = 7
"""The rest of a tag where the server's owner allows 50,000 ids in a key period, as by default."""


class PassiveServes(IntersectionPlan):
    """The lists of the protocol, of a first job with this key, where the passive party answers."""

    compared_with = "psi"
    server: ClassVar[Role] = "passive"

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentPlan.lists`; the coded tags are bytes (:meth:`bytes_beside`), and no elements."""
        client = OTHER_ROLE[self.server]
        n_c = {"active": n_a, "passive": n_p}[client]
        return [
            ListCost(client, n_c, ListWork.HASHED, 2, powered=3),  # 3
            ListCost(self.server, n_c, ListWork.STORED, 3, powered=4),  # 4
            ListCost(client, m, ListWork.STORED, 5, powered=5),  # 6
        ]

    def counts(self, n_a: int, n_p: int, m: int) -> Counts:
        """As :meth:`AlignmentPlan.counts`."""
        counts = total(self.lists(n_a, n_p, m))
        self._add_own(counts, n_a, n_p)
        counts.hashes[self.server] += m
        return counts

    def stages(self, n_a: int, n_p: int, m: int) -> list[Counts]:
        """As :meth:`AlignmentPlan.stages`: in the first one the server computes its list, in the last one it checks claims."""
        stages = stage_counts(self.lists(n_a, n_p, m))
        self._add_own(stages[0], n_a, n_p)
        stages[-1].hashes[self.server] += m
        return stages

    def bytes_beside(self, n_a: int, n_p: int) -> Mapping[Role, int]:
        """As :meth:`AlignmentPlan.bytes_beside`: the coded tags."""
        return {self.server: RiceCode(self._served(n_a, n_p), USUAL_REST_BYTES).size}

    def is_duplex(self, parties: int) -> bool:
        """As :meth:`AlignmentPlan.is_duplex`: one party asks, and the other one answers."""
        return False

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """All records of the smaller set."""
        return min(n_a, n_p)

    def notes(self, align: Align, obfuscation: Obfuscation) -> Iterator[str]:
        """What later jobs do without."""
        yield (
            "a later upsi job over the same set of the server and under the same key leaves out its list. It sends two "
            "elements an id that is asked about, and one a shared record"
        )

    def _served(self, n_a: int, n_p: int) -> int:
        return {"active": n_a, "passive": n_p}[self.server]

    def _add_own(self, counts: Counts, n_a: int, n_p: int) -> None:
        for kind in (counts.hashes, counts.powers, counts.spilled):
            kind[self.server] += self._served(n_a, n_p)


class ActiveServes(PassiveServes):
    """The same where the active party answers."""

    server = "active"
