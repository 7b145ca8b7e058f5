"""Products with masked cells are exact with any number of rare cells; what each place gets is uniform, and told to it alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.crypto.shares.together import Run, check_cost, spread, spread_bits, total, total_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares import cells as cells_module
from vfl_node.crypto.shares import masked
from vfl_node.crypto.shares.bits import unpack_bits
from vfl_node.crypto.shares.cells import mask_cells, pick_cells, sum_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.masked import CellMasks, cell_words, slots_of, split_words
from vfl_node.crypto.shares.operation import Drawn, Operation
from vfl_node.crypto.shares.operations import mask_apart
from vfl_node.crypto.shares.ring import matmul, pack_numbers, unpack_numbers
from vfl_node.errors import DataError

ROWS, WIDTHS, TIMES, PICKS = 200, (70, 3, 64, 1), 3, 5
RNG = np.random.default_rng(0)
X = [RNG.integers(0, 2, (ROWS, width)).astype(np.uint16) for width in WIDTHS]
VALUES = RNG.integers(-(1 << 62), 1 << 62, (TIMES, ROWS))
CHOSEN = [RNG.integers(0, 2, (PICKS, width)).astype(np.uint8) for width in WIDTHS]
FEW_BITS = 4
several = pytest.mark.parametrize("parties", [2, 3, 4])


class Whole:
    """All cells of a party as they are."""

    def __init__(self, cells: np.ndarray) -> None:
        self._cells = cells

    def block(self, start: int, stop: int) -> np.ndarray:
        return self._cells[start:stop]

    def sums(self, values: np.ndarray) -> np.ndarray:
        return matmul(values, self._cells.astype(np.uint64))

    def pick(self, selected: np.ndarray) -> np.ndarray:
        return (selected.astype(np.int64) @ self._cells.T & 1).astype(np.uint8)


async def program(machine: ShareMachine) -> Any:
    """Sums and picks of the cells of all parties; each matrix is used twice."""
    found = [
        await mask_cells(machine, place, ROWS, WIDTHS[place], Whole(X[place]) if machine.place == place else None)
        for place in range(machine.parties)
    ]
    results = []
    for turn in range(2):
        (value,) = await machine.run(mask_apart(spread(machine, VALUES + turn), machine.parties))
        sums = await machine.run(*(sum_cells(each, value) for each in found))
        picks = (pick_cells(each, spread_bits(machine, CHOSEN[place] ^ turn), PICKS) for place, each in enumerate(found))
        picked = await machine.run(*picks)
        results.append(([of.part for of in sums], [of.part for of in picked]))
    return results


def right(run: Run, parties: int) -> list[bool]:
    """Whether all sums and all picks are right."""
    sums, picks = [], []
    for turn in range(2):
        for place in range(parties):
            found = total(of[turn][0][place] for of in run.results)
            sums.append(
                np.array_equal(found.view(np.uint64), matmul((VALUES + turn).view(np.uint64), X[place].astype(np.uint64)))
            )
            picked = unpack_bits(total_bits(of[turn][1][place] for of in run.results), (PICKS, ROWS))
            picks.append(np.array_equal(picked, (CHOSEN[place] ^ turn).astype(int) @ X[place].T % 2))
    return [all(sums), all(picks)]


@pytest.fixture
def many_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only :data:`FEW_BITS` low bits of a mask are drawn, the others are 0: one cell in 16 is rare."""
    draw = CellMasks._draw

    def few(masks: CellMasks) -> Iterator[Any]:
        return ((start, block & np.uint16((1 << FEW_BITS) - 1)) for start, block in draw(masks))

    monkeypatch.setattr(CellMasks, "_draw", few)
    for module in (masked, cells_module):
        monkeypatch.setattr(module, "slots_of", lambda rows: rows // 4)


@several
def test_sums_and_picks_are_exact_and_cost_what_is_counted(parties: int) -> None:
    run = Run(program, parties)
    assert right(run, parties) == [True, True]
    check_cost(run, program, parties)


@several
def test_many_rare_cells_in_blocks_and_without_their_slots(
    parties: int, many_rare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked, "_CELLS_AT_ONCE", 64 * 30)
    monkeypatch.setattr(masked, "_KEPT_CELLS", ROWS * 3)  # wider ones are drawn again each time
    assert right(Run(program, parties), parties) == [True, True]
    slots = CellMasks.slots.func  # type: ignore[attr-defined]
    without = property(lambda masks: np.full_like(slots(masks), -1))
    monkeypatch.setattr(CellMasks, "slots", without)
    assert right(Run(program, parties), parties) == [False, True]


def test_rare_cells_are_where_masks_are_1(many_rare: None) -> None:
    masks = CellMasks(Randomness(bytes(32)), ROWS, 9)
    drawn = np.concatenate([block for _, block in masks.blocks()])
    for column, rows in enumerate(masks.slots.T):
        np.testing.assert_array_equal(np.sort(rows[rows >= 0]), np.flatnonzero(drawn[:, column] == 1))
    assert ROWS * 9 / 16 / 2 < (masks.slots >= 0).sum() < ROWS * 9 / 16 * 2


def test_more_rare_cells_than_slots_end_the_training(many_rare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked, "slots_of", lambda rows: 2)
    with pytest.raises(DataError) as caught:
        Run(program)
    assert caught.value.code == "E_CHANCE"


@pytest.mark.parametrize("rows", [1, 1000, 65_536, 1_000_000, 1 << 22])
def test_slots_suffice_but_once_in_a_hundred_thousand_million(rows: int) -> None:
    """The exact tail of the binomial distribution."""
    from scipy.stats import binom

    assert binom.sf(slots_of(rows), rows, 2.0**-16) < 1e-11


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (8, 4)])
def test_four_cells_travel_in_a_word(shape: tuple[int, int]) -> None:
    cells = RNG.integers(0, 1 << 16, shape).astype(np.uint16)
    words = masked.join_cells(cells)
    assert len(words) == masked.cell_words(cells.size) == -(-cells.size // 4)
    np.testing.assert_array_equal(masked.split_words(words, shape), cells)


async def constant(machine: ShareMachine, bit: int) -> None:
    """Cells that are all 0 or all 1, values that are all 0, and choices that are all 0."""
    own = Whole(np.full((2000, 64), bit, np.uint16)) if machine.place == 0 else None
    cells = await mask_cells(machine, 0, 2000, 64, own)
    (value,) = await machine.run(mask_apart(spread(machine, np.zeros((2, 2000))), machine.parties))
    await machine.run(sum_cells(cells, value))
    await machine.run(pick_cells(cells, spread_bits(machine, np.zeros((64, 64))), 64))


@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("parties", [2, 3])
def test_what_each_place_gets_is_uniform_whatever_the_cells_are(parties: int, bit: int) -> None:
    """χ² of the top and the low four bits of all that is opened to a place: up to 24 p-values, each below 1e-6 by chance."""
    run, judged = Run(lambda machine: constant(machine, bit), parties), 0
    for opened in (each for seen in run.table.seen.values() for each in seen):
        if opened.shape == (cell_words(2000 * 64),):  # masked cells
            opened = split_words(opened, (2000, 64))
        top = opened.dtype.type(8 * opened.itemsize - 4)
        for numbers in (opened & opened.dtype.type(15), opened >> top):
            assert chisquare(np.bincount(numbers.ravel().astype(int), minlength=16)).pvalue > 1e-6
            judged += 1
    assert judged == 2 * (3 * (parties - 1) + 2)


def test_masks_that_never_wrap_would_tell_some_cells() -> None:
    """Here of 8 bits, from 2 to 255: two differences are of one bit alone. Of masks from all numbers none is."""
    cells = RNG.integers(0, 2, 200_000)
    for lowest, telling in ((2, [1, 255]), (0, [])):
        differences = (cells - RNG.integers(lowest, 256, len(cells))) % 256
        told = [of for of in range(256) if len(set(cells[differences == of].tolist())) == 1]
        assert told == telling


def given_to(place: int, receiver: int) -> Any:
    """What the party at ``place`` has of numbers that the dealer deals to one party whole, and in shares."""

    def result(at: int, opened: Any, material: Any) -> Any:
        return {name: values.copy() for name, values in material.items()}

    dealt = {"told": (3,), "shared": (3,)}
    operation = Operation(
        result,
        drawn=(Drawn("drawn", (3,)),),
        dealt=dealt,
        correlated=lambda values: {"told": np.arange(3, dtype=np.uint64), "shared": np.arange(3, dtype=np.uint64)},
        receiver=receiver,
        whole=frozenset({"told"}),
    )

    async def run(machine: ShareMachine) -> Any:
        return (await machine.run(operation))[0]

    return Run(run, 3).results[place]


@pytest.mark.parametrize("receiver", range(3))
def test_what_is_dealt_whole_reaches_one_party_alone(receiver: int) -> None:
    each = [given_to(place, receiver) for place in range(3)]
    assert [("told" in of) for of in each] == [place == receiver for place in range(3)]
    np.testing.assert_array_equal(each[receiver]["told"], np.arange(3))
    np.testing.assert_array_equal(total(of["shared"] for of in each), np.arange(3))
    assert (each[receiver]["shared"] > 1 << 40).all()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_numbers_of_32_bits_are_dealt_two_in_a_word(count: int) -> None:
    """The higher halves of what parties get are 0, and the sum is right modulo 2³²."""
    numbers = RNG.integers(0, 1 << 32, count).astype(np.uint64)
    np.testing.assert_array_equal(unpack_numbers(pack_numbers(numbers + np.uint64(1 << 40), 32), count, 32), numbers)
    assert len(pack_numbers(numbers, 32)) == (count + 1) // 2

    def result(at: int, opened: Any, material: Any) -> Any:
        return material.get("numbers", np.zeros(count, np.uint64))

    operation = Operation(result, dealt={"numbers": (count,)}, correlated=lambda values: {"numbers": numbers}, dealt_bits=32)

    async def run(machine: ShareMachine) -> Any:
        return (await machine.run(operation))[0]

    of = Run(run, 2)
    np.testing.assert_array_equal(total(of.results).view(np.uint64) & np.uint64(0xFFFFFFFF), numbers)
    assert sorted(of.queues.bytes.values()) == [0, 8 * ((count + 1) // 2)]
    check_cost(of, run)
