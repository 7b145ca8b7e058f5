"""A node's policy: what its owner allows whom, what never runs, and who says yes to the rest (docs/guides/set-a-policy.md).

Limits bind whoever approves. ``never`` refuses a job that overlaps with what a line names. ``approve`` only says who says yes:
the first line that covers a job counts, and after them the word of the preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.job import Job, Name, ProtocolName
from vfl_node.job.names import Purpose
from vfl_node.job.training import TRAINERS
from vfl_node.settings.hours import DAYS, is_within, openings
from vfl_node.settings.limits import (
    Any_,
    AttackLimits,
    Budgets,
    Limits,
    LinkageLimits,
    QueryLimits,
    SizeLimits,
    allows,
    overlay,
    tightest,
)
from vfl_node.settings.zones import Zone, zone_named

Preset = Literal["trial", "careful", "strict"]

By = Literal["rule", "one", "two", "nobody"]
"""Who says yes: this policy, one person, two persons of whom none has submitted the job; nobody, and so it is refused."""

PRESETS: Mapping[Preset, Limits] = {
    "trial": Limits(
        protocols="any",
        unaligned="any",
        unbounded_models="any",
        tables="any",
        coordinators="any",
        reveal="any",
        allow_export=True,
        allow_joint_export=True,
        min_own_rows=1,
        min_peer_rows=1,
        size=SizeLimits(parameters=10**12, steps=10**12),
        linkage=LinkageLimits(max_reuse=None),
        budgets=Budgets(
            alignments=None,
            changes=None,
            trainings=None,
            trainings_in_clear=None,
            linkages=None,
            predicted_rows=10**7,
            models_served=None,
            epsilon=None,
        ),
        queries_per_peer=QueryLimits(per_day=None, per_epoch=1 << 26),
    ),
    "careful": Limits(),
    "strict": Limits(
        protocols=("psu", "apsi"),
        trainers=("split", "hidden"),
        unaligned=(),
        min_own_rows=1000,
        min_peer_rows=1000,
        min_overlap=50,
        size=SizeLimits(rows=10**7, parameters=2 * 10**6, steps=10**6),
        linkage=LinkageLimits(max_reuse=50, min_sigma=0.5),
        attacks=AttackLimits(rows=0.6, columns=0.1, labels=0.65),
        budgets=Budgets(
            alignments=5,
            changes=0,
            trainings=2,
            trainings_in_clear=20,
            linkages=1,
            predicted_rows=1000,
            models_served=1,
            epsilon=2.0,
        ),
        queries_per_peer=QueryLimits(per_day=500, per_epoch=5_000),
        hours=("mon-fri 08:00-18:00",),
    ),
}
"""Preset → its limits."""

SAYS_YES: Mapping[Preset, By] = {"trial": "rule", "careful": "one", "strict": "two"}
"""Preset → who says yes to a job that no line covers."""

_Trainers = tuple[Annotated[str, name_in(TRAINERS)], ...] | Any_


class Which(Frozen):
    """Which jobs a line is about; a key that is left out is about all."""

    submitters: tuple[Name, ...] | Any_ = Field(default="any", description="who submits the job, and who passes it on")
    partners: tuple[Name, ...] | Any_ = Field(default="any", description="parties of the job with data, besides this one")
    coordinators: tuple[Name, ...] | Any_ = Field(default="any", description="the job's coordinator, if it has one")
    protocols: tuple[ProtocolName, ...] | Any_ = Field(default="any", description="how the job aligns")
    trainers: _Trainers = Field(default="any", description="what the job trains by; predictions are of none")
    purposes: tuple[Purpose, ...] | Any_ = Field(
        default="any", description="the job's purpose, which its submitter may write as it likes: a label, no safeguard"
    )


class WhichToApprove(Which):
    """As :class:`Which`, of jobs that may be approved."""

    same_as_approved: bool = Field(
        default=False, description="only jobs that ask for the same as one that a person here has approved"
    )
    until: date | None = Field(default=None, description="the last day on which the line counts, in the policy's zone")


class Never(Frozen):
    """Jobs that are refused: those of which something is named by each key of ``when``."""

    name: Purpose
    when: Which


class Approve(Frozen):
    """Who says yes to jobs of which all is named by each key of ``when``."""

    name: Purpose
    when: WhichToApprove = WhichToApprove()
    by: By


@dataclass(frozen=True)
class Asked:
    """What a policy is asked about a job.

    Attributes:
        job: the job.
        own: this party.
        submitters: who offers it, and who has submitted it, where the active party passes it on.
        known: whether a person here has approved a job that asks for the same.
    """

    job: Job
    own: str
    submitters: tuple[str, ...]
    known: bool = False

    @property
    def partners(self) -> list[str]:
        """The other parties of the job that have data."""
        return [name for name in self.job.parties.data if name != self.own]

    def values(self) -> dict[str, list[str]]:
        """Key of :class:`Which` → what the job has for it."""
        job = self.job
        return {
            "submitters": list(self.submitters),
            "partners": self.partners,
            "coordinators": [job.parties.coordinator] if job.parties.coordinator else [],
            "protocols": [job.align.protocol],
            "trainers": [job.train.algorithm] if job.train else [],
            "purposes": [job.purpose] if job.purpose else [],
        }


@dataclass(frozen=True)
class Decision:
    """Who says yes to a job, and what says so.

    Attributes:
        by: who.
        line: the name of the line, with its place: ``approve: weekly churn``, ``never: …``, ``preset: careful``.
    """

    by: By
    line: str


class Policy(Frozen):
    """What an owner allows. It is no secret, but no other party sees it."""

    version: Literal[1] = Field(default=1, description="of this form")
    preset: Preset = Field(
        default="careful", description="limits, and who says yes, wherever nothing else is written: trial, careful or strict"
    )
    zone: Zone = Field(default="UTC", description="time zone of hours and days")
    everyone: Limits = Field(default=Limits(), description="limits for every partner, above those of the preset")
    partners: Mapping[Name, Limits] = Field(default={}, description="limits for one partner, above those for everyone")
    never: tuple[Never, ...] = Field(
        default=(), max_length=256, description="jobs that are refused, whoever would say yes: name, and when"
    )
    approve: tuple[Approve, ...] = Field(
        default=(),
        max_length=256,
        description="who says yes: name, when, and by (rule, one, two or nobody); the first line that covers a job counts",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Policy:
        for place, limits in (
            ("everyone", self._everyone),
            *((f"partners.{name}", self.limits_of(name)) for name in self.partners),
        ):
            if limits.min_peer_rows > limits.size.rows:
                raise ValueError(f"{place}.min_peer_rows is above {place}.size.rows")
        return self

    @cached_property
    def _everyone(self) -> Limits:
        return overlay(PRESETS[self.preset], self.everyone)

    def limits_of(self, partner: str) -> Limits:
        """What one partner may do."""
        return overlay(self._everyone, self.partners[partner]) if partner in self.partners else self._everyone

    def limits_for(self, partners: Iterable[str]) -> Limits:
        """What a job with these partners may do: the tightest of their limits. Budgets count with each partner by itself."""
        several = [self.limits_of(name) for name in partners]
        return tightest(several) if several else self._everyone

    def is_open(self, partners: Iterable[str], now: datetime | None = None) -> bool:
        """Whether a job with these partners may begin ``now`` (UTC), by the hours of all of them."""
        local = self._here(now)
        hours = [self.limits_of(name).hours for name in partners]
        return all(windows == "any" or is_within(windows, local) for windows in hours)

    def opens(self, partners: Iterable[str], now: datetime | None = None) -> str:
        """When a job with these partners may begin next, such as ``18:00`` or ``mon 18:00``, in the zone; empty: never."""
        local = self._here(now)
        hours = [self.limits_of(name).hours for name in partners]
        moments = sorted({moment for windows in hours if windows != "any" for moment in openings(windows, local)})
        found = next((at for at in moments if all(windows == "any" or is_within(windows, at) for windows in hours)), None)
        if found is None:
            return ""
        return f"{found:%H:%M}" if found.date() == local.date() else f"{DAYS[found.weekday()]} {found:%H:%M}"

    def decide(self, asked: Asked, now: datetime | None = None) -> Decision:
        """Who says yes to a job that the limits allow. ``now``: UTC. Pure: the same arguments give the same answer."""
        values, today = asked.values(), self._here(now).date()
        for refusing in self.never:
            if all(_meets(getattr(refusing.when, key), have) for key, have in values.items()):
                return Decision("nobody", f"never: {refusing.name}")
        for line in self.approve:
            if _covers(line.when, asked, values, today):
                return Decision(line.by, f"approve: {line.name}")
        return Decision(SAYS_YES[self.preset], f"preset: {self.preset}")

    def _here(self, now: datetime | None) -> datetime:
        return (now or datetime.now(timezone.utc)).astimezone(zone_named(self.zone))


def _covers(when: WhichToApprove, asked: Asked, values: Mapping[str, list[str]], today: date) -> bool:
    named = all(allows(getattr(when, key), *have) for key, have in values.items())
    # A job that trains nothing is of no named trainer, and one without a purpose of no named purpose.
    lacking = any(getattr(when, key) != "any" and not values[key] for key in ("trainers", "purposes"))
    late = when.until is not None and today > when.until
    return named and not (lacking or late or (when.same_as_approved and not asked.known))


def _meets(names: tuple[str, ...] | Any_, have: list[str]) -> bool:
    return names == "any" or not set(names).isdisjoint(have)


class PolicyInForce:
    """The policy of a node that runs: its owner may put another one in its place. Safe to use from several threads.

    Attributes:
        policy: the one that holds now; each attempt at a job keeps the one with which it began.
        file: where it was read from; None: it stands in the settings.
    """

    def __init__(self, policy: Policy, file: Path | None = None) -> None:
        self.policy, self.file = policy, file
