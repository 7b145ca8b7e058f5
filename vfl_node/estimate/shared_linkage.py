"""What a linkage in shares costs: what each operation sends depends on shapes alone, so bytes and rounds are exact.

The program is :mod:`vfl_node.alignment.linkage.comparison`; a test holds these counts to it. Seconds are a measured rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.alignment.linkage.policy import is_too_large
from vfl_node.crypto.shares.sizes import NUMBER_BYTES as BYTES
from vfl_node.crypto.shares.sizes import block_bits, ring_bits, words_of
from vfl_node.job import Align

PAIR_S = 5e-7
"""CPU seconds a pair at each data party, and at the coordinator for each of them (docs/explanations: linkage-in-shares.md)."""

_PLACE_BYTES = 4


@dataclass
class SharedCost:
    """What it takes.

    Attributes:
        plan: of the linkage.
        sent: bytes that each data party sends the other, the active one first.
        dealt: bytes that the coordinator sends to both together; hardly more than half of it to either.
        rounds: of messages that are awaited.
    """

    plan: LinkagePlan
    sent: list[int] = field(default_factory=lambda: [0, 0])
    dealt: int = 0
    rounds: int = 0

    @property
    def pairs(self) -> int:
        """Pairs of records."""
        return self.plan.rows[0] * self.plan.rows[1]

    @property
    def wire_bytes(self) -> int:
        """On the busiest wire."""
        return max(sum(self.sent) + self.dealt // 2, self.dealt)

    def add_both(self, count: int) -> None:
        """Each data party sends so many bytes."""
        self.sent = [sent + count for sent in self.sent]


def shared_cost(align: Align, sizes: Sequence[int]) -> SharedCost:
    """What a linkage in shares of n_A and n_B records takes."""
    active, passive = sizes
    plan = LinkagePlan.from_align(align, (active, passive))
    cost = SharedCost(plan)
    for block in plan.blocks:
        _add_block(cost, len(block))
    slots = active * plan.candidates
    cost.add_both(BYTES * slots + 2 * BYTES)
    cost.sent[1] += BYTES * slots
    cost.dealt += BYTES * slots * (2 if plan.sigma else 1)
    cost.rounds += 3
    return cost


def _add_block(cost: SharedCost, rows: int) -> None:
    """Some of the active party's records; the names are those of the program."""
    plan = cost.plan
    others, bits, slots = plan.rows[1], plan.bits, rows * plan.candidates
    digits, number = bits.bit_length(), -(-ring_bits(bits) // 8)
    line = BYTES * words_of(rows)  # a bit of each row
    plane = line * others
    cost.sent[0] += number * rows * bits + number * rows * others + plane
    cost.sent[1] += number * others * bits + _PLACE_BYTES * slots
    cost.add_both(2 * -(-digits // 8) * rows * others + (2 * (digits - 1) + max(0, digits - 2)) * plane + number * slots)
    cost.dealt += 2 * BYTES * rows * others + 2 * BYTES * slots
    cost.dealt += (2 * digits + 2 * max(0, digits - 2) + digits - 1) * plane
    cost.rounds += -(-bits // block_bits(bits, (rows, others))) + 2 * digits + max(0, (digits - 1).bit_length() - 1) + 3
    ties, width = (others - 1).bit_length(), others.bit_length() + 1
    for weight in range(digits + ties):
        ones = others if weight >= ties else sum(not place >> weight & 1 for place in range(others))
        ands, rounds = _sum(ones, width)
        cost.add_both((plane if weight < ties else 2 * plane) + (ands + width) * line)
        cost.dealt += (plane if weight < ties else 3 * plane) + (ands + width) * line
        cost.rounds += (2 if weight < ties else 3) + rounds


def _sum(ones: int, width: int) -> tuple[int, int]:
    """How many ANDs and rounds a sum of bits takes (:func:`vfl_node.crypto.shares.bits.add_bits`)."""
    left, ands, rounds = [ones + 2, *[2] * (width - 1)], 0, 0
    while True:
        left[-1] = 1
        lowest = next((weight for weight, count in enumerate(left) if count > 1), None)
        if lowest is None:
            return ands, rounds
        adders = [1 if count == 2 and weight == lowest else count // 3 for weight, count in enumerate(left[:-1])]
        for weight, count in enumerate(adders):
            left[weight] -= 1 if left[weight] == 2 and count else 2 * count
        for weight, count in enumerate(adders):
            left[weight + 1] += count
        ands, rounds = ands + sum(adders), rounds + 1


def shared_notes(cost: SharedCost, coordinator: str, rtt_ms: float) -> Iterator[str]:
    """What the reader of the table should know, without a capital and a full stop."""
    a, b = (sent / 1e6 for sent in cost.sent)
    yield (
        f"{cost.pairs:,} pairs of filters of {cost.plan.bits:,} bits are compared in shares: the data parties send each other "
        f"{a:,.1f} and {b:,.1f} MB in {cost.rounds:,} rounds, which take {cost.rounds * rtt_ms / 2e3:,.0f} s at {rtt_ms:g} ms, "
        f"and {coordinator} sends them {cost.dealt / 1e6:,.1f} MB"
    )
    if is_too_large(cost.plan):
        yield "the job would be refused, as it is too large for align.comparison: shares"
    yield "rates were measured; reading the tables and training come on top"
