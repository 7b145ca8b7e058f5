"""Bits in shares: what comes out is what numpy says, and what is opened is uniform."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from tests.crypto.shares.together import Run, counted
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.bits import (
    Bits,
    add_bits,
    and_bits,
    bits_of,
    join_rows,
    or_bits,
    planes_of,
    public,
    reveal_bits,
    rows_of,
    show_bits,
)
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.values import Shared

EVERY = np.uint64((1 << 64) - 1)


def uniform(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return Randomness(name.encode().ljust(32)).uint64(int(np.prod(shape))).reshape(shape)


def bits(machine: ShareMachine, words: np.ndarray, name: str = "bits") -> Bits:
    """This party's share."""
    mask = uniform(f"share of {name}", words.shape)
    return Bits(mask if machine.place else words ^ mask)


def numbers(machine: ShareMachine, values: np.ndarray) -> Shared:
    mask = uniform("share of numbers", values.shape)
    return Shared(mask if machine.place else values.astype(np.uint64) - mask, 0)


async def opened(machine: ShareMachine, *values: Bits) -> list[np.ndarray]:
    return await machine.run(*(reveal_bits(of, 1) for of in values))


def xored(run: Run) -> list[np.ndarray]:
    return [a.part ^ b.part for a, b in zip(*run.results, strict=True)]


def test_planes_there_and_back():
    values = uniform("planes", (70, 3)) % np.uint64(32)
    planes = planes_of(values, 5)
    assert planes.shape == (5, 3, 2)
    rows = np.stack([rows_of(plane, 70) for plane in planes])
    np.testing.assert_array_equal((rows.astype(np.uint64) << np.arange(5, dtype=np.uint64)[:, None, None]).sum(0), values)


def test_every_pair_of_bits():
    left, right = np.array([[0b0011]], np.uint64), np.array([[0b0101], [0b1111]], np.uint64)

    async def program(machine):
        first, second = await machine.run(show_bits(bits(machine, left)), show_bits(bits(machine, right, "right")))
        ands = await machine.run(
            and_bits(first, second), and_bits(first.inverted, second), and_bits(first ^ second, public(right))
        )
        return [*ands, await or_bits(machine, [first, second, public(np.array([[8]], np.uint64))])]

    found = xored(Run(program))
    for value, expected in zip(
        found, (left & right, ~left & right, (left ^ right) & right, left | right | np.uint64(8)), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("width", range(1, 8))
def test_every_number_of_a_width(width):
    values = np.arange(1 << width, dtype=np.uint64).reshape(-1, 2)

    async def program(machine):
        return [of.share(machine.place) for of in await bits_of(machine, numbers(machine, values), width)]

    for seed in range(3):  # other masks
        np.testing.assert_array_equal(np.stack(xored(Run(program, seed=seed))), planes_of(values, width))


@pytest.mark.parametrize("ones", [1, 2, 3, 4, 9, 40])
def test_sums(ones):
    words, width = uniform("summed", (ones, 2)), 5

    async def program(machine):
        first = await machine.run(show_bits(bits(machine, words)))
        columns = [first[0], *(public(np.array([[EVERY] * 2] * (1 + weight % 2), np.uint64)) for weight in range(1, width))]
        return [of.share(machine.place) for of in await add_bits(machine, columns)]

    found = np.stack(xored(Run(program)))[:, 0]
    extra = sum((1 + weight % 2) << weight for weight in range(1, width))
    expected = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").sum(0).astype(int) + extra
    for bit in range(width):
        plane = np.unpackbits(np.ascontiguousarray(found[bit]).view(np.uint8), bitorder="little")
        np.testing.assert_array_equal(plane, expected >> bit & 1)


def test_only_one_party_is_told():
    words = uniform("told", (3, 1))

    async def program(machine):
        return await opened(machine, bits(machine, words))

    (nothing,), (something,) = Run(program).results
    assert not nothing.any()
    np.testing.assert_array_equal(something, words)


def _opened_bits(words: np.ndarray, unmasked: bool) -> np.ndarray:
    """What party 1 hears while it computes."""

    async def program(machine):
        value = bits(machine, words)
        if unmasked:
            machine._draw = lambda seed, number, name, shape: np.zeros(shape, np.uint64)
        (first,) = await machine.run(show_bits(value))
        return await add_bits(machine, [join_rows([first, first, first]), public(np.zeros((1, words.shape[1]), np.uint64))])

    run = Run(program)
    return np.concatenate([each.ravel() for each in run.table.seen[1]])


@pytest.mark.parametrize("unmasked", [False, True])
def test_opened_bits_are_uniform(unmasked):
    """The control has no masks: what is opened is the value."""
    seen = [_opened_bits(np.full((60, 4), word, np.uint64), unmasked) for word in (0, EVERY)]
    shares = [np.unpackbits(of.view(np.uint8)).mean() for of in seen]
    assert (max(abs(share - 0.5) for share in shares) < 0.02) is not unmasked


def test_what_is_dealt_depends_on_shapes_alone():
    async def program(machine, words):
        first = await machine.run(show_bits(bits(machine, words)))
        return await add_bits(machine, [first[0], public(np.zeros((1, 2), np.uint64))])

    runs = [Run(lambda machine, of=of: program(machine, uniform(of, (9, 2)))) for of in ("one", "two")]
    for first, second in zip(*(run.queues.each for run in runs), strict=True):
        np.testing.assert_array_equal(reduce(np.append, first, []), reduce(np.append, second, []))


def test_the_counter_counts_it():
    async def program(machine):
        return await bits_of(machine, numbers(machine, np.arange(130, dtype=np.uint64).reshape(65, 2)), 8)

    cost, run = counted(program), Run(program)
    assert cost.rounds == run.table.rounds == 8
    assert cost.opened == run.table.sent == dict.fromkeys((0, 1), 130 + 7 * 2 * 2 * 8)
    assert cost.dealt == run.queues.bytes
