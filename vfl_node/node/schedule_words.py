"""What an owner is told of a schedule: what others learn because its job comes again and again, and when a budget ends that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from vfl_node.errors import VflError
from vfl_node.job import Job
from vfl_node.node.asked_words import list_budgets
from vfl_node.report.words import join_names
from vfl_node.settings.node import Settings
from vfl_node.settings.schedules import JobSchedule
from vfl_node.trust.manifest import declare

WITHIN = timedelta(days=366)
"""So far ahead it is said that a budget will be used up."""

OFTEN = timedelta(days=6)
"""Jobs that come more often than this are advised to come less often."""

ADVICE = "align once a week, set least_new: 500, or score known records by one model instead"


def describe_schedule(settings: Settings, schedule: JobSchedule, now: datetime) -> dict[str, Any]:
    """``tells``: what others learn by jobs of a schedule, as a sentence; ``warnings``: a sentence each.

    Args:
        settings: of this node.
        schedule: one of its schedules.
        now: UTC.
    """
    try:
        job = schedule.read_job()
        return {"tells": tell(settings.name, job), "warnings": list(list_warnings(settings, schedule, job, now))}
    except VflError as error:
        return {"tells": "", "warnings": [f"its job cannot be submitted: {error.code}: {error.message}"]}


def tell(own: str, job: Job) -> str:
    """What others learn of a table of ``own`` that grows, and is aligned by this job again and again."""
    told = [each for each in declare(job, None) if each.to != own]
    which = [each.to for each in told if each.what in ("intersection", "similarities", "candidate rows", "undeclared")]
    names = join_names(list(dict.fromkeys(which or [each.to for each in told] or job.parties.others(own))))
    what = "which shared records are new" if which else "how many records are new"
    return f"with each job over a table that has grown, {names} can tell {what} since the one before: so when they came"


def list_warnings(settings: Settings, schedule: JobSchedule, job: Job, now: datetime) -> Iterator[str]:
    """What the owner should think of before the first job."""
    planned = list(islice(schedule.list_after(now), 2))
    if len(planned) == 2 and planned[1] - planned[0] < OFTEN and not schedule.least_new:
        yield f"{schedule.name}: others see what is new at each of its times; {ADVICE}"
    for use in list_budgets(settings, job):
        cost, left = use["after"] - use["used"], None if use["allowed"] is None else use["allowed"] - use["used"]
        if left is None or cost <= 0 or (use["limit"] == "trainings" and not _draws_anew(job)):
            continue
        fits = int(left / cost + 1e-9)
        place = f"budgets.{use['limit']} with {use['partner']}: {use['used']:g} of {use['allowed']:g}"
        if per := use.get("per"):
            begin = now + timedelta(days=7 if per == "week" else 365)
            jobs = sum(1 for _ in islice(_list_until(schedule, now, begin), int(use["allowed"] / cost) + 1))
            if jobs * cost > use["allowed"]:
                yield f"{schedule.name} has more jobs than {use['allowed']:g} per {per} ({place} are used); the rest is refused"
        elif stops := next(islice(_list_until(schedule, now, now + WITHIN), fits, None), None):
            day = (stops.date() - now.date()).days
            text = f"{schedule.name} stops on day {day}, {stops:%Y-%m-%d}, if its table changes each time"
            yield f"{text}: {place} are used, for ever; a budget with a period has room again (most, per)"


def _draws_anew(job: Job) -> bool:
    """Whether trainings of a job count: they draw what a comparison of several would tell."""
    synthetic = job.train is not None and job.train.traits.synthetic_rows and not job.align.spec.every_row_is_shared
    return synthetic or (job.train is not None and job.train.opens(job.evaluate).anew)


def _list_until(schedule: JobSchedule, after: datetime, last: datetime) -> Iterator[datetime]:
    for planned in schedule.list_after(after):
        if planned > last:
            return
        yield planned
