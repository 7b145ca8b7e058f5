"""What a report says of private set intersection in pairs."""

from __future__ import annotations

from vfl_node.alignment.psi.words import IntersectionWords
from vfl_node.alignment.words import ReportedAlignment


class PairwiseWords(IntersectionWords):
    """The active party learns which records it shares with each passive party; all index those that everybody has."""

    title = "private set intersection in pairs"

    def leaks(self, of: ReportedAlignment) -> str:
        """Sizes, what each pair shares, and what all share."""
        return (
            f"Alignment in pairs reveals the size of each party's set{', rounded up' * of.padded}: those of the passive "
            f"parties to {of.active} alone. It reveals to {of.active} which of its records each passive party has, and to each "
            f"passive party which of its own records {of.active} has, and which of these all parties have."
        )
