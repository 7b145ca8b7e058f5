"""In which hours a job goes on: those of the policy bind its begin.

Where the policy allows it, a training without a coordinator is prepared before: the job aligns, and makes ahead what it needs.
Such a job is marked (:attr:`~vfl_node.execution.folder.JobFolder.early`) until its training begins in the hours, whatever the
policy says later.
"""

from __future__ import annotations

from vfl_node.errors import GaveWay
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.process.files import remove, write_whole
from vfl_node.settings.node import Settings

NOT_YET = "its policy lets the job begin later (time)"
"""What a partner hears while this owner's hours are awaited."""

_PREPARED = b"prepared"
"""The mark of a job for which all is made ahead."""


def must_wait(settings: Settings, job: Job, folder: JobFolder, *, begun: bool) -> bool:
    """Whether a job has to wait for the hours; ``begun``: whether something of it is stored."""
    if _is_open(settings, job):
        return False
    mark = folder.early.read_bytes() if folder.early.exists() else None
    if begun and mark is None:
        return False
    prepares = job.train is not None and job.train.prepares and settings.limits_for(job).allow_preparation
    return mark == _PREPARED or not prepares


def mark_begin(settings: Settings, job: Job, folder: JobFolder) -> None:
    """Mark a job that begins now if that is before the hours. Raises OSError."""
    if not _is_open(settings, job):
        write_whole(folder.early, b"")
    elif folder.early.exists():
        remove(folder.early)


def check_hours(settings: Settings, job: Job, folder: JobFolder) -> None:
    """Let a training begin for which all is made ahead.

    Raises:
        GaveWay: the job began before the hours, and they have not come.
        OSError: the mark cannot be written.
    """
    if not folder.early.exists():
        return
    if _is_open(settings, job):
        remove(folder.early)
    else:
        write_whole(folder.early, _PREPARED)
        raise GaveWay("all is made ahead, and the training waits for the hours of the policy", for_peer=NOT_YET)


def _is_open(settings: Settings, job: Job) -> bool:
    return settings.rules.is_open(job.parties.others(settings.name))
