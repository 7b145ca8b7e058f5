"""The job's ``parties`` section: who takes part, and who meets whom."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import Name
from vfl_node.roles import DataRole


class Parties(Frozen):
    """Who takes part, by the names in their certificates."""

    active: Name
    passive: tuple[Name, ...] = Field(min_length=1)
    coordinator: Name | None = None

    @field_validator("passive", mode="before")
    @classmethod
    def _list_names(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_names(self) -> Parties:
        if len(set(self.all)) != len(self.all):
            raise ValueError("a party may appear once only")
        if len(self.passive) > 1 and (words := sorted({"active", "passive", "both"} & set(self.passive))):
            raise ValueError(
                f"one of several passive parties cannot be called {words[0]!r}: serve.to and predict.to mean a role by it"
            )
        return self

    @property
    def data(self) -> tuple[str, ...]:
        """Names of those that bring data: active, then passive."""
        return (self.active, *self.passive)

    @property
    def pair(self) -> dict[DataRole, str]:
        """Role → name, in a protocol of two data parties.

        Raises:
            ValueError: there are more; a protocol that calls this must not run with them.
        """
        (passive,) = self.passive
        return {"active": self.active, "passive": passive}

    def others(self, name: str) -> tuple[str, ...]:
        """The other data parties, in their order."""
        return tuple(other for other in self.data if other != name)

    def members(self, to: str) -> tuple[str, ...]:
        """The data parties that may be meant by a role, by ``both`` roles, or by a party's name; none by any other word."""
        of_role = {"active": (self.active,), "passive": self.passive, "both": self.data}
        return of_role.get(to, tuple(name for name in self.data if name == to))

    def role_or_name(self, name: str) -> str:
        """What a data party is called where a role may stand for it: by its role, or by its name if others have the role."""
        if name == self.active:
            return "active"
        return name if len(self.passive) > 1 else "passive"

    def peers_of(self, name: str) -> tuple[str, ...]:
        """With whom ``name`` has a conversation, in the order of :attr:`all`.

        Passive parties have none with each other: the active party relays what one has for another.
        """
        if name in self.passive:
            return tuple(other for other in (self.active, self.coordinator) if other)
        return tuple(other for other in self.all if other != name)

    @property
    def all(self) -> tuple[str, ...]:
        """All names: active, then passive, then coordinator."""
        return (*self.data, *([self.coordinator] if self.coordinator else []))
