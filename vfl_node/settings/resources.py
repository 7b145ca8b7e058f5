"""How many jobs of partners a node keeps and runs, and how much memory jobs take: ``queue`` and ``resources``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.job import Name


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
        description="how many of them run at a time; more wait. The last of jobs_at_once places is this owner's in any case. "
        "None: an equal share of the others for each peer that may submit jobs",
    )


class QueueSettings(Frozen):
    """Whose jobs run and wait."""

    partners: Annotated[Mapping[Name, Share], Field(description="what one partner's jobs may take, by its name")] = {}
    others: Annotated[Share, Field(description="what the jobs of each partner that has no entry may take")] = Share()

    def share_of(self, partner: str) -> Share:
        """What the jobs of a partner may take."""
        return self.partners.get(partner, self.others)


class Resources(Frozen):
    """What jobs may take of this machine."""

    memory_mib: int | None = Field(
        default=None, ge=1, description="largest estimated memory of all jobs together; None: what is free"
    )
