"""Trainings with noise: without it they descend as in ordinary numbers, and after a break they have the noise they had."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.thorough import every
from tests.training.hidden.conftest import NOISED, weights_of
from tests.training.shares_attempts import KilledError, State, assert_same, kills
from vfl_node.crypto.shares import kits
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.errors import StateError
from vfl_node.gdp import mu_of
from vfl_node.training.hidden import computation
from vfl_node.training.hidden.network import step
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.transport.generated.vfl.v1.shares_pb2 import Corrections, DealingTerms, MaskedShares

CASES = [
    (2, "psu", {}),
    (2, "psi", {"classes": 3}),
    (2, "apsi", {"columns": "bins"}),
    (2, "psu", {"task": "regression"}),
    (3, "psu", {"columns": "bins", "task": "regression"}),
    (3, "psi", {"epochs": 7, "momentum": 0.5, "weight_decay": 0.1}),
]


def over_for(world: Any, train: dict[str, Any], *given: Any, **more: Any) -> Any:
    return world(*given, classes=train.get("classes", 2), numbers=train.get("task") == "regression", **more)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("parties", "protocol", "train"), every(2, CASES), ids=str)
def test_without_the_noise_it_is_gradient_descent_over_bounded_rows(
    world: Any, attempt: Any, parties: int, protocol: str, train: dict[str, Any]
) -> None:
    rate = 0.5 if "task" in train else 1.0
    over, of = over_for(world, train, parties, protocol), attempt({**NOISED, "learning_rate": rate, **train})
    results = of(over)
    found, expected = weights_of(results), of.reference(over)
    assert max(float(np.abs(ours - plain).max()) for ours, plain in zip(found, expected, strict=True)) < 1e-3
    assert np.abs(expected[1]).max() > 0.2
    plan = of.plan(over)
    assert results[0].steps == plan.epochs == train.get("epochs", 40 if "task" in train else 20)
    for result, (table, _) in zip(results, over.data.values(), strict=True):
        rows = RowEncoder.from_json(result.encoder).transform(table)
        assert 0.99 < np.linalg.norm(rows, axis=1).max() <= 1


@pytest.mark.parametrize(("parties", "victim"), every(2, [(2, "lab"), (2, "clinic"), (2, "hub"), (3, "insurer")]))
def test_killed_anywhere_it_ends_with_the_same_bytes(world: Any, attempt: Any, parties: int, victim: str) -> None:
    """Weights have the noise of all steps, so this is the same, too."""
    over, train = world(parties, people=60), {**NOISED, "epochs": 3, "columns": "bins"}
    uncut = attempt(train)
    whole = uncut(over)
    sent = {each.SerializeToString() for kind in (MaskedShares, Corrections) for each in uncut.sent(kind)}
    messages = sum(entry.sender == victim for entry in uncut.transcript)
    resumed = set()
    for at in every(3, range(0, messages, max(1, messages // 12))):
        first = attempt(train, tamper=kills(victim, at))
        assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        resumed.add(second.resume_from)
        for tried in (first, second):
            assert {each.SerializeToString() for each in tried.sent(MaskedShares)} <= sent
    assert {None, "epoch-000003"} <= resumed


class Steps:
    """What each step of all parties began with, and its noise: sums of shares, by context and section."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._weights: dict[Any, dict[int, Any]] = defaultdict(dict)
        self._noise: dict[Any, dict[int, Any]] = defaultdict(dict)
        marked: list[Any] = []

        def noted(*given: Any) -> Any:
            marked.append(draw_noise(*given))
            return marked[-1]

        run = ShareMachine.run

        async def running(machine: Any, *operations: Any) -> Any:
            results = await run(machine, *operations)
            if machine.place >= 0 and any(of is operations[0] for of in marked):
                self._noise[machine.context, machine.section][machine.place] = [of.part for of in results]
            return results

        async def stepping(machine: Any, model: Any, *given: Any) -> Any:
            if machine.place >= 0:
                self._weights[machine.context, machine.section][machine.place] = [of.part for of in model.weights]
            return await step(machine, model, *given)

        monkeypatch.setattr(kits, "draw_noise", noted)
        monkeypatch.setattr(ShareMachine, "run", running)
        monkeypatch.setattr(computation, "step", stepping)

    def pairs(self, parties: int) -> list[tuple[str, bytes, bytes]]:
        """Context, noise and weights of each step that all parties have made."""
        whole = [place for place, of in self._noise.items() if len(of) == len(self._weights[place]) == parties]
        return [(place[0], _sum(self._noise[place]), _sum(self._weights[place])) for place in whole]


def _sum(shares: dict[int, Any]) -> bytes:
    return b"".join(np.sum(each, axis=0, dtype=np.uint64).tobytes() for each in zip(*shares.values(), strict=True))


@pytest.mark.parametrize(("party", "at"), every(2, list(product(["clinic", "lab"], [12, 20, 28]))))
def test_other_columns_after_a_break_have_other_noise(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, party: str, at: int
) -> None:
    """Though all have lost what they knew of the first attempt. The same noise twice would leave differences bare."""
    over, train = world(people=60), {**NOISED, "epochs": 6}
    steps = Steps(monkeypatch)
    first = attempt(train, tamper=kills("clinic", at))
    assert any(isinstance(result, KilledError) for result in first.raw(over))
    before = steps.pairs(2)
    assert before
    again = first.again(over, state=State(checkpoints=first.state.checkpoints))
    again(over.changed(party))
    assert again.sent(DealingTerms)[0].context != first.sent(DealingTerms)[0].context
    pairs = steps.pairs(2)
    assert len({context for context, _, _ in pairs}) == 2
    assert len(pairs) == len(before) + 6
    assert len({noise for _, noise, _ in pairs}) == len(pairs)


def test_the_same_columns_after_a_break_have_the_same_noise_at_the_same_weights(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, train = world(people=60), {**NOISED, "epochs": 4}
    steps = Steps(monkeypatch)
    attempt(train)(over)
    uncut = set(steps.pairs(2))
    assert len({noise for _, noise, _ in uncut}) == len({weights for *_, weights in uncut}) == 4
    for at in every(2, range(8, 28, 4)):
        first = attempt(train, tamper=kills("lab", at))
        first.raw(over)
        assert set(steps.pairs(2)) == uncut
        first.again(over)(over)
        assert set(steps.pairs(2)) == uncut


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_who_has_not_lost_it_refuses_other_columns(world: Any, attempt: Any, party: str) -> None:
    over, train = world(people=60), {**NOISED, "epochs": 6}
    first = attempt(train, tamper=kills("clinic", 20))
    first.raw(over)
    with pytest.raises(StateError) as caught:
        first.again(over)(over.changed(party))
    assert caught.value.code == "E_REPLAY"


def test_noise_of_two_trainings_has_nothing_in_common(world: Any, attempt: Any) -> None:
    """Where no record is shared weights are noise. Of more than 400 a correlation has a standard error below .05."""
    over, train = world(disjoint=True, classes=64), {**NOISED, "classes": 64, "epochs": 5, "learning_rate": 0.5}
    found = []
    for each, more in ((over, {}), (over, {}), (over.changed("lab"), {}), (over, {"seed": 1}), (over, {"epsilon": 2.0})):
        found.append(np.concatenate([of.ravel() for of in weights_of(attempt(train | more)(each))]))
    first, same, *others = found
    assert len(first) > 400
    assert np.array_equal(first, same)
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.2
    assert others[-1].std() == pytest.approx(first.std() * mu_of(1.0) / mu_of(2.0), rel=0.2)
