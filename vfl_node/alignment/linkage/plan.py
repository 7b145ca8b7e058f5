"""What a linkage costs, and what everybody knows of one in shares before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vfl_node.alignment.costs import ListCost
from vfl_node.alignment.plan import AlignmentPlan
from vfl_node.job.alignment import Align
from vfl_node.job.keys import NO_KEYS, filter_bits
from vfl_node.settings.node import Obfuscation

BLOCK_PAIRS = 1 << 22
"""Pairs of a block of A's records, about: what is computed at a time."""

_PAIR_BYTES = 100  # of memory, of a block
_WORD = 64  # records, as many as have their bits in a word


@dataclass(frozen=True)
class LinkagePlan:
    """Its sizes.

    Attributes:
        rows: n_A and n_B.
        bits: of a filter.
        candidates: K.
        sigma: of the noise; 0 for none.
    """

    rows: tuple[int, int]
    bits: int
    candidates: int
    sigma: float

    @classmethod
    def from_align(cls, align: Align, rows: tuple[int, int]) -> LinkagePlan:
        """The plan by a job's section, and n_A and n_B."""
        assert align.noise is not None  # the job was checked
        bits = filter_bits(align.keys or NO_KEYS, align.encoding)
        return cls(rows, bits, align.candidates, align.noise.sigma or 0.0)

    @property
    def blocks(self) -> list[range]:
        """A's records that are computed with at a time, all alike but the last: whole words of bits."""
        step = max(_WORD, BLOCK_PAIRS // self.rows[1] // _WORD * _WORD)
        return [range(start, min(start + step, self.rows[0])) for start in range(0, self.rows[0], step)]

    @property
    def memory_bytes(self) -> int:
        """Memory of a data party, about; the coordinator deals to both at the same time, and takes it twice."""
        return _PAIR_BYTES * max(len(block) for block in self.blocks) * self.rows[1]


class SimilarityPlan(AlignmentPlan):
    """No element of a group is sent; filters are counted by the estimate (:mod:`vfl_node.estimate.linkage`)."""

    compared_with = "psi"

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentPlan.lists`: none, as no element of a group is sent."""
        return []

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """That of the active party's set."""
        return n_a

    def longest(self, sizes: Sequence[int]) -> int:
        """All of the active party's set."""
        return sizes[0]

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """As many rows as the active party has records."""
        yield sizes[0]

    def lengths_of_one(self, own: int, both: int | None) -> None:
        """Nothing, as only one of the parties has as many records as there are rows."""
