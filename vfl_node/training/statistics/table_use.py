"""What statistics in shares read of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.tables import Table
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.table_use import TableUse


class StatisticsTableUse(TableUse[Statistics]):
    """Columns as bins."""

    @override
    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        """As the base; ``least_rows`` of a node's policy may leave more of them out."""
        return CountedColumns.fit(table, self.train.bins, self.train.least_rows).encoded(table)
