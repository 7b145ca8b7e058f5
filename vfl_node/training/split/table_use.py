"""What split training reads of a party's table."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.data.tables import Table
from vfl_node.errors import UsageError
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
            self._check_weights(table)

    def _check_weights(self, table: Table) -> None:
        """Refuse weights of rows where some of what is learnt would not have them. Raises UsageError (``E_CONFIG``)."""
        if table.weights is None:
            return
        for key, why in (
            ("missing.calibration", self.train.missing.calibration != "none" and "computes with shares of rows"),
            ("unaligned", self.train.unaligned.fills and "learns from rows that it fills in"),
        ):
            if why:
                raise UsageError(
                    f"data.weight makes rows count by their weight, and train.{key} {why}: both together are not defined",
                    code="E_CONFIG",
                    hint=f"leave out data.weight in this node's settings for this job, or train.{key} in the job",
                    for_peer=f"its settings do not allow train.{key}",
                )
