"""Which jobs are pruned, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

import structlog

from vfl_node.errors import StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.reuse import reused_job
from vfl_node.node.record import Record
from vfl_node.settings.retention import NOTICE_DAYS, Retention

log = structlog.get_logger()


class StoredJobs(Protocol):
    """What a node stores of its jobs."""

    folder: Path

    def records(self) -> list[Record]:
        """Every job, newest first."""


class HourlyPruning:
    """What a running node does every hour.

    Args:
        limits: of this owner.
        prune: as :meth:`vfl_node.node.works.Works.prune`.
        stored: its jobs.
    """

    def __init__(self, limits: Retention, prune: Callable[..., list[str]], stored: StoredJobs) -> None:
        self._limits, self._prune, self._stored = limits, prune, stored
        self._named: set[str] = set()

    def run(self) -> None:
        """Prune what is beyond the limits, and name models that soon will be, each once. Raises StateError."""
        if self._limits != Retention():
            self._prune(self._limits, models=False, dry=False)
        forget_alignments(self._stored, self._limits.alignments_keep)
        if not (soon := self._limits.models_soon):
            return
        for job_id in self._prune(soon, models=False, dry=True):
            if job_id not in self._named:
                self._named.add(job_id)
                log.warning("a model kept for predictions will be pruned", job=job_id, within_days=NOTICE_DAYS)


def forget_alignments(stored: StoredJobs, keep: int) -> None:
    """Remove the alignments of all done jobs but the last ``keep`` of those that another may use again.

    What a job will use that has not ended stays, too. Raises StateError.
    """
    records = stored.records()
    needed = _find_needed(records, stored.folder / "jobs")
    usable = (record.id for record in records if record.state == "done" and not record.damaged and record.id not in needed)
    done = (stored.folder / "jobs" / job_id for job_id in usable)
    folders = [folder for path in done if path.is_dir() and (folder := JobFolder(path)).sealed and folder.keeps_alignment]
    for folder in folders[keep:]:
        folder.forget_alignment()


def _find_needed(records: Sequence[Record], folders: Path) -> set[str]:
    """The jobs whose models or alignments jobs use that have not ended."""
    going = [record for record in records if not record.over and not record.damaged]
    return {job_id for record in going if (job_id := _find_used(record, folders / record.id))}


def _find_used(record: Record, path: Path) -> str | None:
    """The job whose model or alignment this one uses; None: none, or it has not agreed on any, or cannot go on."""
    if record.predict:
        model: str = record.predict["model"]
        return model
    with suppress(StateError):  # what it has kept is damaged: it will end by that, and until then others are pruned
        return reused_job(record.job, path)
    return None


def choose(records: Sequence[Record], folders: Path, limits: Retention, *, models: bool) -> list[Record]:
    """The jobs that :meth:`vfl_node.node.store.Store.prune` removes.

    Args:
        records: all jobs, newest first.
        folders: where the folders of jobs lie.
        limits: as there.
        models: as there.
    """
    needed = _find_needed(records, folders)
    days, keep, models_days = limits.jobs_days, limits.jobs_keep, limits.models_days
    waiting = "unconfirmed" if days is not None else ""  # such a job may wait for a party that is gone for good
    over = [record for record in records if (record.over or record.state == waiting) and record.id not in needed]
    serving = {record.id for record in over if JobFolder.keeps_predictor(folders / record.id)}
    counted = [record for record in over if models or record.id not in serving]
    beyond = {record.id for record in counted[keep:] if record.over} if keep is not None else set()
    beyond |= {record.id for record in counted if days is not None and _age_days(record) > days}
    beyond |= {
        record.id for record in over if record.id in serving and models_days is not None and _age_days(record) > models_days
    }
    return [record for record in over if record.id in beyond]


def _age_days(record: Record) -> float:
    """How long ago a job ended, in days."""
    ended = datetime.fromisoformat(record.finished or record.submitted)
    return (datetime.now(timezone.utc) - ended).total_seconds() / 86400
