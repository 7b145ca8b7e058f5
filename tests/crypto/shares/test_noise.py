"""Noise in shares: nobody has it, the same place has the same, another context another, and an audit checks it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, SpoiltError, counted
from vfl_node.crypto.shares.machine import Counter, ShareMachine
from vfl_node.crypto.shares.noise import draw_noise, variance_of
from vfl_node.crypto.shares.values import Shared

DEVIATION = 39.0
COUNT = 2_000
FAR = 5 / COUNT**0.5
"""Five standard errors of a correlation of independent numbers."""


def program(section: str = "epoch 1 block 0", count: int = COUNT) -> Any:
    async def run(machine: ShareMachine) -> Shared:
        machine.begin(section)
        return (await machine.run(draw_noise((count, 1), DEVIATION, 36)))[0]

    return run


def values(run: Run) -> np.ndarray:
    return run.value.ravel()


@pytest.mark.parametrize("parties", [2, 3])
def test_it_has_its_deviation_costs_what_is_counted_and_opens_nothing(parties: int) -> None:
    run = Run(program(), parties)
    assert abs(values(run).std() / DEVIATION - 1) < 5 / (2 * COUNT) ** 0.5
    cost = counted(program(), parties)
    assert run.queues.bytes == cost.dealt
    assert sum(cost.dealt.values()) == 8 * COUNT
    assert cost.rounds == 0
    assert not any(cost.opened.values())
    for result in run.results:  # a share says nothing of it
        part = result.part.ravel().astype(np.int64).astype(np.float64)
        assert abs(np.corrcoef(part, values(run))[0, 1]) < FAR


def test_the_same_place_has_the_same_noise_and_no_other_place_has() -> None:
    first = values(Run(program(), context="job 1"))
    np.testing.assert_array_equal(first, values(Run(program(), context="job 1")))
    others = {
        "another context": Run(program(), context="job 2"),
        "another section": Run(program("epoch 2 block 0"), context="job 1"),
        "another party's seed": Run(program(), context="job 1", seed=1),
    }
    for what, other in others.items():
        assert abs(np.corrcoef(first, values(other))[0, 1]) < FAR, what


def test_one_party_s_seed_alone_changes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no proper subset of parties knows it: the seed is a sum of uniform words, one of each party."""
    from vfl_node.crypto.shares import machine as machines

    first, draw = values(Run(program())), machines.ShareMachine._draw

    def changed(self: ShareMachine, seed: Any, number: int, name: str, shape: Any) -> Any:
        drawn = draw(self, seed, number, name, shape)
        if name == "seed":
            drawn = drawn.copy()
            drawn[0] += np.uint64(1)
        return drawn

    monkeypatch.setattr(machines.ShareMachine, "_draw", changed)
    assert abs(np.corrcoef(first, values(Run(program())))[0, 1]) < FAR


def audited() -> Any:

    async def run(machine: ShareMachine) -> Shared:
        machine.begin("epoch 1 block 0")
        count = 0
        if machine.place >= 0:
            counter = Counter(machine.parties)
            counter.begin(machine.section)
            (await counter.run(draw_noise((50, 1), DEVIATION, 36)))
            count = counter.cost.dealt[machine.place] // 8
        auditor = await machine.auditor(count)
        return Shared((await (auditor or machine).run(draw_noise((50, 1), DEVIATION, 36)))[0].part, 36)

    return run


def test_an_audit_passes_an_honest_dealer_and_notices_one_wrong_number() -> None:
    Run(audited(), shows=lambda section: True)
    noticed = 0
    for place in (0, 1):
        try:
            Run(audited(), shows=lambda section: True, spoils=(place, 0))
        except SpoiltError:
            noticed += 1
    assert noticed == 1  # at the party to which it is dealt


def test_a_variance_is_never_too_small() -> None:
    assert variance_of(1.0, 4) == 256
    assert variance_of(0.1, 10) == 10486  # 10485.76…
    assert variance_of(1e-9, 4) == 1
