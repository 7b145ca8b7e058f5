"""What a linear model under encryption reads of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.design import LinearEncoder
from vfl_node.data.encoded import EncodedColumn, encoded_columns
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.roles import DataRole
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.table_use import TableUse


class GlmTableUse(TableUse[GeneralisedLinear]):
    """Numbers must suit ``train.scaling`` (``E_OVERFLOW``), and the passive party needs a column that varies.

    Of weights of evidence it says nothing before a job has them.
    """

    @override
    def check(self, role: DataRole, table: Table) -> None:
        if self.train.reads_evidence:
            return
        if not LinearEncoder.fit(table, self.train.scaling).columns and role == "passive":
            raise no_column()

    @override
    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        """As the base; ``train.least_rows`` of the shared rows may leave more of them out."""
        if self.train.reads_evidence:
            return ()
        return encoded_columns(table, LinearEncoder.fit(table, self.train.scaling).columns)


def no_column() -> DataError:
    """The error of a passive party that has nothing to train on (``E_NO_FEATURES``)."""
    return DataError(
        "the passive party's table has no column to train on",
        code="E_NO_FEATURES",
        hint="add columns that vary, or declare ignored ones in data.columns; train.least_rows leaves rare ones out",
    )
