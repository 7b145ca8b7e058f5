"""Whatever the dealer spoils in a section that is checked is noticed, and what a check shows tells nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, SpoiltError, counted
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.audit import Coins
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, product, sum_sines, truncate
from vfl_node.crypto.shares.ring import BYTES, encode, matmul
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import KnownToOne, Shared

ROWS, TIMES = 5, 600
X = [encode(np.random.default_rng(place).normal(size=(ROWS, 3))) for place in range(2)]
NAMES = ["matrix of the first", "matrix of the second", "matrices", "numbers", "truncation", "sines"]


async def block(machine: ShareMachine, matrices: list[KnownToOne], name: str, value: int = 0) -> None:
    """One operation that the dealer deals for, after others that change who gets its numbers."""
    column = Shared(np.full((3, 2), value, np.uint64), 18)
    if name.startswith("matrix"):
        await machine.run(known_product(matrices[name.endswith("second")], column))
    elif name == "truncation":
        await machine.run(truncate(column, 4))
    elif name == "sines":
        await machine.run(sum_sines(column, SIGMOID[5]))
    else:
        left, right = await machine.run(mask_value(column.transposed), mask_value(column))
        factors = (left, right) if name == "matrices" else (right, right)
        await machine.run(product(*factors, name))  # type: ignore[arg-type]


def program(name: str, turns: int = 0, value: int = 0) -> Any:
    async def run(machine: ShareMachine) -> list[str]:
        machine.begin("columns")
        columns = [X[place] if machine.place == place else None for place in range(2)]
        matrices = await machine.run(*(mask_known(place, X[0].shape, 18, columns[place], keeps=True) for place in range(2)))
        checked = []
        for number in range(3):
            machine.begin(f"block {number}")
            machine._dealt[1 - turns] += 1
            dealt = 0
            if machine.place >= 0:
                dealt = counted(lambda of, section=machine.section: counts(of, matrices, section)).dealt[machine.place] // BYTES
            if auditor := await machine.auditor(dealt):
                auditor._dealt[1 - turns] += 1
                await block(auditor, [of.as_dealt for of in matrices], name)
                checked.append(f"block {number}")
            else:
                await block(machine, matrices, name, value)
        return checked

    async def counts(machine: ShareMachine, matrices: Any, section: str) -> None:
        machine.begin(section)
        machine._dealt[1 - turns] += 1
        await block(machine, [of.as_dealt for of in matrices], name)

    return run


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_an_honest_dealer_passes(name: str, turns: int) -> None:
    run = Run(program(name, turns), shows=lambda section: section != "block 1")
    assert run.results == [["block 0", "block 2"]] * 2
    assert all(not sum(map(len, left)) for left in run.queues.each)
    assert len(set(run.audits.shown[0] + run.audits.shown[1])) == 4


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_one_spoilt_number_is_noticed_by_its_receiver_if_its_section_is_checked(name: str, turns: int) -> None:
    whole = Run(program(name, turns), shows=lambda section: False)
    (place,) = (place for place, sent in whole.queues.blocks.items() if sent)
    each = whole.queues.blocks[place] // 3
    for at in range(3 * each):
        spoilt = f"block {at // each}"
        with pytest.raises(SpoiltError) as caught:
            Run(program(name, turns), shows=spoilt.__eq__, spoils=(place, at))
        assert caught.value.args == (place, spoilt)
        Run(program(name, turns), shows=spoilt.__ne__, spoils=(place, at))  # the other two are right


def test_either_party_may_be_the_receiver() -> None:
    found = {
        (name, place)
        for name in NAMES
        for turns in range(2)
        for place, sent in Run(program(name, turns)).queues.blocks.items()
        if sent
    }
    either = {(name, place) for name in NAMES[2:] for place in range(2)}
    assert found == either | {("matrix of the first", 0), ("matrix of the second", 1)}


def test_what_is_shown_does_not_depend_on_values() -> None:
    shown = [Run(program("sines", value=value), shows=lambda section: section == "block 0").audits.shown for value in (0, 77)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("owner", [0, 1])
def test_if_another_party_than_the_owner_got_the_numbers_a_check_would_tell_it_columns(owner: int) -> None:
    other, value = 1 - owner, Shared(np.zeros((3, 2), np.uint64), 0)
    kept: dict[str, Any] = {}

    def run(receiver: int) -> Any:
        async def of(machine: ShareMachine) -> None:
            (matrix,) = await machine.run(mask_known(owner, X[0].shape, 0, X[owner] if machine.place == owner else None))
            dealt = replace(known_product(matrix, value), receiver=receiver)
            shares = dealt.shares

            def noted(place: int, material: Any) -> Any:
                if place >= 0:
                    kept[f"material {place}"], kept[f"matrix {place}"] = material, matrix
                return shares(place, material)

            await machine.run(replace(dealt, shares=noted))

        return of

    Run(run(other))
    mine, masks_shown = kept[f"material {other}"], kept[f"material {owner}"]["product"]  # drawn from the seed that is shown
    equations = matmul(kept[f"matrix {other}"].part, mine["mask"]) + mine["product"] + masks_shown
    assert np.array_equal(equations, matmul(X[owner], mine["mask"]))
    Run(run(owner))  # as it is: what the other party has are masks that were drawn
    mine, masks_shown = kept[f"material {other}"], kept[f"material {owner}"]["product"]
    assert not np.array_equal(
        matmul(kept[f"matrix {other}"].part, mine["mask"]) + mine["product"], matmul(X[owner], mine["mask"])
    )
    assert known_product(KnownToOne(owner, X[owner], 0), value).receiver == owner


def coins(number: int, share: float) -> Coins:
    return Coins(Randomness(f"coins {number}".encode().ljust(32)).bytes(32), share, [f"both {each}" for each in range(16)])


@pytest.mark.parametrize(("share", "spoilt"), [(0.05, 1), (0.05, 14), (0.2, 3), (0.5, 2)])
def test_spoilt_sections_survive_as_often_as_is_said(share: float, spoilt: int) -> None:
    """A dealer that spoils from the start, and one that waits until a section has been checked before it begins."""
    unnoticed = {"at once": 0, "after a check": 0}
    for number in range(TIMES):
        of = coins(number, share)
        first = next(block for block in count() if of.shows(f"epoch 0 block {block}"))
        for dealer, begin in (("at once", 0), ("after a check", first + 1)):
            unnoticed[dealer] += not any(of.shows(f"epoch 0 block {begin + block}") for block in range(spoilt))
    expected = (1 - share) ** spoilt
    for seen in unnoticed.values():
        assert seen / TIMES == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / TIMES))


def test_of_candidates_one_is_used_and_each_one_as_often() -> None:
    used = np.zeros(16)
    for number in range(480):
        of = coins(number, 0.05)
        shown = np.array([of.shows(f"both {each}") for each in range(16)])
        assert shown.sum() == 15
        used += ~shown
    assert used.min() > 10
    assert used.max() < 60
