"""What private set union is, costs and reveals (:mod:`vfl_node.alignment.psu.protocol`)."""

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


class PrivateSetUnion(AlignmentSpec):
    """Both parties index all records of either; neither learns which ones are shared."""

    def check_several(self, align: Align) -> None:
        """Dummies hide the overlap of two sets, not the overlaps of more."""
        if align.dummies:
            raise ValueError(
                "align.dummies hides how many records two parties share; with several passive parties the active one sees the "
                "sizes of all their overlaps, which these dummies do not hide: leave it out"
            )

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentSpec.lists`; the numbers are the paper's steps."""
        return [
            ListCost("active", n_a, ListWork.HASHED, 1, powered=2),  # 3
            ListCost("passive", n_p, ListWork.HASHED, 1, powered=2),  # 5
            ListCost("passive", n_a, ListWork.STORED, 2),  # 4
            ListCost("active", m, ListWork.POWERED, 3, powered=3),  # 8
            ListCost("active", n_a, ListWork.HASHED, 4, powered=5),  # 11, request
            ListCost("passive", m, ListWork.STORED, 4),  # 9
            ListCost("passive", n_p, ListWork.HASHED, 4, powered=5),  # 12, request
            ListCost("passive", n_a, ListWork.STORED, 5, powered=6),  # 11, reply
            ListCost("active", n_p, ListWork.STORED, 5, powered=6),  # 12, reply
        ]

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

    def rows_title(self, of: ReportedAlignment) -> str:
        """Where the size of the union is hidden some rows stand for no record."""
        return "rows in the shared order" if of.union is None else "records in the union"

    def rows_text(self, of: ReportedAlignment) -> str:
        """Where dummies or padding hide a size, that some rows stand for no record."""
        if of.intersection is None and not of.several:
            why = "they hide how much the two sets overlap"
            return f"Of the {of.rows:,} rows of the shared order some stand for no record: {why}."
        if of.padded:
            why = "they hide how many records each party has"
            return f"The shared order has {of.rows:,} rows. Some may stand for no record: {why}."
        return ""

    def leak_text(self, of: ReportedAlignment) -> str:
        """Sizes, of the sets and of their union."""
        counted_in = ", made-up records counted in" if of.union is None else ""
        parts = f" {overlap_text(of)}" if of.several else ""
        return f"Alignment reveals the size of each party's set and of their union{counted_in}.{parts}"


PSU = PrivateSetUnion(
    name="psu",
    title="private set union",
    shared_rows="the union",
    sides={role: f"vfl_node.alignment.psu.protocol:{role}" for role in DATA_ROLES},
    synthetic_rows_at=frozenset(DATA_ROLES),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset({"dummies"}),
    max_passive_parties=8,
    why_not_more="each party raises the lists of all others, and each further party doubles the number of parts of the overlap",
    sides_of_several={role: f"vfl_node.alignment.several.protocol:{role}" for role in DATA_ROLES},
    compared_with="psi",
)
