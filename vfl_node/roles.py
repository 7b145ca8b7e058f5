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

Task = Literal["classification", "regression"]
"""What labels are: classes, or numbers on a scale (targets)."""
