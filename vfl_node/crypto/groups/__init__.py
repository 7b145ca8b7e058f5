"""Groups with a hard Diffie–Hellman problem, by their names in a job file."""

from __future__ import annotations

from collections.abc import Callable

from vfl_node.crypto.groups.contract import Group, Scalar
from vfl_node.crypto.groups.curve25519 import Curve25519
from vfl_node.crypto.groups.safe_prime import SafePrimeGroup, modp2048, modp3072

GROUPS: dict[str, Callable[[], Group]] = {"curve25519": Curve25519, "modp3072": modp3072, "modp2048": modp2048}
"""Name → maker; a new group is one entry."""


def group(name: str) -> Group:
    """The group called ``name``; one of :data:`GROUPS`, which the job model has checked."""
    return GROUPS[name]()


__all__ = ["GROUPS", "Curve25519", "Group", "SafePrimeGroup", "Scalar", "group"]
