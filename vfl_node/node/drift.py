"""How far a table of this node has moved away from the records that an earlier job was trained on; for its owner alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vfl_node.data.named import data_of
from vfl_node.data.stability import ColumnShift, NotedTable
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.export.folders import MODEL, job_in
from vfl_node.models import storage
from vfl_node.prediction.records import read_records
from vfl_node.process.files import read_checked
from vfl_node.report.stored import FILE, read_report
from vfl_node.settings.node import Data, Settings
from vfl_node.training.predictor import predictor_of


@dataclass(frozen=True)
class TableShift:
    """A table beside the records of an earlier training.

    Attributes:
        job: id of that job.
        place: where the table lies.
        rows_then: how many records of this party were trained on.
        rows: how many the table has now.
        columns: a column of the model each.
    """

    job: str
    place: str
    rows_then: int
    rows: int
    columns: tuple[ColumnShift, ...]


def compare_with(settings: Settings, job_id: str, data: Data | None = None) -> TableShift:
    """Compare a table with the records that a finished job of this node was trained on. Nothing is sent, and nothing kept.

    Args:
        settings: of this node.
        job_id: of the job.
        data: the table, with the columns of the model; labels are not read. None: the one of that job.

    Raises:
        UsageError: there is no such job (``E_UNKNOWN_JOB``), or its trainer keeps no columns (``E_EXTENSION``).
        StateError: nothing was noted of its records (``E_NO_MODEL``), or that is damaged (``E_STATE_CORRUPT``).
        DataError: the table cannot be read, or lacks a column of the model.
    """
    outcome = JobOutcome(settings.state_dir / "jobs" / job_id)
    if Path(job_id).name != job_id or not outcome.sealed:
        raise UsageError(f"this node has no finished job {job_id}", code="E_UNKNOWN_JOB", hint="vfl-node jobs lists them")
    job = job_in(read_report(outcome.artefact(FILE)))
    try:
        noted = NotedTable.from_json(read_checked(outcome.columns))
    except FileNotFoundError:
        raise StateError(
            f"nothing was noted of the columns of job {job_id}: it trained no model, or an earlier vfl-node ran it",
            code="E_NO_MODEL",
            hint="train again, and compare with the new job",
        ) from None
    _, head = storage.load(outcome.artefact(MODEL))
    source = data or data_of(settings, job)
    kinds = predictor_of(job.train).column_kinds(head["encoder"])
    table = read_records(settings, job, kinds, source, all_columns=True).table
    return TableShift(job_id, source.place, noted.rows, len(table), noted.compare(table))
