"""What a training does with one party's table, whatever the peers have: what it reads of it, and what it refuses.

It loads the numbers of tables and no torch, so that ``vfl-node check`` can ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from vfl_node.configuration.registry import load
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.tables import Table
from vfl_node.errors import UsageError
from vfl_node.job.training import TrainerConfig
from vfl_node.roles import DataRole

C = TypeVar("C", bound=TrainerConfig)

NO_MODELS: Mapping[str, str] = MappingProxyType({})


class TableUse(Generic[C]):
    """What one training does with a party's table. By default every table suits it, images are numbers, and lists are refused.

    Args:
        train: the job's section.
        models: of this node's settings: name → ``module:Class`` of an architecture.
    """

    def __init__(self, train: C, models: Mapping[str, str] = NO_MODELS) -> None:
        self.train, self.models = train, models

    def check(self, role: DataRole, table: Table) -> None:
        """Refuse a whole table of the party in ``role`` with which this training would fail.

        Raises:
            DataError: with what to change in the table or the job.
        """

    def columns(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What becomes of each column, as all rows suggest; in a job training rows decide. Empty: it does not say."""
        return ()

    def reads_images(self) -> bool:
        """Whether a party's image is read as one; else its pixels are numeric columns."""
        return False

    def reads_lists(self) -> bool:
        """Whether columns of lists are read; else a table with one is refused."""
        return False


def check_row_numbers(train: TrainerConfig, table: Table) -> None:
    """Refuse numbers of rows that the owner's settings name and this training would not read.

    Raises:
        UsageError: there are some (``E_CONFIG``).
    """
    for key, values in (("weight", table.weights), ("offset", table.offsets)):
        if values is not None and key not in train.traits.row_numbers:
            raise UsageError(
                f"data.{key} is for train.algorithm: split, and this job has {train.algorithm}, which would not read it",
                code="E_CONFIG",
                hint=f"leave data.{key} out of this node's settings for this job; or the job says algorithm: split",
                for_peer=f"its settings do not allow train.algorithm: {train.algorithm}",
            )


def table_use_of(train: TrainerConfig, models: Mapping[str, str]) -> TableUse[Any]:
    """That of a job's ``train`` section, loaded on first use; args as :class:`TableUse`.

    Raises:
        UsageError: it cannot be loaded (``E_EXTENSION``).
    """
    kind: type[TableUse[Any]] = load(train.parts.table, what=f"tables of trainer {train.algorithm!r}")
    return kind(train, models)
