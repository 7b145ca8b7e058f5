"""Two nodes without ports whose owners ask each other for more of a budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.trust.test_kept import Own
from vfl_node.errors import PolicyError
from vfl_node.node.extensions import Extensions
from vfl_node.node.store import Store
from vfl_node.session.counted import aligned_sets
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice
from vfl_node.trust.people import Person
from vfl_node.trust.signers import Signers

POLICY = "preset: careful\neveryone: {budgets: {extend: true, alignments: 1}}\n"
REASON = "a second cohort"


def day(ahead: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(days=ahead)).date().isoformat()


@dataclass
class Staff:
    """People with tokens."""

    known: dict[str, Person]

    def get(self, name: str) -> Person | None:
        return self.known.get(name)

    def find(self, token: str) -> Person | None:
        return None


class Side:
    """One node, without a port: what it tells is kept, and heard by the other one when it is delivered."""

    def __init__(self, own: Own, policy: str = POLICY) -> None:
        own.config.with_name("policy.yaml").write_text(policy)
        self.own, self.settings = own, own.settings
        self.store = Store(self.settings.state_dir, signing=Signers(self.settings))
        approvers = {name: Person(name, frozenset(("approver",)), name) for name in ("ann", "bob")}
        self.staff = Staff(approvers | {"eve": Person("eve", frozenset(("viewer",)), "eve")})
        self.extensions = Extensions(self.settings, self.store, self.staff)
        self.told: list[Notice] = []
        self.extensions.tell = lambda _, notice: self.told.append(notice)

    @property
    def peer(self) -> str:
        return "lab" if self.settings.name == "clinic" else "clinic"

    def ask(self, **changes: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"budget": "alignments", "more": 2.0, "until": day(30), "reason": REASON, "person": None}
        return self.extensions.ask(self.peer, **asked | changes)

    def hears(self, notice: Notice) -> Notice | None:
        return self.extensions.hear(self.peer, notice.extension)

    def state(self) -> list[str]:
        return [each["state"] for each in self.extensions.list()]

    def entries(self) -> list[Any]:
        return list(self.store.partner(self.peer).lane.list("extend"))

    def align(self, number: int) -> int:
        limits = self.settings.rules.limits_of(self.peer).budgets
        return self.store.partner(self.peer).count(aligned_sets(bytes([number]) * 8, limits.alignments))


def deliver(one: Side, other: Side) -> None:
    """Whatever both tell is heard, until nothing is left."""
    while one.told or other.told:
        for sender, receiver in ((one, other), (other, one)):
            heard, sender.told[:] = list(sender.told), []
            receiver.told += [answer for notice in heard if (answer := receiver.hears(notice))]


def use(side: Side, number: int) -> str:
    try:
        return str(side.align(number))
    except PolicyError as error:
        return error.code


def ask_and_deliver(one: Side, other: Side, **changes: Any) -> str:
    asked = str(one.ask(**changes)["id"])
    deliver(one, other)
    return asked


def link_up(one: Side, other: Side) -> None:
    """What was told before is lost; both say what the other may not have heard."""
    one.told[:], other.told[:] = one.extensions.show(other.settings.name), other.extensions.show(one.settings.name)
    deliver(one, other)
