"""What a linkage costs: filters made and sent, and n_A·n_B of them compared by the coordinator.

The rates were measured (docs/reference/benchmarks/index.md, 2 cores of a small server) and are not measured again here: they
hardly depend on anything but the processor's vector unit. All parties are taken to have a machine like this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vfl_node.job import Align
from vfl_node.job.keys import NO_KEYS, filter_bits

COMPARE_S = 5.3e-12
"""CPU seconds to compare a byte of two filters: 109 s for 100,000 · 100,000 filters of 2 kB."""

ENCODE_S = 1e-9
"""CPU seconds a bit of a filter."""

PAIR_S = 1.4e-6
"""CPU seconds to draw the noise and order of a candidate; done for either party."""

PLACE_BYTES = 4
"""A candidate at the passive party, and a similarity at the active one."""

FOUND_BYTES = 8
"""A candidate and its distance at the coordinator."""


@dataclass(frozen=True)
class LinkageCost:
    """What it takes.

    Attributes:
        filter_bytes: of a record.
        pairs: of filters that are compared.
        encode_s: CPU seconds of the slower data party.
        search_s: CPU seconds of the coordinator, on as many cores as there are.
        draw_s: CPU seconds of the coordinator, on one core.
        sent: filters, bytes: the active party's, the passive party's.
        received: bytes that either of them gets.
    """

    filter_bytes: int
    pairs: int
    encode_s: float
    search_s: float
    draw_s: float
    sent: tuple[int, int]
    received: int

    @property
    def coordinator_bytes(self) -> int:
        """On the coordinator's wire."""
        return sum(self.sent) + 2 * self.received

    @property
    def coordinator_disk_bytes(self) -> int:
        """Filters and what was found."""
        return sum(self.sent) + FOUND_BYTES // PLACE_BYTES * self.received


def linkage_cost(align: Align, sizes: Sequence[int]) -> LinkageCost:
    """What a linkage of n_A and n_B records takes."""
    active, passive = sizes
    bits = filter_bits(align.keys or NO_KEYS, align.encoding)
    width, candidates = bits // 8, active * align.candidates
    return LinkageCost(
        filter_bytes=width,
        pairs=active * passive,
        encode_s=max(sizes) * bits * ENCODE_S,
        search_s=active * passive * width * COMPARE_S,
        draw_s=2 * candidates * PAIR_S,
        sent=(active * width, passive * width),
        received=candidates * PLACE_BYTES,
    )


def linkage_notes(cost: LinkageCost, cores: int, coordinator: str) -> Iterator[str]:
    """What the reader of the table should know, without a capital and a full stop."""
    with_cores = f"{cores} {'core' if cores == 1 else 'cores'} of a machine like this"
    yield (
        f"{coordinator} compares {cost.pairs:,} pairs of filters of {cost.filter_bytes:,} bytes: {cost.search_s:,.1f} s of CPU "
        f"time ({with_cores}); {cost.coordinator_bytes / 1e6:,.1f} MB go over its wire, and its disk has "
        f"{cost.coordinator_disk_bytes / 1e6:,.1f} MB until the job ends"
    )
    yield "rates are those of docs/reference/benchmarks/index.md; reading the tables and training come on top"
