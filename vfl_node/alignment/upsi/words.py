"""What a report says of unbalanced private set intersection."""

from __future__ import annotations

from vfl_node.alignment.psi.words import IntersectionWords
from vfl_node.alignment.words import ReportedAlignment


class UnbalancedWords(IntersectionWords):
    """One party asks about its few records; the other one answers, and has sent a list of its many ones once."""

    title = "unbalanced private set intersection"

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Sizes, which records are shared, and what the list tells whoever asks again."""
        return (
            f"{super().leaks(alignment)} The party that asks keeps a list of one-way tags of all records of the other one. It "
            "learns of each id that it asks about whether it is among them, also in later jobs under the same key."
        )
