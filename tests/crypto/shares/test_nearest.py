"""The nearest in shares are those of a search over open filters, and only who is meant to hears which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.shares.test_bits import numbers
from tests.crypto.shares.together import Run, counted
from vfl_node.crypto.nearest.search import nearest as search
from vfl_node.crypto.shares import sizes
from vfl_node.crypto.shares.bits import reveal_bits, rows_of
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.nearest import NONE, distances, lift, nearest, pick
from vfl_node.crypto.shares.operations import reveal
from vfl_node.crypto.shares.sizes import ring_bits
from vfl_node.crypto.shares.values import Shared
from vfl_node.engines.contract import Inline
from vfl_node.errors import ProtocolError


def filters(rows: int, width: int, seed: int, density: float = 0.3) -> np.ndarray:
    bits = np.random.default_rng(seed).uniform(size=(rows, 8 * width)) < density
    return np.packbits(bits, axis=1)


def linked(x: np.ndarray, y: np.ndarray, count: int, seed: int = 0) -> Run:
    bits = 8 * x.shape[1]

    async def program(machine):
        own = {0: x, 1: y}.get(machine.place)
        common, apart = await distances(machine, (len(x), len(y)), bits, own)
        (found,) = await machine.run(reveal_bits(await nearest(machine, common, apart, bits, count), 1))
        return found, common, apart

    return Run(program, seed=seed)


def expected(x: np.ndarray, y: np.ndarray, count: int) -> np.ndarray:
    rows = np.concatenate([block.rows for block in search(x, y, count, Inline())])
    found = np.zeros((len(x), len(y) + 1), np.bool_)
    np.put_along_axis(found, rows, True, axis=1)  # -1: the last column
    return found[:, :-1]


def test_distances():
    x, y = filters(70, 3, 1), filters(5, 3, 2)
    (_, *first), (_, *second) = linked(x, y, 1).results
    modulus = np.uint64(1 << ring_bits(24))
    common, apart = ((a.part + b.part) % modulus for a, b in zip(first, second, strict=True))
    a, b = (np.unpackbits(of, axis=1).astype(np.uint64) for of in (x, y))
    np.testing.assert_array_equal(common, a @ b.T)
    np.testing.assert_array_equal(apart, (a[:, None] ^ b[None]).sum(2))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.05, 0.3, 0.9]), st.integers(0, 99))
def test_the_nearest(n, m, count, density, seed):
    """With ties, with rows out of reach, with as many candidates as there are rows."""
    x, y = filters(n, 2, seed, density), filters(m, 2, seed + 100, density)
    (nothing, *_), (found, *_) = linked(x, y, min(count, m), seed).results
    assert not nothing.any()
    np.testing.assert_array_equal(rows_of(found, n), expected(x, y, min(count, m)))


def test_blocks_of_bits(monkeypatch):
    x, y = filters(9, 8, 1), filters(7, 8, 2)
    whole = linked(x, y, 3)
    monkeypatch.setattr(sizes, "_BLOCK_NUMBERS", 16 * 8)
    parts = linked(x, y, 3)
    assert parts.table.rounds == whole.table.rounds + 7
    np.testing.assert_array_equal(parts.results[1][0], whole.results[1][0])


def test_the_highest_bits_of_the_largest_filters():
    """64 KiB: sums of products must stay exact in floats."""
    x, y = np.full((2, 1 << 16), 255, np.uint8), np.stack([np.full(1 << 16, byte, np.uint8) for byte in (0, 255, 254)])
    (_, _, first), (found, _, second) = linked(x, y, 1).results
    apart = (first.part + second.part) % np.uint64(1 << ring_bits(1 << 19))
    assert apart.tolist() == [[1 << 19, 0, 1 << 16]] * 2
    np.testing.assert_array_equal(rows_of(found, 2), [[False, True, False]] * 2)


def test_what_everybody_hears_is_uniform():
    """Also where all filters are alike, and what the dealer sends is the same."""
    alike = [np.full((64, 4), byte, np.uint8) for byte in (1, 255)]
    runs = [linked(of, of[:40], 5) for of in alike]
    for run in runs:
        seen = np.concatenate([each.ravel() for each in run.table.seen[0] if each.shape[-1] == 1])  # words of bits
        assert abs(np.unpackbits(seen.view(np.uint8)).mean() - 0.5) < 0.01
    assert [run.queues.bytes for run in runs[:1]] == [run.queues.bytes for run in runs[1:]]
    first, second = (np.concatenate([of for each in run.queues.each for of in each]) for run in runs)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("masked", [True, False])
def test_masks_hide_the_distances(monkeypatch, masked):
    """The control has no masks, and party 1 reads the other one's filters."""
    x, y = filters(64, 4, 5), filters(9, 4, 6)
    if not masked:
        monkeypatch.setattr(ShareMachine, "_draw", lambda self, seed, number, name, shape: np.zeros(shape, np.uint64))
    run = linked(x, y, 2)
    assert (run.table.seen[1][0] == np.unpackbits(x, axis=1)).all() is np.bool_(not masked)


def test_columns_that_one_party_knows():
    values = np.random.default_rng(1).integers(0, 100, (66, 5)).astype(np.uint64)
    places = np.array([[2, 0, NONE]] * 65 + [[NONE] * 3])

    async def program(machine):
        own = places if machine.place == 1 else None
        ((part, found),) = await machine.run(pick(numbers(machine, values), 8, 3, own))
        (whole,) = await machine.run(lift(part, 8))
        (result,) = await machine.run(reveal(whole))
        return result, found

    run = Run(program)
    for result, found in run.results:
        np.testing.assert_array_equal(found, places != NONE)
        np.testing.assert_array_equal(result, np.where(places == NONE, 0, np.take_along_axis(values, places % 5, axis=1)))
    asked = run.table.seen[0][0][:65, :2]  # places in an order that party 0 does not know
    counts = np.bincount(asked.ravel().astype(int), minlength=5)
    assert counts.min() > 10
    assert (asked[:, 0] != asked[:, 1]).all()


def test_a_place_that_is_none():
    operation = pick(Shared(np.zeros((1, 3), np.uint64), 0), 8, 1, None)
    with pytest.raises(ProtocolError, match="no record"):
        operation.result(0, [np.zeros((1, 3), np.uint64), np.array([[4]], np.uint64)], {"moved": np.zeros((1, 3), np.uint64)})


def test_the_counter_counts_it():
    def program(machine):
        own = {0: filters(70, 3, 1), 1: filters(9, 3, 2)}.get(machine.place)

        async def all_of_it():
            common, apart = await distances(machine, (70, 9), 24, own)
            await nearest(machine, common, apart, 24, 2)

        return all_of_it()

    cost, run = counted(program), Run(program)
    assert (cost.rounds, cost.opened, cost.dealt) == (run.table.rounds, run.table.sent, run.queues.bytes)


def test_the_same_seeds_give_the_same_messages():
    x, y = filters(9, 2, 1), filters(7, 2, 2)
    first, again, other = (linked(x, y, 2, seed).table.heard[0] for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
