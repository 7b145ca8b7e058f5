"""What private set intersection is, costs and reveals (:mod:`vfl_node.alignment.psi.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vfl_node.alignment.costs import ListCost, ListWork
from vfl_node.alignment.several.words import overlap_text
from vfl_node.alignment.spec import AlignmentSpec, ReportedAlignment
from vfl_node.roles import DATA_ROLES

if TYPE_CHECKING:
    from vfl_node.job import Align
    from vfl_node.settings.node import Obfuscation


class PrivateSetIntersection(AlignmentSpec):
    """Both parties learn which of their records are shared, and index these."""

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentSpec.lists`; the numbers are the protocol's steps."""
        return [
            ListCost("active", n_a, ListWork.HASHED, 1, powered=2),  # 1
            ListCost("passive", n_p, ListWork.HASHED, 1, powered=2),  # 2
            ListCost("passive", n_a, ListWork.STORED, 2),  # 3
            ListCost("active", n_p, ListWork.STORED, 2),  # 4
        ]

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """Any: the lists do not depend on it."""
        return 0

    def longest(self, sizes: Sequence[int]) -> int:
        """All of the smallest set."""
        return min(sizes)

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """As many rows as records are shared."""
        yield shared

    def lengths_of_one(self, own: int, both: int | None) -> tuple[int, int | None]:
        """From none to all of this party's."""
        return 0, own

    def rows_title(self, of: ReportedAlignment) -> str:
        """Each row is a shared record."""
        return "records in common"

    def rows_text(self, of: ReportedAlignment) -> str:
        """Where sizes are padded, that they are."""
        return "Announced numbers are rounded up, which hides how many records each party has." if of.padded else ""

    def leak_text(self, of: ReportedAlignment) -> str:
        """Sizes, and which records are shared."""
        sizes = f"Alignment by intersection reveals the size of each party's set{', rounded up' * of.padded}"
        if of.several:
            return f"{sizes}, and to each party which of its own records all parties have. {overlap_text(of)}"
        return f"{sizes}, and to both which records they share."


PSI = PrivateSetIntersection(
    name="psi",
    title="private set intersection",
    shared_rows="the intersection",
    sides={role: f"vfl_node.alignment.psi.protocol:{role}" for role in DATA_ROLES},
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset(),
    max_passive_parties=8,
    why_not_more="each party raises the lists of all others, and each further party doubles the number of parts of the overlap",
    sides_of_several={role: f"vfl_node.alignment.several.protocol:{role}" for role in DATA_ROLES},
    compared_with="psu",
)
