"""The people of one node: who may use its HTTP port, by which name, and in which roles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

PersonRole = Literal["metrics", "viewer", "submitter", "approver", "admin"]
"""What a person may do: read figures, look, submit jobs, decide on jobs, everything. Each but the first may look, too."""

PERSON_ROLES: tuple[PersonRole, ...] = get_args(PersonRole)

DECIDERS: frozenset[PersonRole] = frozenset(("approver", "admin"))
"""Roles that say yes or no to jobs."""

OWNER = "owner"
"""The name of who has the owner's socket or the node's token. No other person has it."""


@dataclass(frozen=True)
class Person:
    """Somebody with a token of their own.

    Attributes:
        name: of this person.
        roles: of this person.
        mark: it differs for each token that a person of this name was given; not secret.
    """

    name: str
    roles: frozenset[PersonRole]
    mark: str = field(default="", repr=False)


class People(Protocol):
    """Those who have a token that is neither revoked nor too old; its methods may be called from several threads."""

    def find(self, token: str) -> Person | None:
        """Whose token this is; None if it is nobody's."""

    def get(self, name: str) -> Person | None:
        """The person of this name; None if there is none."""


class Nobody:
    """A node whose owner has given no tokens."""

    def find(self, token: str) -> Person | None:
        """None."""
        return None

    def get(self, name: str) -> Person | None:
        """None."""
        return None
