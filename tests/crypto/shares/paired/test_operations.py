"""What two parties compute without a dealer is what the numbers give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled
from tests.crypto.shares.paired.pairs import PairRun
from tests.crypto.shares.together import shared, spread, total
from vfl_node.crypto.shares.kits import Curved
from vfl_node.crypto.shares.paired import counts as counts_module
from vfl_node.crypto.shares.paired.clamps import UNIT, clamp
from vfl_node.crypto.shares.paired.operations import choose
from vfl_node.crypto.shares.paired.tools import describe_columns, swap_columns
from vfl_node.crypto.shares.ring import encode
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import Shared

pytestmark = compiled
GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("receiver", [0, 1])
def test_a_bit_chooses_a_number(receiver: int) -> None:
    numbers = GENERATOR.integers(0, 1 << 64, 300, dtype=np.uint64)
    bits = GENERATOR.integers(0, 2, 300).astype(np.uint64)

    async def program(machine: Any, kit: Any) -> Any:
        mine = machine.place == receiver
        machine.begin("one")
        (part,) = await machine.run(choose(receiver, bits if mine else None, None if mine else numbers, (300,)))
        return part

    assert np.array_equal(total(PairRun(program).results).view(np.uint64), bits * numbers)


def test_truncated_numbers_are_right_to_a_unit_and_on_average() -> None:
    numbers = GENERATOR.integers(-(1 << 62), 1 << 62, 100_000)
    numbers[:6] = [-(1 << 62), (1 << 62) - 1, 0, -1, 1, (1 << 26) - 1]

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        value = spread(machine, numbers, 60)
        return (await machine.run(kit.truncate(value, 26)))[0].part

    off = total(PairRun(program).results) - (numbers >> 26)
    assert set(off) <= {0, 1}
    mean = float((off - (numbers & ((1 << 26) - 1)) / 2.0**26).mean())
    assert abs(mean) < 6 * 0.5 / np.sqrt(len(numbers))  # six standard deviations: once in 10^9


def test_products_of_shared_numbers() -> None:
    left, right = (GENERATOR.integers(-(1 << 63), 1 << 63, 50) for _ in range(2))

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        return (await kit.multiply(machine, spread(machine, left, seed=1), spread(machine, right, seed=2))).part

    assert np.array_equal(total(PairRun(program).results), left * right)


@pytest.mark.parametrize("outputs", [1, 3])
def test_products_with_columns(outputs: int) -> None:
    rows, tile, widths = 96, 32, (5, 70)
    matrices = [GENERATOR.integers(-(5 << 18), 5 << 18, (rows, width)) for width in widths]
    weights = [GENERATOR.integers(-(1 << 63), 1 << 63, (width, outputs)) for width in widths]
    back = GENERATOR.integers(-(1 << 63), 1 << 63, (64, outputs))
    chosen = np.r_[64:96, 0:32]

    async def setup(machine: Any, tools: Any) -> Any:
        own = None if machine.place < 0 else matrices[machine.place].view(np.uint64)
        columns = describe_columns(machine.place, own, rows, widths, tile, 0)
        await swap_columns(machine, tools, columns)
        return columns

    async def program(machine: Any, kit: Any, columns: Any) -> Any:
        machine.begin("one")
        values = [spread(machine, weight, seed=at) for at, weight in enumerate(weights)]
        first = await machine.run(*(kit.known_product(matrix, of) for matrix, of in zip(columns, values, strict=True)))
        value = spread(machine, back, seed=9)
        machine.begin("two")
        second = await machine.run(*(kit.known_product(matrix[chosen].transposed, value) for matrix in columns))
        return [each.part for each in (*first, *second)]

    run = PairRun(program, setup=setup)
    made = [total(parts) for parts in zip(*run.results, strict=True)]
    for at in (0, 1):
        assert np.array_equal(made[at], matrices[at] @ weights[at])
        assert np.array_equal(made[2 + at], matrices[at][chosen].T @ back)


def test_a_sum_of_sines() -> None:
    z, y = GENERATOR.uniform(-25, 25, (5000, 1)), GENERATOR.integers(0, 2, (5000, 1))
    series, mantissa, bits = SIGMOID[9], round(1.37 * 2**18), 18
    offset = encode(0.5 - y, 36)

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        curved = Curved(1, offset if machine.place == 0 else np.zeros_like(offset), mantissa, bits)
        return await kit.bend(machine, shared(machine, z, 44), series, curved)

    found = PairRun(program).value
    assert np.abs(found - 1.37 * (series.values(z) + 0.5 - y)).max() < 2e-4


def test_gated_values() -> None:
    from vfl_node.crypto.shares.paired.kit import OwnBits

    values = GENERATOR.integers(-(1 << 40), 1 << 40, (200, 2))
    bits = GENERATOR.integers(0, 2, (2, 200, 1)).astype(np.uint64)

    async def program(machine: Any, kit: Any, whole: tuple[bool, bool] = (False, False)) -> Any:
        machine.begin("one")
        owned = OwnBits(bits[machine.place] if machine.place >= 0 else None, 200, whole)
        return [each.part for each in await kit.gate(machine, spread(machine, values, 18), owned)]

    made = [total(parts) for parts in zip(*PairRun(program).results, strict=True)]
    for at in (0, 1):
        assert np.array_equal(made[at], values * bits[1 - at].astype(np.int64))


@pytest.mark.parametrize("labelled", [True, False])
def test_scores_are_counted_in_their_bin_or_the_one_below(labelled: bool) -> None:
    from vfl_node.crypto.shares.paired.kit import OwnBits

    rows = 700
    z, y = GENERATOR.uniform(-15.5, 15.5, (rows, 1)), GENERATOR.integers(0, 2, (rows, 1)).astype(np.uint64)
    z[:5, 0] = [300.0, -100_000.0, 17.0, -16.5, 20.0]
    bits = GENERATOR.integers(0, 2, (2, rows, 1)).astype(np.uint64)
    bits[:, :5] = 1

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        owned = OwnBits(bits[machine.place] if machine.place >= 0 else None, rows, (False, False))
        labels = y * np.uint64(machine.place == 0) if labelled else None
        (found,) = await kit.count(machine, shared(machine, z, 44), labels, owned, 256)
        return (await kit.settle(machine, found, labelled=labelled)).part

    counts = total(PairRun(program).results)
    both = (bits[0] & bits[1])[:, 0] == 1
    assert counts.sum() == both.sum()
    if labelled:
        assert counts[:, 1].sum() == (y[both, 0] == 1).sum()
    found, clipped = counts.sum(axis=1), np.clip(z[both, 0], -counts_module.MOST, counts_module.MOST)
    upper = np.zeros(256, int)
    np.add.at(upper, np.floor(clipped * 8).astype(int) + 128, 1)
    moved = np.cumsum(found) - np.cumsum(upper)
    assert (moved >= 0).all()  # a row is in its bin or in the one below
    assert np.abs(found @ (np.arange(256) - 127) / 8 - clipped.sum()) < 6 / 16 * np.sqrt(len(clipped))  # coins: 6 deviations


def test_numbers_are_clamped_exactly_but_near_the_bounds() -> None:
    z = np.concatenate([GENERATOR.uniform(-60, 60, 400), [16.2, -16.2, 15.7, -15.8, 1e4, -1e5, 262_000.0, -262_000.0, 0.0]])[
        :, None
    ]

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        return await clamp(machine, shared(machine, z, 44), -16.0, 15.0)

    found, expected = PairRun(program).value, np.clip(z, -16, 15)
    near = (np.abs(z + 16) < 2 * UNIT) | (np.abs(z - 15) < 2 * UNIT)
    assert np.abs(found - expected)[~near].max() < 1e-9
    assert np.abs(found - expected).max() < 2 * UNIT


def test_noise_is_each_partys_own() -> None:
    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        return (await machine.run(kit.draw_noise((4000, 1), 3.0, 10)))[0]

    one, other = (each.part.view(np.int64) / 2.0**10 for each in PairRun(program).results)
    for each in (one, other):
        assert abs(each.std() / 3 - 1) < 0.07  # six standard deviations of 1/√8000
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 0.1


def test_noise_that_one_party_chooses() -> None:
    deviations, chosen = [1.0, 1e6, 3.0], [1, 0, 2, 1]

    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        return (await kit.pick_noise(machine, deviations, chosen if machine.place == 0 else [0] * 4)).part

    found = np.abs(total(PairRun(program).results))
    assert (found[[0, 3]] > 100).all()
    assert (found[[1, 2]] < 100).all()


def test_a_value_without_fraction_is_kept() -> None:
    async def program(machine: Any, kit: Any) -> Any:
        machine.begin("one")
        return Shared(spread(machine, np.arange(3)).part, 0).part

    assert np.array_equal(total(PairRun(program).results), np.arange(3))
