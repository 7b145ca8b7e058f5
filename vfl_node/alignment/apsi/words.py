"""What a report says of asymmetric private set intersection."""

from __future__ import annotations

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment


class AsymmetricWords(AlignmentWords):
    """Both parties index an obfuscated set of the passive party's records; only the active one knows which are shared."""

    title = "asymmetric private set intersection"

    def rows_title(self, alignment: ReportedAlignment) -> str:
        """Rows of the set."""
        return "rows in the obfuscated set"

    def rows(self, alignment: ReportedAlignment) -> str:
        """Whose records the rows are, and how many are the active party's too."""
        if alignment.intersection is None:
            return (
                f"All {alignment.rows:,} rows of the shared order are records of {alignment.party}. Alignment hides from it "
                f"how many of them {alignment.active} holds too, and which."
            )
        others = "have no label" if alignment.label_holder == "active" else "do not count"
        return (
            f"All {alignment.rows:,} rows of the shared order are records of {alignment.peer}. {alignment.intersection:,} of "
            f"them are {alignment.active}'s too; the other {alignment.rows - alignment.intersection:,} {others}."
        )

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Sizes to both, the obfuscated set to one, the intersection to the other."""
        return (
            f"Alignment by asymmetric intersection reveals the size of each party's set; to {alignment.passive} an obfuscated "
            f"set, which holds the shared records and others of its own; to {alignment.active} which records are shared, and "
            "the hashes of those others."
        )
