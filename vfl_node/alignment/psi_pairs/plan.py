"""What private set intersection in pairs costs (:mod:`vfl_node.alignment.psi_pairs.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vfl_node.alignment.psi.plan import IntersectionPlan
from vfl_node.alignment.several.costs import PartyCounts
from vfl_node.alignment.several.stages import NOTHING, party_counts, sum_stages

POSITION_BYTES = 4
"""The size of a position in the order of a pair."""


class PairwisePlan(IntersectionPlan):
    """The lists of the protocol, and the length of the intersection."""

    compared_with = "psu"
    bytes_a_row = POSITION_BYTES

    def is_duplex(self, parties: int) -> bool:
        """As :meth:`AlignmentPlan.is_duplex`: those of each pair."""
        return True

    def stages_of_several(self, sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
        """As :meth:`AlignmentPlan.stages_of_several`: those of each pair, one pair after the other."""
        return list(self._stages_of_pairs(sizes, m))

    def most_of_several(self, sizes: Sequence[int]) -> tuple[PartyCounts, ...]:
        """As :meth:`AlignmentPlan.most_of_several`; whatever is shared."""
        return sum_stages(self.stages_of_several(sizes, 0))

    def _stages_of_pairs(self, sizes: Sequence[int], m: int) -> Iterator[tuple[PartyCounts, ...]]:
        n_a, *others = sizes
        for number, n_p in enumerate(others):
            for stage in self.stages(n_a, n_p, m):
                active, passive = party_counts(stage)
                yield (active, *(passive if other == number else NOTHING for other in range(len(others))))
