"""What asymmetric private set intersection is, costs and reveals (:mod:`vfl_node.alignment.apsi.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vfl_node.alignment.apsi.sizes import is_open, obfuscated_size
from vfl_node.alignment.costs import ListCost, ListWork
from vfl_node.alignment.spec import AlignmentSpec, ReportedAlignment
from vfl_node.roles import DATA_ROLES

if TYPE_CHECKING:
    from vfl_node.job import Align
    from vfl_node.settings.node import Obfuscation


class AsymmetricIntersection(AlignmentSpec):
    """Both parties index an obfuscated set of the passive party's records; only the active one knows which are shared."""

    def check(self, align: Align) -> None:
        """As :meth:`AlignmentSpec.check`; the obfuscated set must have a size."""
        if align.obfuscation is None:
            raise ValueError(
                "apsi needs align.obfuscation, the size of the set that both parties see: {size: RECORDS}, "
                "{fraction: OF THE PASSIVE SET}, or private (the active node's settings say)"
            )

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentSpec.lists`, of the first job over two sets, which draws the obfuscated set."""
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

    def estimate_notes(self, align: Align, obfuscation: Obfuscation) -> Iterator[str]:
        """Whether the size is open, and that a later job costs less."""
        if is_open(align, obfuscation):
            size = "from the shared records to all of the passive set"
            yield f"nothing here fixes how large the obfuscated set of APSI is: {size}"
        yield "a later APSI job over the same two sets takes the same obfuscated set, and costs less"

    def rows_title(self, of: ReportedAlignment) -> str:
        """Rows of the set."""
        return "rows in the obfuscated set"

    def rows_text(self, of: ReportedAlignment) -> str:
        """Whose records the rows are, and how many are the active party's too."""
        if of.intersection is None:
            return (
                f"All {of.rows:,} rows of the shared order are records of {of.party}. Alignment hides from it how many of them "
                f"{of.active} holds too, and which."
            )
        others = "have no label" if of.label_holder == "active" else "do not count"
        return (
            f"All {of.rows:,} rows of the shared order are records of {of.peer}. {of.intersection:,} of them are {of.active}'s "
            f"too; the other {of.rows - of.intersection:,} {others}."
        )

    def leak_text(self, of: ReportedAlignment) -> str:
        """Sizes to both, the obfuscated set to one, the intersection to the other."""
        return (
            f"Alignment by asymmetric intersection reveals the size of each party's set; to {of.passive} an obfuscated set, "
            f"which holds the shared records and others of its own; to {of.active} which records are shared, and the hashes of "
            "those others."
        )


APSI = AsymmetricIntersection(
    name="apsi",
    title="asymmetric private set intersection",
    shared_rows="the obfuscated set",
    sides={role: f"vfl_node.alignment.apsi.protocol:{role}" for role in DATA_ROLES},
    synthetic_rows_at=frozenset({"active"}),
    intersection_hidden_from=frozenset({"passive"}),
    padded_roles=frozenset({"active"}),
    options=frozenset({"obfuscation"}),
    max_passive_parties=1,
    why_not_more="each pair would get an obfuscated set of its own, and together they would reveal more of the active party's "
    "set",
    compared_with="psi",
)
