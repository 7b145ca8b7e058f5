"""Jobs by a clock: ``schedules`` of a node that may submit jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from vfl_node.configuration.models import Frozen, text_like
from vfl_node.errors import UsageError
from vfl_node.job import Job, load_job
from vfl_node.settings.clock_times import ClockTimes
from vfl_node.settings.zones import Zone, zone_named

MOST_SCHEDULES = 16
"""That a node may have."""


def _is_line(text: str) -> str:
    ClockTimes(text)
    return text


class JobSchedule(Frozen):
    """When a job is submitted again and again."""

    name: Annotated[
        str,
        text_like(
            r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$",
            "a name: 1 to 40 small letters, digits and hyphens that begin and end with a letter or digit",
        ),
    ] = Field(description="ids of its jobs begin with it: weekly-20261130")
    job: Path = Field(description="the job file; it is read again for each job")
    at: Annotated[str, AfterValidator(_is_line)] = Field(
        description="minute, hour, day of the month, month and day of the week, as in cron: 0 3 * * mon"
    )
    zone: Zone = Field(default="UTC", description="time zone of `at` and `until`")
    jitter_s: int = Field(
        default=0,
        ge=0,
        le=43_200,
        description="each job is submitted up to so many seconds later, so that not all come together",
    )
    catch_up: Literal["one", "none"] = Field(
        default="one", description="after the node was down: one job for the last time that was missed, or none"
    )
    if_running: Literal["skip", "submit"] = Field(
        default="skip", description="while the schedule's last job has not ended: no new one, or one that may wait"
    )
    until: date | None = Field(default=None, description="the last day on which it submits, in its zone")
    skip_unchanged: bool = Field(
        default=False, description="no job while the node's own table is as its last job read it, if that job ended well"
    )
    least_new: int = Field(
        default=0, ge=0, description="no job until so many records were added to the own table since its last job read it"
    )

    @model_validator(mode="after")
    def _check_jitter(self) -> JobSchedule:
        if timedelta(seconds=self.jitter_s) >= self.clock.least_gap:
            raise ValueError(f"jitter_s is less than the time between two jobs, which is {self.clock.least_gap}")
        return self

    @cached_property
    def clock(self) -> ClockTimes:
        """When it submits, whatever ``until`` says."""
        return ClockTimes(self.at)

    def read_job(self) -> Job:
        """The job. Raises UsageError: the file cannot be read, or the job predicts."""
        job = load_job(self.job)
        if job.predict:
            text = f"{self.job} makes predictions, and a schedule submits jobs that align or train"
            raise UsageError(text, code="E_CONFIG", hint="ask for predictions by a program of yours: vfl-node predict")
        return job

    @property
    def compares(self) -> bool:
        """Whether it compares the node's own table before a job."""
        return self.skip_unchanged or self.least_new > 0

    def list_after(self, moment: datetime) -> Iterator[datetime]:
        """The planned times later than ``moment``, in UTC, one after the other."""
        planned = self.clock.list_after(moment, zone_named(self.zone))
        return takewhile(lambda at: self.until is None or self._local(at).date() <= self.until, planned)

    def find_last(self, after: datetime, now: datetime) -> datetime | None:
        """The last planned time later than ``after`` and not later than ``now``, in UTC; None: there is none."""
        last = None
        for days in (1, 32, 366):  # a node may have been down for long
            begin = max(after, now - timedelta(days=days))
            for last in takewhile(lambda at: at <= now, self.list_after(begin)):  # noqa: B007 - the last one
                pass
            if last or begin == after:
                return last
        for last in takewhile(lambda at: at <= now, self.list_after(after)):  # noqa: B007 - the same
            pass
        return last

    def is_over(self, now: datetime) -> bool:
        """Whether its last day has passed."""
        return self.until is not None and self._local(now).date() > self.until

    def draw_out(self, planned: datetime, party: str) -> datetime:
        """When a job of ``party`` that is planned then is submitted: later by what all starts of a node agree on."""
        seed = hashlib.sha256(f"{party}\n{self.name}\n{planned.isoformat()}".encode()).digest()
        return planned + timedelta(seconds=int.from_bytes(seed[:8], "big") % (self.jitter_s + 1))

    def job_id(self, planned: datetime, *, by_hand: bool = False) -> str:
        """The id of the job that is planned then: no two have the same one, however often the node starts."""
        if by_hand or len(self.clock.of_a_day) > 1:
            return f"{self.name}-{self._local(planned):%Y%m%d-%H%M}"
        return f"{self.name}-{self.clock.find_day(planned, zone_named(self.zone)):%Y%m%d}"

    def _local(self, at: datetime) -> datetime:
        return at.astimezone(zone_named(self.zone))
