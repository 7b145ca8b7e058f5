"""The persons of a node who say yes, where the policy wants two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.errors import UsageError
from vfl_node.process.machine import utc_now
from vfl_node.trust.people import DECIDERS, People

NEEDED = 2
"""So many persons say yes then."""


@dataclass(frozen=True)
class Yes:
    """One person's yes.

    Attributes:
        person: the name.
        mark: of the token with which it was said (:class:`vfl_node.trust.people.Person`).
        at: when, UTC.
        note: for this owner alone.
    """

    person: str
    mark: str
    at: str
    note: str


def count_yes(people: People, said: Sequence[Yes]) -> list[Yes]:
    """Each yes that counts: its person may still say it, by the same token."""
    return [
        each for each in said if (person := people.get(each.person)) and person.mark == each.mark and person.roles & DECIDERS
    ]


def hear_yes(people: People, said: Sequence[Yes], person: str | None, note: str, *, to: str, command: str) -> list[Yes]:
    """The yes of ``person``, and of all who have said it before and may still.

    Args:
        people: of this node.
        said: before.
        person: who says it now; None: the owner, who is no person of that many.
        note: for this owner alone.
        to: what.
        command: with which another person says it.

    Raises:
        UsageError: it is nobody who may, or who has said it already (``E_PERSON``).
    """
    known = people.get(person) if person else None
    if known is None or not known.roles & DECIDERS:
        raise UsageError(
            f"two persons must say yes to {to}, and nobody is named",
            code="E_PERSON",
            hint="each with a token of their own (vfl-node token create NAME --roles approver): on the board, or "
            f"{command} --node HOST:PORT --token-file FILE",
        )
    earlier = count_yes(people, said)
    if any(each.person == known.name for each in earlier):
        raise UsageError(f"{known.name} has said yes already", code="E_PERSON", hint="another person must say yes, too")
    return [*earlier, Yes(known.name, known.mark, utc_now(), note)]
