"""What a report says of private set intersection in pairs."""

from __future__ import annotations

from vfl_node.alignment.psi.words import IntersectionWords
from vfl_node.alignment.words import ReportedAlignment


class PairwiseWords(IntersectionWords):
    """The active party learns which records it shares with each passive party; all index those that everybody has."""

    title = "private set intersection in pairs"

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Sizes, what each pair shares, and what all share."""
        return (
            f"Alignment in pairs reveals the size of each party's set{', rounded up' * alignment.padded}: those of the passive "
            f"parties to {alignment.active} alone. It reveals to {alignment.active} which of its records each passive party "
            f"has, and to each passive party which of its own records {alignment.active} has, and which of these all "
            "parties have."
        )
