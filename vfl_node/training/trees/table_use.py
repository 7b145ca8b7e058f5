"""What a training of trees reads of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.tables import Table
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.table_use import TableUse
from vfl_node.training.trees.config import Trees


class TreesTableUse(TableUse[Trees]):
    """Columns as candidates for splits."""

    @override
    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        """As the base; ``least_rows`` of a node's policy may leave more of them out."""
        return BinnedColumns.fit(table, self.train.bins, self.train.least_rows).encoded(table)
