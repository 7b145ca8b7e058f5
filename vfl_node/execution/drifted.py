"""Warnings of own columns that lie otherwise than when the model was trained that a job goes on from, or predicts by."""

from __future__ import annotations

from pathlib import Path

from vfl_node.data.stability import NotedTable
from vfl_node.data.tables import Table
from vfl_node.errors import StateError
from vfl_node.process.files import read_checked

MOST_NAMED = 12


def drift_cautions(columns: Path, job_id: str, table: Table) -> tuple[str, ...]:
    """A sentence for this party's owner where columns have moved; none where nothing was noted, or nothing has moved.

    Args:
        columns: file with what was noted at the end of that training.
        job_id: of that training.
        table: the records that this party brings now, of those that take part.

    Cost: one pass over the cells, without a sort. Nothing is sent.
    """
    try:
        shifts = NotedTable.from_json(read_checked(columns)).compare(table)
    except FileNotFoundError:
        return ()
    except StateError as error:
        return (f"Own columns were not compared with those of job {job_id}: {error.message}.",)
    moved = [(shift.index, shift) for shift in shifts if shift.index is not None and shift.word != "stable"]
    if not moved:
        return ()
    moved.sort(key=lambda each: -each[0])
    named = ", ".join(f"{shift.name} ({shift.word}, index {index:.2f})" for index, shift in moved[:MOST_NAMED])
    more = f" and {len(moved) - MOST_NAMED:,} more" if len(moved) > MOST_NAMED else ""
    return (
        f"Own columns lie otherwise than among the records that job {job_id} trained on: {named}{more}. An index below .1 "
        "is stable, and from .25 on a column has shifted (docs/guides/check-a-table.md).",
    )
