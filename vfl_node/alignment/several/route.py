"""Which list is where, step by step. Parties have their numbers in the job: 0 is the active party, 1 … k are the passive ones.

In a round each party's list leaves its owner and comes to each passive party, in the cyclic order behind its owner; the active
party's comes to 1, 2, …, k. So in each of the first k − 1 steps every passive party has one list of another passive party, and
in step t party t has the active party's list, too. Everything goes through the active party.
"""

from __future__ import annotations

from dataclasses import dataclass


def list_name(round_number: int, owner: int, hop: int) -> str:
    """The list of party ``owner`` in a round, after so many other parties have raised it."""
    return f"round {round_number} list {owner} hop {hop}"


def order_name(hop: int) -> str:
    """The shared order in round 2, after so many passive parties have raised it."""
    return f"round 2 hop {hop}"


@dataclass(frozen=True)
class Route:
    """The way of all lists.

    Attributes:
        passive: names of the passive parties, in the job's order.
    """

    passive: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of the last passive party, k; also the number of steps in a round."""
        return len(self.passive)

    @property
    def steps(self) -> range:
        """The steps of a round."""
        return range(1, self.last + 1)

    @property
    def numbered(self) -> list[tuple[int, str]]:
        """(number, name) of each passive party."""
        return list(enumerate(self.passive, 1))

    def due(self, party: int, step: int) -> list[int]:
        """Whose lists come to a passive party in a step; ``step − 1`` others have raised each."""
        behind = (party - 1 - step) % self.last + 1
        return [owner for owner, here in ((behind, behind != party), (0, step == party)) if here]

    def from_passive(self, party: int) -> list[str]:
        """The lists that the active party receives from a passive one."""
        rounds = {
            nth: [list_name(nth, party, 0)] + [list_name(nth, owner, t) for t in self.steps for owner in self.due(party, t)]
            for nth in (1, 3)
        }
        return [*rounds[1], order_name(party), *rounds[3]]

    def from_active(self, party: int) -> list[str]:
        """The lists that a passive party receives from the active one."""
        rounds = {nth: [list_name(nth, owner, t - 1) for t in self.steps for owner in self.due(party, t)] for nth in (1, 3)}
        orders = [order_name(party - 1)] + [order_name(self.last)] * (party != self.last)
        return [*rounds[1], *orders, *rounds[3], list_name(3, party, self.last)]
