"""Identifiers that stand for no record: padding hides how many a party has, dummies how many are shared.

**Padding** fills a set with random identifiers up to a public bucket. It hides n, never |I|:
a random identifier has no partner, so in a union m = n_a + n_p − |I| still holds for the
announced sizes. The same is true of any dummies that one party draws for itself.

**Dummies** therefore come from two public pools of D identifiers each. Of the pool named
after it a party takes a secret number k of 0 … D, and D − k random ones in their place; of the
other pool it takes all. So every set grows by exactly 2D, and the parties see an
intersection of |I| + k_a + k_p. Each knows its own k and is left with a window of D + 1
sizes. k is the same in every job over the same identifiers with the same peer: the mean
of many draws would tell it. The union then has rows that neither party owns.

No canonical identifier begins as these do, so no record can meet one.
"""

from __future__ import annotations

from vfl_node.alignment.alignment import Memory
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align
from vfl_node.settings import Role


def public_bucket(count: int, per_doubling: int = 1) -> int:
    """The smallest size of the public ladder that is at least ``count``: ⌈2^(j/per_doubling)⌉ for some j.

    With one bucket a doubling the powers of two, at most twice ``count``; with four at most 1.19 times.
    """
    if count <= 1:
        return count
    doubling = (count - 1).bit_length()  # 2^(doubling−1) < count ≤ 2^doubling
    steps = range((doubling - 1) * per_doubling + 1, doubling * per_doubling)
    return next((size for j in steps if (size := _ceil_root(j, per_doubling)) >= count), 2**doubling)


def pads(terms: Align, role: Role) -> bool:
    """Whether a party with this role pads: both do, but for the passive one of an asymmetric intersection."""
    return terms.padding > 0 and (role == "active" or terms.protocol != "apsi")


def shared_dummies(ids: Identifiers, terms: Align, memory: Memory) -> int:
    """k: how many identifiers of its own pool a party takes, uniform in 0 … D in either role; the peer must not know it."""
    return memory.secret.derive(f"dummies {terms.dummies} {ids.digest().hex()}").below(terms.dummies + 1)


def covered(ids: Identifiers, terms: Align, role: Role, secret: Randomness, memory: Memory) -> Identifiers:
    """``ids``, and behind them those that stand for no record.

    Args:
        ids: this party's own.
        terms: the job's ``padding`` and ``dummies``.
        role: this party's.
        secret: of this job; gives the random identifiers.
        memory: what this node remembers of the peer.
    """
    more: list[bytes] = []
    if terms.dummies:
        other = "passive" if role == "active" else "active"
        k = shared_dummies(ids, terms, memory)
        more += [_pooled(role, i) for i in range(k)]
        more += [_pooled(other, i) for i in range(terms.dummies)]
    announced = len(ids) + 2 * terms.dummies
    if pads(terms, role):
        announced = public_bucket(announced, terms.padding)
    drawn = secret.derive("identifiers of no record").bytes(32 * (announced - len(ids) - len(more)))
    more += [b"\0drawn:" + drawn[i : i + 32] for i in range(0, len(drawn), 32)]
    return ids + Identifiers.of(more) if more else ids


def _pooled(pool: str, number: int) -> bytes:
    return f"\0{pool}:{number}".encode()


def _ceil_root(j: int, k: int) -> int:
    """⌈2^(j/k)⌉, exactly."""
    size = int(2 ** (j / k))
    while size**k < 2**j:
        size += 1
    while (size - 1) ** k >= 2**j:
        size -= 1
    return size
