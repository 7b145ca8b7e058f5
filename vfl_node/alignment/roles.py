"""The two roles whose tables an alignment compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vfl_node.settings import Role

DATA_ROLES: tuple[Role, ...] = ("active", "passive")
"""In the order in which sizes are named: the active party's first."""

OTHER_ROLE: dict[Role, Role] = {"active": "passive", "passive": "active"}
"""Role → the role of its peer."""
