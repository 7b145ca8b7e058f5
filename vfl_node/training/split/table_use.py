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
            self._check_row_numbers(table)

    def _check_row_numbers(self, table: Table) -> None:
        """Refuse weights and offsets where some of what is learnt would not have them. Raises UsageError (``E_CONFIG``)."""
        train = self.train
        used = [key for key, values in (("weight", table.weights), *_offsets(table)) if values is not None]
        against = [
            ("missing.calibration", "computes with shares of rows") if train.missing.calibration != "none" else None,
            ("unaligned", "learns from rows that it fills in") if train.unaligned.fills else None,
            ("classes", "gives each class a score of its own") if table.offsets is not None and train.classes > 2 else None,
        ]
        for key, why in filter(None, against) if used else ():
            raise UsageError(
                f"data.{used[-1]} does not go with train.{key}, which {why}: both together are not defined",
                code="E_CONFIG",
                hint=f"leave out data.{used[-1]} in this node's settings for this job, or train.{key} in the job",
                for_peer=f"its settings do not allow train.{key}",
            )
        if table.offsets is not None and not table.columns:
            raise UsageError(
                f"data.{used[-1]} is for an active party with columns of its own, and this table has none",
                code="E_CONFIG",
                hint="add a column that is a feature, or leave it out",
                for_peer="its settings do not allow this job",
            )


def _offsets(table: Table) -> list[tuple[str, object]]:
    """The setting behind the offsets of a table, and these."""
    return [(key, table.offsets) for key in table.offset_columns]
