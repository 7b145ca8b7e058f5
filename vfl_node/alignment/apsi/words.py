"""What a report says of asymmetric private set intersection."""

from __future__ import annotations

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment


class AsymmetricWords(AlignmentWords):
    """Both parties index an obfuscated set of the passive party's records; only the active one knows which are shared."""

    title = "asymmetric private set intersection"

    def rows_title(self, of: ReportedAlignment) -> str:
        """Rows of the set."""
        return "rows in the obfuscated set"

    def rows(self, of: ReportedAlignment) -> str:
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

    def leaks(self, of: ReportedAlignment) -> str:
        """Sizes to both, the obfuscated set to one, the intersection to the other."""
        return (
            f"Alignment by asymmetric intersection reveals the size of each party's set; to {of.passive} an obfuscated set, "
            f"which holds the shared records and others of its own; to {of.active} which records are shared, and the hashes of "
            "those others."
        )
