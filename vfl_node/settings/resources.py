"""How many jobs of partners a node keeps and runs, and how much memory jobs take: ``queue`` and ``resources``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.job import Name
from vfl_node.process.machine import count_cores
from vfl_node.settings.earlier import read_others

ANYONE = "*"
"""Stands for each partner that has no entry."""


MOST_AT_ONCE = 64
"""No node runs more jobs at a time."""


class Share(Frozen):
    """What one partner's jobs may take of this node."""

    stored: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="how many jobs submitted by the partner this node stores, ended ones included; more are refused until "
        "some are pruned (retention, vfl-node prune)",
    )
    running: int | None = Field(
        default=None,
        ge=1,
        description="how many of them run at a time; more wait. The last of max_running places is this owner's in any case. "
        "None: an equal share of the others for each peer that may submit jobs",
    )
    waiting: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="how many of them may run or wait, and how many may wait for this owner's answer; more are refused. "
        "None: 64, and fewer where more than four peers may submit jobs",
    )
    cpu_hours_per_day: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="how many hours of CPU time they may take here within 24 hours; then those that have not begun wait. "
        "None: as many as they need",
    )


class QueueSettings(Frozen):
    """Whose jobs run and wait."""

    max_running: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] | Literal["auto"] = Field(
        default=16,
        description="how many jobs run at a time; more wait for their turn. auto: one for every core, and no more than fit "
        "into memory by the largest estimate of those that run",
    )
    partners: Annotated[
        Mapping[Literal["*"] | Name, Share],
        Field(description="what one partner's jobs may take, by its name; '*': of each partner that has no entry"),
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, given: Any) -> Any:
        return read_others(given)

    @property
    def places(self) -> int:
        """How many jobs may ever run at a time: with ``auto`` where they are small."""
        return min(count_cores(), MOST_AT_ONCE) if self.max_running == "auto" else self.max_running

    def share_of(self, partner: str) -> Share:
        """What the jobs of a partner may take."""
        return self.partners.get(partner) or self.partners.get(ANYONE) or Share()


class Resources(Frozen):
    """What jobs may take of this machine."""

    memory_mib: int | None = Field(
        default=None, ge=1, description="largest estimated memory of all jobs together; None: what is free"
    )
