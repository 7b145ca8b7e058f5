"""A linkage whose coordinator only deals: the program that both data parties and the dealer run.

====  ==========================================================================================  =========================
step  what                                                                                        opened to
====  ==========================================================================================  =========================
1     distances of all pairs, and which K are the nearest (:mod:`vfl_node.crypto.shares.nearest`)  nobody, and B: which ones
2     B alone: its candidates in an order of its own, how often each of its records is used       –
3     the distances of the candidates; A does not hear which records they are of                  nobody
4     their sum and the sum of their squares: μ0 and σ0                                           A and B
5     each of them with noise, of deviation σ·σ0                                                  A
====  ==========================================================================================  =========================

The dealer draws the noise from a secret that it keeps: the same in every job over the same two sets on the same terms. It draws
it for σ0 = 1, since it does not know σ0; the parties multiply. So equal records have different noise. Sums of two sets that
differ in one record would tell its distances exactly, and so would those under two σ: two parties have one linkage in shares
only, which they may repeat.

Cost: as step 1; 2 bytes a pair (3 from 2¹⁵ bits on) from A and 8 from the dealer in step 3; 6 µs of the dealer and some 40
bytes from each for each candidate. Memory: about 100 bytes a pair of a block.

Leaks: see ``learnt.py``; to the dealer nothing, as it gets no number that depends on a filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.alignment.linkage.similarity import DistanceScale
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.shares.bits import reveal_bits, rows_of
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.nearest import distances, lift, nearest, pick
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operation import DEALER
from vfl_node.crypto.shares.operations import mask_value, product, reveal
from vfl_node.crypto.shares.ring import Ring, decode
from vfl_node.crypto.shares.sizes import ring_bits
from vfl_node.crypto.shares.values import Shared, stack_rows

NOISE_FRACTION, SCALE_FRACTION = 20, 10
"""Fractional bits of the noise, and of σ0: with σ up to 1,000 and distances up to 2¹⁹ all sums are below 2⁶³."""


class Choosing(Protocol):
    """B's choice of an order for its candidates."""

    def places(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """bool[n, m], candidates of the next n of A's records → int[n, K], all of them, and NONE behind."""

    def accept(self) -> None:
        """Called once all candidates are found, before anything of them is opened; raises what ends the linkage."""


@dataclass(frozen=True)
class SharedCandidates:
    """What a data party has of a linkage.

    Attributes:
        scale: μ0 and σ0; None where there is no candidate, and at the dealer.
        found: bool[n_A, K], where there is a candidate.
        places: int[n_A, K], B's candidates; None elsewhere.
        distances: float64[n_A, K], with noise, of no meaning where there is no candidate; at A alone.
    """

    scale: DistanceScale | None
    found: NDArray[np.bool_]
    places: NDArray[np.intp] | None
    distances: NDArray[np.float64]


async def find_candidates(
    machine: ShareMachine,
    plan: LinkagePlan,
    own: Rows | None = None,
    choosing: Choosing | None = None,
    noise: Randomness | None = None,
    check: Callable[[DistanceScale | None], None] = lambda scale: None,
    end_block: Callable[[], None] = lambda: None,
) -> SharedCandidates:
    """The linkage, as one of those that run it sees it.

    Args:
        machine: of A, place 0, of B, place 1, or of the dealer.
        plan: as everybody knows it.
        own: uint8[n, bits / 8], this party's filters; None at the dealer.
        choosing: B's; None elsewhere.
        noise: the dealer's secret for this linkage; None elsewhere. Nothing of it is consumed.
        check: of a data party, called with μ0 and σ0 before A hears a distance; may raise.
        end_block: called after each of the plan's blocks.
    """
    blocks = []
    for rows in plan.blocks:
        machine.begin(f"records {rows.start} to {rows.stop}")
        blocks.append(await _block(machine, plan, rows, own, choosing))
        end_block()
    machine.begin("similarities")
    whole, found = stack_rows([block[0] for block in blocks]), np.concatenate([block[1] for block in blocks])
    places = np.concatenate([block[2] for block in blocks if block[2] is not None]) if choosing else None
    if choosing:
        choosing.accept()
    (open_,) = await machine.run(mask_value(whole))
    (squares,) = await machine.run(product(open_, open_, "numbers"))
    (sums,) = await machine.run(reveal(_sums(whole, squares)))
    scale = None
    if machine.place != DEALER:
        scale = DistanceScale.from_sums(int(found.sum()), int(sums[0]), int(sums[1]))
        check(scale)
    blurred = whole.times(1 << SCALE_FRACTION + NOISE_FRACTION, SCALE_FRACTION + NOISE_FRACTION)
    if plan.sigma:
        factor = round(scale.deviation * (1 << SCALE_FRACTION)) if scale else 1
        (drawn,) = await machine.run(draw_noise(whole.shape, plan.sigma, NOISE_FRACTION, noise))
        blurred = blurred - drawn.times(factor, SCALE_FRACTION)
    (heard,) = await machine.run(reveal(blurred, to=0))
    return SharedCandidates(scale, found, places, decode(heard, SCALE_FRACTION + NOISE_FRACTION))


async def _block(
    machine: ShareMachine, plan: LinkagePlan, rows: range, own: Rows | None, choosing: Choosing | None
) -> tuple[Shared, NDArray[np.bool_], NDArray[np.intp] | None]:
    """Distances [n, K] of the candidates of some of A's records, in shares, where there are any, and B's places."""
    modulus, places = ring_bits(plan.bits), None
    if own is not None and machine.place == 0:
        own = own[rows.start : rows.stop]
    common, apart = await distances(machine, (len(rows), plan.rows[1]), plan.bits, own)
    chosen = await nearest(machine, common, apart, plan.bits, plan.candidates)
    (which,) = await machine.run(reveal_bits(chosen, 1))
    if choosing:
        places = choosing.places(rows_of(which, len(rows)))
    ((some, there),) = await machine.run(pick(apart, modulus, plan.candidates, places))
    (whole,) = await machine.run(lift(some, modulus))
    return whole, there.astype(np.bool_), places


def _sums(*values: Shared) -> Shared:
    """The sum of each."""
    total: Ring = np.array([value.part.sum(dtype=np.uint64) for value in values], np.uint64)
    return Shared(total, 0)
