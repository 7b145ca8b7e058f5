"""Who takes part in a job, and what its labels are: words that everybody uses."""

from __future__ import annotations

from typing import Literal

Role = Literal["active", "passive", "coordinator"]
"""The active party has the labels, a passive one columns, the coordinator no data."""

DataRole = Literal["active", "passive"]

DATA_ROLES: tuple[Role, ...] = ("active", "passive")
"""In the order in which sizes are named: the active party's first."""

OTHER_ROLE: dict[Role, Role] = {"active": "passive", "passive": "active"}
"""Role → the role of its peer."""

Task = Literal["classification", "regression", "poisson"]
"""What labels are: classes, numbers on a scale (targets), or counts and other numbers from 0 whose logarithm of the mean is
learnt."""

NUMBER_TASKS: frozenset[Task] = frozenset({"regression", "poisson"})
"""The tasks that predict a number."""
