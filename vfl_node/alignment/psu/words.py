"""What a report says of private set union."""

from __future__ import annotations

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment, overlap_text


class UnionWords(AlignmentWords):
    """Both parties index all records of either; neither learns which ones are shared."""

    title = "private set union"

    def rows_title(self, alignment: ReportedAlignment) -> str:
        """Where the size of the union is hidden some rows stand for no record."""
        return "rows in the shared order" if alignment.union is None else "records in the union"

    def rows(self, alignment: ReportedAlignment) -> str:
        """Where dummies or padding hide a size, that some rows stand for no record."""
        if alignment.intersection is None and not alignment.several:
            why = "they hide how much the two sets overlap"
            return f"Of the {alignment.rows:,} rows of the shared order some stand for no record: {why}."
        if alignment.padded:
            why = "they hide how many records each party has"
            return f"The shared order has {alignment.rows:,} rows. Some may stand for no record: {why}."
        return ""

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Sizes, of the sets and of their union."""
        counted_in = ", made-up records counted in" if alignment.union is None else ""
        parts = f" {overlap_text(alignment)}" if alignment.several else ""
        return f"Alignment reveals the size of each party's set and of their union{counted_in}.{parts}"
