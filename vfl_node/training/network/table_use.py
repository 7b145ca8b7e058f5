"""What a network of two halves reads of a party's table."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from typing_extensions import override

from vfl_node.data.encoded import EncodedColumn, encoded_columns
from vfl_node.data.features import Encoder
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.models import architecture_of
from vfl_node.roles import DataRole
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.table_use import TableUse

N = TypeVar("N", bound=NetworkConfig)


class NetworkTableUse(TableUse[N]):
    """Columns by an encoder, images and lists as the job's model reads them; the passive party must have a column."""

    @override
    def check(self, role: DataRole, table: Table) -> None:
        if role == "passive" and not table.columns:
            hint = "add columns, or declare the ignored ones numeric or categorical in data.columns"
            if self.train.traits.by_similarity:
                hint = "columns behind keys are no features: add others, or declare ignored ones in data.columns"
            raise DataError("the passive party's table has no feature column", code="E_NO_FEATURES", hint=hint)

    @override
    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        encoder = Encoder.fit(table, np.arange(len(table)), self.train.scaling, self.train.least_rows)
        return encoded_columns(table, encoder.columns)

    @override
    def reads_images(self) -> bool:
        return architecture_of(self.train.model, self.models).reads_images()

    @override
    def reads_lists(self) -> bool:
        return architecture_of(self.train.model, self.models).reads_lists()
