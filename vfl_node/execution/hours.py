"""A training for which all is made ahead before the hours of the policy waits for them."""

from __future__ import annotations

from vfl_node.errors import GaveWay
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.process.files import remove, write_whole
from vfl_node.settings.node import Settings

NOT_YET = "its policy lets the job begin later (time)"
"""What a partner hears while this owner's hours are awaited."""


def may_prepare(settings: Settings, job: Job) -> bool:
    """Whether a job may make ahead before this owner's hours what it needs in them."""
    return job.train is not None and job.train.prepares and settings.limits_for(job).allow_preparation


def check_hours(settings: Settings, job: Job, folder: JobFolder) -> None:
    """Let a prepared training begin, or store that it waits. Raises GaveWay: this owner's hours let it begin later."""
    if may_prepare(settings, job) and not settings.rules.is_open(job.parties.others(settings.name)):
        write_whole(folder.prepared, b"")
        raise GaveWay("all is made ahead, and the training waits for the hours of the policy", for_peer=NOT_YET)
    if folder.prepared.exists():
        remove(folder.prepared)
