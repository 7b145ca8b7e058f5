"""Columns that a passive party's settings name, to audit or to protect them: whether its table has them."""

from __future__ import annotations

from vfl_node.data.tables import Table
from vfl_node.privacy.defences.decoding import ColumnParams
from vfl_node.privacy.features.rows import check_enough
from vfl_node.privacy.features.targets import check_columns
from vfl_node.roles import Role
from vfl_node.settings.protection import Protection
from vfl_node.trainers import TrainerConfig


def check_named_columns(
    table: Table, protection: Protection, *, party: str, role: Role, train: TrainerConfig | None = None, whole: bool = True
) -> None:
    """Refuse settings that name columns which this party's table lacks, or which nobody can rebuild.

    Args:
        table: of this party.
        protection: what its settings say.
        party: its name.
        role: of this party.
        train: of the job; None: of any job.
        whole: whether these are all rows of the table; of others it is not known how many there are, or whether columns vary.

    Raises:
        UsageError: as :func:`~vfl_node.privacy.features.targets.check_columns`, or the table is too small for an audit of
            columns, even if all its rows were trained on (``E_CONFIG``).
    """
    if role != "passive" or (train is not None and "embeddings" not in train.defended):
        return
    for number, params in enumerate(protection.defences):
        if isinstance(params, ColumnParams):
            check_columns(table, params.names, party=party, setting=f"defences.{number} ({params.name}): columns", whole=whole)
    if features := protection.features:
        check_columns(table, features.names, party=party, setting="audit.features.columns", whole=whole)
        if whole:
            check_enough(int(features.known_share * len(table)), share=features.known_share)
