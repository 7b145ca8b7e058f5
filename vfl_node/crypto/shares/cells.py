"""Products with a matrix of bits that one party knows, which travels once and takes two bytes a bit.

A party's *candidates* are columns of 0 and 1 over all rows, such as "this row goes left under candidate j". They are its own,
and all others know is how many there are. The party opens them once, under masks of 16 bits. From then on two products cost
next to nothing on the wire, however many rows there are:

====================  ==============================================  ==================================================
function              what comes out                                  on the wire, for each matrix
====================  ==============================================  ==================================================
:func:`mask_cells`    the matrix under masks                          2 bytes a cell, and 8 for each slot and column
:func:`sum_cells`     Xᵀ·x of numbers that are open under masks        (1 + slots)·8 bytes a column and number from the dealer
:func:`pick_cells`    X·s modulo 2 of shared bits s                   a bit of s each; a bit a row and column from the dealer
====================  ==============================================  ==================================================

**Masks of 16 bits.** With X = E + R modulo 2¹⁶, of which the others have E, over the integers ::

    X = E + R̃ + 2¹⁶·[R = 1]·X        R̃ = −(−R mod 2¹⁶)

since X − R is negative exactly if R is not 0, but for R = 1 and X = 1. The *rare cells*, where R is 1, are one in 65,536.
The owner and the dealer know which they are, and nobody else. Each column has the same number of *slots* for them. The rare
cells are opened once more there, under masks of 64 bits, and slots that are not needed have a 0.

Masks that never wrap around, from 2 to 2¹⁶ − 1, would need no slots. But a cell with the largest or the smallest difference
would then be known for sure.

**Sums.** Of x, δ = x − Σ m_p is open, and M is the sum of the masks of all but the owner o. The dealer draws b_p with each of
the others for the slots, and tells o alone M[S] − Σ b_p, where S are the slots' rows. It deals C = R̃ᵀM + 2¹⁶·Σ R′·Σ b_p ::

    o: Xᵀ(δ + m_o) + 2¹⁶·Σ X_S·(M[S] − Σ b_p) + C_o          p: Eᵀm_p + 2¹⁶·Σ E′·b_p + C_p

The owner alone may get what is dealt: C with the others' shares would tell R.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.bits import Bits, pack_bits, unpack_bits
from vfl_node.crypto.shares.machine import ShareMachine, bytes_sent
from vfl_node.crypto.shares.masked import (
    MASK_BITS,
    CellMasks,
    Narrow,
    blocks_of,
    cell_words,
    join_cells,
    multiply_narrow,
    pack_rows,
    slots_of,
    split_words,
)
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.values import Opened, Shared

_SEED_WORDS = 4


class OwnCells(Protocol):
    """The candidates of one party, at that party."""

    def block(self, start: int, stop: int) -> Narrow:
        """Some rows of X, uint16[stop − start, W] of 0 and 1."""

    def sums(self, values: Ring) -> Ring:
        """Xᵀ·x: uint64[T, W] of uint64[T, n]."""

    def pick(self, selected: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """X·s modulo 2: uint8[K, n] of uint8[K, W]."""


@dataclass(frozen=True, eq=False)
class MaskedCells:
    """A matrix of bits that one party knows, and all others know under masks.

    Attributes:
        owner: place of that party.
        rows, width: n and W.
        own: the matrix, at its owner.
        masks: at the owner and the dealer.
        masked: E, uint16[n, W], at the others; empty elsewhere.
        low: E modulo 2 as :meth:`CellMasks.low_bits`, uint64[n, w], likewise.
        second: at the others E′, at the owner X_S, uint64[slots, W]; of no meaning at the dealer.
    """

    owner: int
    rows: int
    width: int
    own: OwnCells | None
    masks: CellMasks | None
    masked: Narrow
    low: Ring
    second: Ring


async def mask_cells(machine: ShareMachine, owner: int, rows: int, width: int, own: OwnCells | None = None) -> MaskedCells:
    """A matrix of bits that one party knows, ready for any number of sums and picks.

    Args:
        machine: of whoever runs it.
        owner: place of that party.
        rows, width: of the matrix, n and W.
        own: the matrix at its owner; None elsewhere.

    Raises:
        DataError: as :attr:`CellMasks.slots`.

    Cost: 2·n·W + 8·slots·W bytes to each other party, which keep 2.13·n·W; the owner draws masks twice.
    """
    (seed,) = await machine.run(_draw_seed(owner))
    masks = CellMasks(Randomness(seed.astype("<u8").tobytes()), rows, width) if len(seed) else None
    keeps = machine.place not in (owner, DEALER)
    masked = np.empty((rows if keeps else 0, width), np.uint16)
    low = np.empty((len(masked), words_of(width)), np.uint64)
    drawn = masks.blocks() if own and masks else None
    second = np.zeros((slots_of(rows), width), np.uint64)
    for start, stop in blocks_of(rows, width):
        shown = None
        if own and masks and drawn:
            cells = own.block(start, stop)
            shown = join_cells(cells - next(drawn)[1])
            here = (masks.slots >= start) & (masks.slots < stop)
            second[here] = cells[masks.slots[here] - start, np.nonzero(here)[1]]
        (words,) = await machine.run(_show(owner, (cell_words((stop - start) * width),), shown))
        if keeps:
            masked[start:stop] = split_words(words, (stop - start, width))
            low[start:stop] = pack_rows(masked[start:stop] & np.uint16(1))
    (opened,) = await machine.run(_show(owner, second.shape, second - masks.second if own and masks else None))
    return MaskedCells(owner, rows, width, own, masks, masked, low, opened if keeps else second)


def bytes_of_cells(rows: int, widths: Sequence[int]) -> Mapping[int, int]:
    """Place → bytes that it sends until the matrices of all parties are ready, without what frames add.

    Args:
        rows: of each matrix.
        widths: of the parties' matrices, in their order.
    """
    shown = []
    for owner, width in enumerate(widths):
        blocks = [cell_words((stop - start) * width) for start, stop in blocks_of(rows, width)]
        shown += [Opening((sum(blocks),), by=owner), Opening((slots_of(rows), width), by=owner)]
    return bytes_sent(shown, len(widths))


def _draw_seed(owner: int) -> Operation[Ring]:
    """A seed that the owner and the dealer have; elsewhere it is empty."""

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        return material.get("seed", np.zeros(0, np.uint64))

    return Operation(result, drawn=(Drawn("seed", (_SEED_WORDS,), owner=owner, lasting=True),))


def _show(owner: int, shape: Shape, shown: Ring | None) -> Operation[Ring]:
    """Numbers that the owner sends to everybody."""

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (np.zeros(shape, np.uint64) if shown is None else shown,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        return opened[0]

    return Operation(result, shown=(Opening(shape, by=owner),), shares=shares)


def sum_cells(cells: MaskedCells, value: Opened) -> Operation[Shared]:
    """Xᵀ·x in shares, [T, W]: for each candidate the sum of x over the rows where it is 1.

    Args:
        cells: X, [n, W].
        value: x, [T, n], as :func:`~vfl_node.crypto.shares.operations.mask_apart` opens it.

    Nothing is sent between parties. Cost: n·W·T products of 16 by 64 bits at the dealer and at each party but the owner, by the
    kernel (:mod:`vfl_node.crypto.kernels`).
    """
    owner, count = cells.owner, len(value.difference)
    slots, top = (slots_of(cells.rows), count, cells.width), np.uint64(1 << MASK_BITS)

    def correlate(values: Material) -> Material:
        assert cells.masks is not None
        masks = cells.masks
        others = [part for place, part in enumerate(value.each) if place != owner]
        mask: Ring = np.sum(others, axis=0, dtype=np.uint64)
        spread = mask[:, np.where(masks.slots >= 0, masks.slots, 0)].transpose(1, 0, 2)
        spread *= (masks.slots >= 0)[:, None].astype(np.uint64)
        sums = multiply_narrow(((start, np.uint16(0) - block) for start, block in masks.blocks()), mask, cells.width)
        rare = (masks.second[:, None] * values["slots"]).sum(0, dtype=np.uint64)
        return {"slots' rows": spread - values["slots"], "sums": top * rare - sums}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros((count, cells.width), np.uint64), value.fraction)
        if cells.own is not None:
            sums = cells.own.sums(value.difference + value.mask)
            factor = material["slots' rows"]
        else:
            blocks = ((start, cells.masked[start:stop]) for start, stop in blocks_of(cells.rows, cells.width))
            sums = multiply_narrow(blocks, value.mask, cells.width)
            factor = material["slots"]
        rare = (cells.second[:, None] * factor).sum(0, dtype=np.uint64)
        return Shared(sums + top * rare + material["sums"], value.fraction)

    return Operation(
        result,
        drawn=(Drawn("slots", slots, without=owner),),
        dealt={"slots' rows": slots, "sums": (count, cells.width)},
        correlated=correlate,
        receiver=owner,
        whole=frozenset({"slots' rows"}),
    )


def pick_cells(cells: MaskedCells, selected: Bits, count: int) -> Operation[Bits]:
    """X·s modulo 2 in shares: the candidate that each of K selections has chosen, for all rows.

    Args:
        cells: X, [n, W].
        selected: s, bits [K, W] as :func:`~vfl_node.crypto.shares.bits.pack_bits` packs them.
        count: K.

    Returns:
        Bits [K, n], packed likewise.
    """
    owner, shape, rows = cells.owner, (count, cells.width), (count, cells.rows)

    def correlate(values: Material) -> Material:
        assert cells.masks is not None
        chosen = pack_rows(unpack_bits(values["mask"], shape))
        picked = [kernel().multiply_bits(low, chosen) for _, low in cells.masks.low_bits()]
        return {"rows": pack_bits(np.concatenate(picked, axis=1))}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (selected.part if place == owner else selected.part ^ material["mask"],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Bits:
        if place == DEALER:
            return Bits(np.zeros(words_of(count * cells.rows), np.uint64))
        if cells.own is not None:
            made = cells.own.pick(unpack_bits(opened[0], shape))
        else:
            made = kernel().multiply_bits(cells.low, pack_rows(unpack_bits(material["mask"], shape)))
        return Bits(pack_bits(made) ^ material["rows"])

    words = (words_of(count * cells.width),)
    return Operation(
        result,
        drawn=(Drawn("mask", words, without=owner),),
        dealt={"rows": (words_of(rows[0] * rows[1]),)},
        correlated=correlate,
        shown=(Opening(words, to=owner, binary=True),),
        shares=shares,
        receiver=owner,
        binary=True,
    )
