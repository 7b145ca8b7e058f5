"""A regression that was cut anywhere ends with the weights of one that was not, to the last bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.thorough import every
from vfl_node.errors import StateError
from vfl_node.job import Evaluate
from vfl_node.training.checkpoints import FileCheckpoints, MemoryCheckpoints
from vfl_node.training.glm.decryption_log import FileDecryptionLog
from vfl_node.transport.generated.vfl.v1 import decryption_pb2

TAYLOR = {"flow": "coordinator", "loss": "taylor"}
FLOWS = [
    {},
    {"mask": "multiplicative"},
    {"flow": "coordinator-open-scores"},
    TAYLOR,
    {**TAYLOR, "tolerance": 1e-12, "mask": "multiplicative"},
    {**TAYLOR, "tolerance": 1e-12, "labels": "passive"},
]


def named(given: dict[str, Any]) -> str:
    return "-".join(str(value) for value in given.values()) or "two-party"


class CutError(Exception):
    pass


def cut(at: int) -> Callable[[Any], None]:
    """Breaks the channel on which message ``at`` would go, and so everything."""
    left = at

    def tamper(sent: Any) -> None:
        nonlocal left
        if left == 0:
            raise CutError
        left -= 1

    return tamper


def once(learnt: Any) -> Any:
    """What was learnt but for the bits told in all: what is decrypted again after a restart is told again."""
    return {
        party: [replace(of, text=re.sub(r", \d+ in all", "", of.text)) for of in entries] for party, entries in learnt.items()
    }


def assert_same(results: Any, whole: Any) -> None:
    for ours, theirs in zip(results, whole, strict=True):
        assert ours.weights.keys() == theirs.weights.keys()
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
        assert [(epoch.loss, epoch.auc) for epoch in ours.epochs] == [(epoch.loss, epoch.auc) for epoch in theirs.epochs]
        for name in ("steps", "results", "encoder"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert once(ours.disclosures) == once(theirs.disclosures)
        uncounted = {"decryptions": {}, "decrypted_bits": {}}
        assert ours.section.model_copy(update=uncounted) == theirs.section.model_copy(update=uncounted)
        for party, values in theirs.section.decryptions.items():  # the key's holder counts an iteration that was repeated
            assert ours.section.decryptions[party] in (values, values + values // theirs.steps)


def small(shared: Any, given: dict[str, Any]) -> Any:
    return shared(rows=24, genuine=20, population=24, clinic=1, lab=1, labels=given.get("labels", "active"))


@pytest.mark.parametrize(
    ("given", "step"),
    [
        pytest.param(FLOWS[0], 1, id=named(FLOWS[0])),
        pytest.param(FLOWS[-1], 3, id=f"{named(FLOWS[-1])}, each third"),
        *(pytest.param(given, 1, id=named(given), marks=pytest.mark.slow) for given in FLOWS[1:] if given != TAYLOR),
    ],
)
def test_cut_between_any_two_messages_it_goes_on(attempt: Any, shared: Any, logistic: Any, given: Any, step: int) -> None:
    over, train = small(shared, given), logistic(**given)
    uncut = attempt(train)
    whole = uncut(over)
    resumed_from = set()
    for at in every(6, range(0, len(uncut.transcript), step)):
        first = attempt(train, tamper=cut(at))
        assert any(isinstance(result, CutError) for result in first.raw(over))
        second = first.again()
        assert_same(second(over), whole)
        resumed_from.add(second.resume_from)
    assert resumed_from == {None, "i000001", "i000002", "i000003"}


@pytest.mark.parametrize("given", every(2, FLOWS), ids=named)
@pytest.mark.parametrize("iterations", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_resumed_from_any_checkpoint_it_goes_on(
    attempt: Any, shared: Any, logistic: Any, tmp_path: Path, given: Any, iterations: int
) -> None:
    """With everything in files, as a node keeps it, and new objects that read them."""
    labels = given.get("labels", "active")
    over = shared(rows=50, genuine=40, labels=labels, clinic=1)
    evaluate = Evaluate(test_fraction=0 if labels == "passive" else 0.25)
    train = logistic(iterations=4, **given)
    whole = attempt(train, evaluate)(over)

    def on_disk(of: Any) -> Any:
        of.state.checkpoints = {name: FileCheckpoints(tmp_path / name) for name in ("clinic", "lab")}
        of.state.logs = {name: FileDecryptionLog(tmp_path / f"{name}.json") for name in ("clinic", "lab")}
        return of

    def stop(sent: Any) -> None:
        steps = [name for name in ("clinic", "lab") if f"i{iterations:06d}" in first.state.checkpoints[name].names()]
        if len(steps) == 2:
            raise CutError

    first = on_disk(attempt(train, evaluate, tamper=stop))
    first.raw(over)
    second = on_disk(attempt(train, evaluate, number=2))
    second.state.pins = first.state.pins
    second.resume_from = second.state.newest()
    assert second.resume_from == f"i{iterations:06d}"
    assert_same(second(over), whole)
    requests = [sent.message for sent in second.transcript if isinstance(sent.message, decryption_pb2.DecryptionRequest)]
    assert {request.step for request in requests if not request.done} == set(range(iterations, 4))
    before = {column.rows.tobytes() for party in ("clinic", "lab", "hub") for column in first.columns(party)}
    after = {column.rows.tobytes() for party in ("clinic", "lab", "hub") for column in second.columns(party)}
    assert before
    assert not before & after


def test_the_weights_of_the_checkpoint_are_what_it_goes_on_with(attempt: Any, shared: Any, logistic: Any) -> None:
    over, train = small(shared, {}), logistic()
    first = attempt(train)
    whole = first(over)
    first.state.checkpoints["lab"].load("i000002").tensors["weights"].add_(1e-9)
    other = first.again(resume_from="i000002")(over)
    assert 0 < (other[1].weights["weight"] - whole[1].weights["weight"]).abs().max() < 1e-8


def test_it_may_be_cut_again_and_again(attempt: Any, shared: Any, logistic: Any) -> None:
    over = small(shared, {})
    train = logistic(iterations=6)
    whole = attempt(train)(over)
    of = attempt(train, tamper=cut(30))
    attempts = 1
    while any(isinstance(result, CutError) for result in of.raw(over)):
        of = of.again(tamper=cut(30 + attempts))
        attempts += 1
    assert attempts > 3
    assert of.number == attempts
    for name, party in zip(("clinic", "lab"), whole, strict=True):
        assert torch.equal(of.state.checkpoints[name].load("i000006").tensors["weights"].T[:, :1], party.weights["weight"])


def test_ended_early_by_its_tolerance_it_stays_ended(attempt: Any, shared: Any, logistic: Any) -> None:
    over, train = small(shared, {}), logistic(iterations=9, tolerance=0.02)
    uncut = attempt(train)
    whole = uncut(over)
    last = whole[0].steps
    assert 2 < last < 9
    for at in every(4, range(len(uncut.transcript) - 24, len(uncut.transcript))):
        first = attempt(train, tamper=cut(at))
        first.raw(over)
        assert_same(first.again()(over), whole)


def test_a_later_attempt_needs_the_same_secrets_and_state(attempt: Any, shared: Any, logistic: Any) -> None:
    over, train = small(shared, {}), logistic()
    first = attempt(train)
    first(over)
    with pytest.raises(StateError) as caught:
        first.again(seeds=(b"x" * 32, b"y" * 32))(over)
    assert caught.value.code == "E_REPLAY"
    lost = first.again(resume_from="i000002")
    lost.state.checkpoints["lab"] = MemoryCheckpoints()
    with pytest.raises(StateError, match="no checkpoint i000002") as caught:
        lost(over)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_checkpoint_of_another_schedule_is_refused(attempt: Any, shared: Any, logistic: Any) -> None:
    over, first = small(shared, {}), attempt(logistic())
    first(over)
    with pytest.raises(StateError, match="another schedule") as caught:
        first.again(train=logistic(seed=1))(over)
    assert caught.value.code == "E_REPLAY"
