"""What a training in shares reads of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.design import LinearEncoder
from vfl_node.data.encoded import EncodedColumn, encoded_columns
from vfl_node.data.tables import Table
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.own_columns import make_robust
from vfl_node.training.table_use import TableUse


class HiddenTableUse(TableUse[Hidden]):
    """Columns as a linear model reads them. Of weights of evidence it says nothing before a job has them."""

    @override
    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        """As the base; ``least_rows`` of a node's policy may leave more of them out."""
        if self.train.reads_evidence:
            return ()
        scaling = self.train.scaling
        return encoded_columns(table, LinearEncoder.fit(make_robust(table, scaling), scaling).columns)
