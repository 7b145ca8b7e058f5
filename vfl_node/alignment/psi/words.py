"""What a report says of private set intersection."""

from __future__ import annotations

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment, overlap_text


class IntersectionWords(AlignmentWords):
    """Both parties learn which of their records are shared, and index these."""

    title = "private set intersection"

    def rows_title(self, alignment: ReportedAlignment) -> str:
        """Each row is a shared record."""
        return "records in common"

    def rows(self, alignment: ReportedAlignment) -> str:
        """Where sizes are padded, that they are."""
        return "Announced numbers are rounded up, which hides how many records each party has." if alignment.padded else ""

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Sizes, and which records are shared."""
        sizes = f"Alignment by intersection reveals the size of each party's set{', rounded up' * alignment.padded}"
        if alignment.several:
            return f"{sizes}, and to each party which of its own records all parties have. {overlap_text(alignment)}"
        return f"{sizes}, and to both which records they share."
