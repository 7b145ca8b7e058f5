"""What private set intersection in pairs is, costs and reveals (:mod:`vfl_node.alignment.psi_star.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vfl_node.alignment.psi.spec import PrivateSetIntersection
from vfl_node.alignment.several.costs import PartyCounts
from vfl_node.alignment.several.stages import NOTHING, by_party, summed
from vfl_node.alignment.spec import ReportedAlignment
from vfl_node.roles import DATA_ROLES

POSITION_BYTES = 4
"""Of a position in the order of a pair."""

_SIDES = {role: f"vfl_node.alignment.psi_star.protocol:{role}" for role in DATA_ROLES}


class PairwiseIntersection(PrivateSetIntersection):
    """The active party learns which records it shares with each passive party; all index those that everybody has."""

    def stages_of_several(self, sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
        """As :meth:`AlignmentSpec.stages_of_several`: those of each pair, one pair after the other."""
        return list(self._stages_of_pairs(sizes, m))

    def most_of_several(self, sizes: Sequence[int]) -> tuple[PartyCounts, ...]:
        """As :meth:`AlignmentSpec.most_of_several`; whatever is shared."""
        return summed(self.stages_of_several(sizes, 0))

    def _stages_of_pairs(self, sizes: Sequence[int], m: int) -> Iterator[tuple[PartyCounts, ...]]:
        n_a, *others = sizes
        for number, n_p in enumerate(others):
            for stage in self.stages(n_a, n_p, m):
                active, passive = by_party(stage)
                yield (active, *(passive if other == number else NOTHING for other in range(len(others))))

    def leak_text(self, of: ReportedAlignment) -> str:
        """Sizes, what each pair shares, and what all share."""
        return (
            f"Alignment in pairs reveals the size of each party's set{', rounded up' * of.padded}: those of the passive "
            f"parties to {of.active} alone. It reveals to {of.active} which of its records each passive party has, and to each "
            f"passive party which of its own records {of.active} has, and which of these all parties have."
        )


PSI_STAR = PairwiseIntersection(
    name="psi-star",
    title="private set intersection in pairs",
    shared_rows="the intersection",
    sides=_SIDES,
    sides_of_several=_SIDES,
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset(),
    max_passive_parties=8,
    why_not_more="the active party computes with each pair in turn",
    compared_with="psu",
    allowed_by_default=False,
    bytes_a_row=POSITION_BYTES,
)
