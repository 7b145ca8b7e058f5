"""Which jobs are pruned."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from vfl_node.execution.folder import JobFolder
from vfl_node.node.record import Record


def choose(records: Sequence[Record], folders: Path, *, days: float | None, keep: int | None, models: bool) -> list[Record]:
    """The jobs that :meth:`vfl_node.node.store.Store.prune` removes.

    Args:
        records: all jobs, newest first.
        folders: where the folders of jobs lie.
        days: as there.
        keep: as there.
        models: as there.
    """
    needed = {record.predict["model"] for record in records if record.predict and not record.over}
    waiting = "unconfirmed" if days is not None else ""  # such a job may wait for a party that is gone for good
    over = [record for record in records if (record.over or record.state == waiting) and record.id not in needed]
    over = [record for record in over if models or not JobFolder.keeps_predictor(folders / record.id)]
    return [
        record
        for place, record in enumerate(over)
        if (keep is not None and place >= keep and record.over) or (days is not None and _age_days(record) > days)
    ]


def _age_days(record: Record) -> float:
    """How long ago a job ended, in days."""
    ended = datetime.fromisoformat(record.finished or record.submitted)
    return (datetime.now(timezone.utc) - ended).total_seconds() / 86400
