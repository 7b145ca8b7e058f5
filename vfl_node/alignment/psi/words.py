"""What a report says about private set intersection."""

from __future__ import annotations

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment, overlap_text


class IntersectionWords(AlignmentWords):
    """The words for an alignment by private set intersection."""

    title = "private set intersection"

    def rows_title(self, alignment: ReportedAlignment) -> str:
        """The words after the number of rows: each row is a shared record."""
        return "records in common"

    def rows(self, alignment: ReportedAlignment) -> str:
        """A remark that sizes are rounded up, where they are; else empty."""
        return "Announced numbers are rounded up, which hides how many records each party has." if alignment.padded else ""

    def leaks(self, alignment: ReportedAlignment) -> str:
        """What the alignment reveals: the sizes of the sets, and which records are shared."""
        sizes = f"Alignment by intersection reveals the size of each party's set{', rounded up' * alignment.padded}"
        if alignment.several:
            return f"{sizes}, and to each party which of its own records all parties have. {overlap_text(alignment)}"
        return f"{sizes}, and to both which records they share."
