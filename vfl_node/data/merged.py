"""How many rows of a table became how many records: for its owner alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vfl_node.settings.declared import Declared


@dataclass(frozen=True)
class MergedRows:
    """What became of the rows of a table whose settings have ``data.aggregate``.

    Attributes:
        rows: of the input.
        records: that they became.
        fewest: rows of one record.
        most: likewise.
        median: likewise.
        dropped: rows of later days than ``as_of``, which are not read.
        as_of: that day, as YYYY-MM-DD; None: all rows are read.
        ordered: whether ``data.order`` orders the records, so that a job may hold out the last ones.
        columns: column of the rows that was read for what is taken of it, or for their order → its kind, and how it is written.
    """

    rows: int
    records: int
    fewest: int
    most: int
    median: float
    dropped: int
    as_of: str | None
    ordered: bool
    columns: Mapping[str, Declared] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        each = f"{self.fewest:,} to {self.most:,} each, median {self.median:,g}"
        dropped = f"; {self.dropped:,} rows after {self.as_of} left out" if self.as_of else ""
        return f"{self.rows:,} rows → {self.records:,} records, {each}{dropped}"

    @property
    def caution(self) -> str:
        """What the owner should know, a whole sentence; empty if there is nothing."""
        if not self.ordered or self.as_of:
            return ""
        return (
            "data.aggregate has no as_of, and data.order orders the records: what is taken of a record's rows also tells what "
            "came after others were held out. Say data.aggregate.as_of, the last day that is known."
        )
