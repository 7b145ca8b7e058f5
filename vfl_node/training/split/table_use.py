"""What split training reads of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.tables import Table
from vfl_node.roles import DataRole
from vfl_node.training.network.table_use import NetworkTableUse
from vfl_node.training.split.config import Train


class SplitTableUse(NetworkTableUse[Train]):
    """As every network of two halves; the active party must have what ``train.unaligned`` needs."""

    @override
    def check(self, role: DataRole, table: Table) -> None:
        super().check(role, table)
        if role == "active":
            self.train.unaligned.check_table(table)
