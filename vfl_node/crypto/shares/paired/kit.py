"""What two parties train with where no dealer helps them (:class:`vfl_node.crypto.shares.kits.Kit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.shares.kits import Curved, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import Operation, Shape
from vfl_node.crypto.shares.paired import counts, curves, operations
from vfl_node.crypto.shares.paired.blocks import LARGEST_BLOCK
from vfl_node.crypto.shares.paired.clamps import UNIT, clamp
from vfl_node.crypto.shares.paired.tools import BlockMatrix, PairTools
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sines import Series
from vfl_node.crypto.shares.tallies import Level
from vfl_node.crypto.shares.values import Shared


@dataclass(frozen=True, eq=False)
class OwnBits:
    """Which rows a party owns, as it alone knows it.

    Attributes:
        bits: uint64[n, 1] of this party; None where nobody computes.
        rows: n.
        whole: for each place whether that party owns every row, as everybody knows.
    """

    bits: Ring | None
    rows: int
    whole: tuple[bool, bool]

    def __getitem__(self, index: slice | NDArray[np.int64]) -> OwnBits:
        bits = None if self.bits is None else self.bits[index]
        return OwnBits(bits, len(range(self.rows)[index]) if isinstance(index, slice) else len(index), self.whole)


class PairKit(Kit):
    """As :class:`~vfl_node.crypto.shares.kits.Kit`.

    Args:
        tools: of a party; None where nobody computes.
    """

    told_apart = counts.MOST - UNIT / 2

    def __init__(self, tools: PairTools | None = None) -> None:
        self._tools = tools

    @override
    def known_product(self, matrix: BlockMatrix, value: Shared) -> Operation[Shared]:
        return operations.known_product(matrix, value)

    @override
    def truncate(self, value: Shared, bits: int) -> Operation[Shared]:
        return operations.truncate(value, bits)

    async def bend(self, machine: ShareMachine, value: Shared, series: Series, curved: Curved) -> Shared:
        """As the base: two rounds."""
        return await curves.bend(machine, value, series, curved)

    async def gate(self, machine: ShareMachine, value: Shared, owned: OwnBits) -> Sequence[Shared]:
        """As the base: for each party's columns the other one's bits, times both shares. One round, or none.

        A party that owns every row has nothing to hide, and nothing is opened for it.
        """
        gating = [place for place in (0, 1) if not owned.whole[place]]
        bits = None if owned.bits is None else np.broadcast_to(owned.bits, value.shape)
        made = await machine.run(*(operations.choose(place, bits, value.part, value.shape) for place in gating))
        gated = {0: value, 1: value}
        for place, part in zip(gating, made, strict=True):
            own = bits * value.part if bits is not None and machine.place == place else np.uint64(0)
            gated[1 - place] = Shared(part + own, value.fraction)  # for the columns of the party that has not these bits
        return [gated[0], gated[1]]

    def draw_noise(self, shape: Shape, deviation: float | Sequence[float], fraction: int) -> Operation[Shared]:
        """As the base: each party draws noise of the full width."""
        return operations.draw_noise(shape, deviation, fraction)

    async def multiply(self, machine: ShareMachine, left: Shared, right: Shared) -> Shared:
        """As the base: a round."""
        return await operations.multiply(machine, left, right)

    async def pick_noise(self, machine: ShareMachine, deviations: Sequence[float], chosen: Sequence[int]) -> Shared:
        """As the base: each party draws noise of every deviation, and the active one chooses of the other's by transfers."""
        shape = len(chosen), len(deviations)
        (drawn,) = await machine.run(operations.draw_apart(shape, deviations))
        ones = np.eye(len(deviations), dtype=np.uint64)[list(chosen)]
        (picked,) = await machine.run(operations.choose(0, ones, drawn, shape))
        own = ones * drawn if machine.place == 0 else np.uint64(0)
        return Shared((picked + own).sum(axis=1, dtype=np.uint64), 0)

    def levels(self, bins: int) -> Sequence[Level]:
        """As the base: scores beyond ±16 are in the bins there."""
        return (counts.fine(bins),)

    def rows_counted(self, bins: int, outputs: int) -> int:
        """As the base: as many as the largest block has, so that they are whole blocks."""
        return LARGEST_BLOCK

    async def settle(self, machine: ShareMachine, found: Shared, *, labelled: bool) -> Shared:
        """As the base: two rounds with labels."""
        return await counts.separate(machine, found) if labelled else found

    async def count(
        self, machine: ShareMachine, scores: Shared, labels: Ring | None, owned: OwnBits, bins: int
    ) -> Sequence[Shared]:
        """As the base: scores beyond ±16 count there; two rounds for each :data:`~.counts.ROWS_AT_ONCE` rows after that."""
        own = None if owned.bits is None else owned.bits[:, 0]
        scores = await clamp(machine, scores, -counts.MOST, counts.MOST)
        pieces = []
        for first in range(0, len(scores.part), counts.ROWS_AT_ONCE):
            rows = slice(first, first + counts.ROWS_AT_ONCE)
            of_labels, of_own = (None if column is None else column[rows] for column in (labels, own))
            pieces.append(await counts.count(machine, self._tools, scores[rows], of_labels, of_own, bins))
        return [sum(parts[1:], parts[0]) for parts in zip(*pieces, strict=True)]
