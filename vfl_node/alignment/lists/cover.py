"""Identifiers that stand for no record: padding hides how many records a party has, dummies hide how many are shared.

**Padding** fills a set with random identifiers up to a public size (:mod:`vfl_node.alignment.sizes`). It hides n, never |I|.
A random identifier has no partner, so in a union m = n_a + n_p − |I| still holds for the announced sizes. The same is true of
any identifiers that only one party draws.

**Dummies** therefore come from two public pools of D identifiers each, one named after each party. From its own pool a party
takes a secret number k of 0 … D, and D − k random identifiers in place of the rest. From the other pool it takes all. So every
set grows by exactly 2D, and the parties see an intersection of |I| + k_a + k_p. Each party knows its own k, so D + 1 sizes
remain possible for it.

k is the same in every job over the same two sets, because the mean of many draws would reveal it. It is drawn anew when a set
changes, because otherwise the change of |I| would show exactly. Each draw narrows the window of an |I| that hardly changes:
after c changes 2·D/(c + 2) of D sizes are left on average (c = 18: a tenth). That is why the owner limits changes
(``budgets.changes`` of its policy). The union then has rows that neither party owns.

No canonical identifier begins as these do, so no record can be equal to one.
"""

from __future__ import annotations

from itertools import chain

from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align
from vfl_node.roles import OTHER_ROLE, Role
from vfl_node.session.memory import Memory


def shared_dummies(sets: bytes, terms: Align, memory: Memory) -> int:
    """k: how many identifiers of its own pool a party takes, uniform in 0 … D in either role. The peer must not know it.

    Args:
        sets: stands for the records of both.
        terms: the job's ``dummies``, D.
        memory: what this node remembers of the peer.
    """
    return memory.secret.derive(f"dummies {sets.hex()}").draw_below(terms.dummies + 1) if terms.dummies else 0


def add_cover(ids: Identifiers, sets: bytes, terms: Align, role: Role, secret: Randomness, memory: Memory) -> Identifiers:
    """``ids``, and behind them those that stand for no record.

    Args:
        ids: this party's own.
        sets: stands for the records of both.
        terms: the job's ``padding`` and ``dummies``.
        role: this party's.
        secret: of these sets; gives the random identifiers.
        memory: what this node remembers of the peer.
    """
    count = announced_count(len(ids), terms, role) - len(ids)
    if not count:
        return ids
    k, other = shared_dummies(sets, terms, memory), OTHER_ROLE[role]
    pooled = chain((_pool_id(role, i) for i in range(k)), (_pool_id(other, i) for i in range(terms.dummies)))
    random = secret.derive("identifiers of no record")
    drawn = (b"\0drawn:" + random.bytes(32) for _ in range(count - k - terms.dummies))
    return ids + Identifiers.from_items(chain(pooled, drawn))


def _pool_id(pool: str, number: int) -> bytes:
    return f"\0{pool}:{number}".encode()
