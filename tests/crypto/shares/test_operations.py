"""Each operation gives what plain arithmetic gives, costs what is counted, and opens nothing but uniform numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.crypto.shares.together import Run, check_cost, shared
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, product, reveal, sum_sines, truncate
from vfl_node.crypto.shares.ring import decode, encode
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import Shared

RNG = np.random.default_rng(0)
X, W, V = RNG.normal(size=(60, 7)), RNG.normal(size=(7, 5)), RNG.normal(size=(60, 7))
Z = RNG.uniform(-12, 12, (500, 2))


async def matrices(machine: ShareMachine) -> Shared:
    left, right = await machine.run(mask_value(shared(machine, X)), mask_value(shared(machine, W, seed=1)))
    return (await machine.run(product(left, right)))[0]


async def numbers(machine: ShareMachine) -> Shared:
    left, right = await machine.run(mask_value(shared(machine, X)), mask_value(shared(machine, V, seed=1)))
    return (await machine.run(product(left, right, "numbers")))[0]


async def used_twice(machine: ShareMachine) -> Shared:
    """Xᵀ·(X·W), with X opened once."""
    x, w = await machine.run(mask_value(shared(machine, X)), mask_value(shared(machine, W, seed=1)))
    (first,) = await machine.run(product(x, w))
    (cut,) = await machine.run(truncate(first, 18))
    (back,) = await machine.run(mask_value(cut))
    return (await machine.run(product(x.transposed, back)))[0]


def of_owner(owner: int, kind: str) -> Any:
    async def program(machine: ShareMachine) -> Shared:
        owner_place = min(owner, machine.parties - 1)
        own = encode(X) if machine.place == owner_place else None
        (matrix,) = await machine.run(mask_known(owner_place, X.shape, 18, own))
        value = shared(machine, W if kind == "matrices" else V, 26)
        return (await machine.run(known_product(matrix, value, kind)))[0]  # type: ignore[arg-type]

    return program


async def transposed(machine: ShareMachine) -> Shared:
    (matrix,) = await machine.run(mask_known(1, X.shape, 18, encode(X) if machine.place == 1 else None))
    some = matrix[10:40]
    return (await machine.run(known_product(some.transposed, shared(machine, V[10:40]))))[0]


async def cut(machine: ShareMachine) -> Shared:
    return (await machine.run(truncate(shared(machine, X, 40), 22)))[0]


async def sigmoid(machine: ShareMachine) -> Shared:
    return (await machine.run(sum_sines(shared(machine, Z, 36), SIGMOID[9])))[0].value


async def slope(machine: ShareMachine) -> Shared:
    curve = (await machine.run(sum_sines(shared(machine, Z), SIGMOID[5], 2, slope=True)))[0]
    assert curve.slope is not None
    return curve.slope


PROGRAMS: dict[str, tuple[Any, np.ndarray, float]] = {
    "product of matrices": (matrices, X @ W, 1e-4),
    "product of numbers": (numbers, X * V, 1e-4),
    "an operand used twice": (used_twice, X.T @ (X @ W), 1e-2),
    "matrix of the first party": (of_owner(0, "matrices"), X @ W, 1e-4),
    "matrix of another party": (of_owner(1, "matrices"), X @ W, 1e-4),
    "matrix of the last party": (of_owner(9, "matrices"), X @ W, 1e-4),
    "numbers of one party": (of_owner(1, "numbers"), X * V, 1e-4),
    "some rows of a matrix, transposed": (transposed, X[10:40].T @ V[10:40], 1e-3),
    "truncation": (cut, X, 2e-5),
    "sigmoid": (sigmoid, SIGMOID[9].values(Z), 2e-4),
    "slope": (slope, 2 * SIGMOID[5].slopes(Z), 2e-4),
}


@pytest.mark.parametrize("parties", [2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operation_gives_what_plain_arithmetic_gives_and_costs_what_is_counted(name: str, parties: int) -> None:
    program, expected, error = PROGRAMS[name]
    run = Run(program, parties)
    np.testing.assert_allclose(run.value, expected, atol=error)
    check_cost(run, program, parties)


@pytest.mark.parametrize("name", PROGRAMS)
def test_everything_opened_is_uniform_and_independent_of_the_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *_ = PROGRAMS[name]
    seen = [value for seed in range(20) for view in Run(program, seed=seed).table.seen.values() for value in view]
    if name in ("sigmoid", "slope"):  # numbers of fewer bits
        tops = np.concatenate([(value.ravel() >> np.uint64(19)) & np.uint64(15) for value in seen])
    else:
        tops = np.concatenate([value.ravel() >> np.uint64(60) for value in seen])
    assert len(tops) > 500
    assert chisquare(np.bincount(tops.astype(int), minlength=16)).pvalue > 1e-4


async def told(machine: ShareMachine) -> Any:
    return (await machine.run(reveal(shared(machine, X), to=1)))[0]


def test_a_value_is_revealed_to_one_party_alone() -> None:
    first, second, third = Run(told, 3).results
    np.testing.assert_allclose(decode(second), X, atol=1e-5)
    assert not first.any()
    assert not third.any()


def test_a_mask_that_is_used_twice_gives_the_difference() -> None:
    """And under masks of their own two values look unrelated."""

    async def opens(machine: ShareMachine, value: np.ndarray, section: str = "") -> Any:
        machine.begin(section)
        return (await machine.run(mask_value(shared(machine, value))))[0].difference

    one, other = (Run(lambda machine, value=value: opens(machine, value)).results[0] for value in (X, V))
    np.testing.assert_allclose(decode(one - other), X - V, atol=1e-5)
    fresh = Run(lambda machine: opens(machine, V), context="another").results[0]
    assert np.abs(decode(one - fresh)).mean() > 2**40
    later = Run(lambda machine: opens(machine, V, "later")).results[0]
    assert np.abs(decode(one - later)).mean() > 2**40


def test_a_truncation_is_exact_to_a_carry_up_to_the_edges_of_its_range() -> None:
    edges = [-(1 << 62), -(1 << 62) + 1, -1, 0, 1, (1 << 62) - 1, *RNG.integers(-(1 << 62), 1 << 62, 20_000).tolist()]
    values = np.array(edges, dtype=np.int64).view(np.uint64)

    async def program(machine: ShareMachine) -> Shared:
        drawn = shared(machine, np.zeros(len(values)))
        part = drawn.part + values if machine.place == 0 else drawn.part
        return (await machine.run(truncate(Shared(part, 18), 18)))[0]

    carries = np.zeros(len(values))
    for seed in range(20):
        results = Run(program, seed=seed).results
        found = (results[0].part + results[1].part).view(np.int64)
        carry = found - (values.view(np.int64) >> 18)
        assert set(np.unique(carry)) <= {0, 1}
        carries += carry
    part = (values & np.uint64((1 << 18) - 1)).astype(float) / (1 << 18)
    assert np.corrcoef(carries / 20, part)[0, 1] > 0.9  # its probability is the part cut off
    assert abs((carries / 20 - part).mean()) < 0.01


def test_far_below_its_range_a_truncation_wraps() -> None:
    value = np.array([-(1 << 63)], dtype=np.int64).view(np.uint64)

    async def program(machine: ShareMachine) -> Shared:
        return (await machine.run(truncate(Shared(value if machine.place == 0 else np.zeros(1, np.uint64), 18), 18)))[0]

    found = [sum(of.part for of in Run(program, seed=seed).results).view(np.int64)[0] for seed in range(20)]  # type: ignore[union-attr]
    assert any(abs(of - (int(value.view(np.int64)[0]) >> 18)) > 1 for of in found)
