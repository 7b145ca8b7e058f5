"""A training that was killed at any checkpoint, or before any message, ends with the bits of one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.thorough import THOROUGH
from vfl_node.job import Evaluate
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.transport.generated.vfl.v1 import training_pb2

EVALUATE = Evaluate(metrics=("rmse", "r2"), validation_fraction=0.2, repeats=2, share_with_passive=True)
ALIKE = ("steps", "results", "section", "disclosures", "encoder")


class KilledError(Exception):
    pass


@pytest.fixture(name="settings")
def settings_fixture(small: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)  # a checkpoint after each epoch, however short
    update = {"batch_size": 32, "epochs": 2, "dropout": 0.3, "optimizer": "lamb", "weight_decay": 1e-3, "bottom": (8, 4)}
    return {"train": small.model_copy(update=update), "evaluate": EVALUATE}


def kills_before(number: int) -> Any:
    """Kills the party that is about to send message ``number``."""
    counted: Iterator[int] = iter(range(10_000))

    def tamper(message: Any) -> None:
        if next(counted) == number:
            raise KilledError

    return tamper


def crossed(run: Any) -> list[bytes]:
    """The messages of training, without the toss and the end of the phase, which counts an attempt's own."""
    kinds = (training_pb2.LinkedEmbeddings, training_pb2.Gradient, training_pb2.EpochEnd, training_pb2.Shared)
    return [message.SerializeToString() for message in run.transcript if isinstance(message, kinds)]


@pytest.mark.parametrize("method", ["fedsim", pytest.param("feature", marks=pytest.mark.slow)])
def test_killed_before_any_message_it_goes_on_with_the_same_bits(
    linked: Any, linked_run: Any, settings: dict[str, Any], method: str
) -> None:
    if method == "feature":
        layers = {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
        settings["train"] = settings["train"].model_copy(update={"method": method, **layers})
    linkage = linked(60, 40, 3)
    uninterrupted = linked_run(**settings)
    whole = uninterrupted(linkage)
    resumed_from = set()
    for number in range(0, len(uninterrupted.transcript), 1 if THOROUGH and method == "fedsim" else 5):
        checkpoints = (MemoryCheckpoints(), MemoryCheckpoints())
        killed = linked_run(**settings, checkpoints=checkpoints, tamper=kills_before(number)).raw(linkage)
        assert any(isinstance(of, KilledError) for of in killed)
        common = set(checkpoints[0].names()) & set(checkpoints[1].names())
        newest = max(common) if common else None
        resumed_from.add(newest)
        resumed = linked_run(**settings, checkpoints=checkpoints, resume_from=newest)
        for ours, theirs in zip(resumed(linkage), whole, strict=True):
            assert ours.weights.keys() == theirs.weights.keys()
            assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
            for name in ALIKE:
                assert getattr(ours, name) == getattr(theirs, name), name
            assert [epoch.loss for epoch in ours.epochs] == [epoch.loss for epoch in theirs.epochs]
        sent, all_sent = (crossed(run) for run in (resumed, uninterrupted))
        assert all_sent[len(all_sent) - len(sent) :] == sent
        assert (len(sent) < len(all_sent)) == (newest is not None)
    assert resumed_from == {None, *(f"r{repeat:03d}-e{epoch:06d}" for repeat in (0, 1) for epoch in (1, 2))}
    assert whole[0].section.early_stopping is not None


def test_both_go_back_to_the_best_epoch_after_a_restart_too(linked: Any, linked_run: Any, settings: dict[str, Any]) -> None:
    """As if training had been asked for so many epochs."""
    linkage = linked(200, 60, 3, labels=lambda x, mean: mean + x[::-1])
    settings["train"] = settings["train"].model_copy(update={"learning_rate": 0.1, "epochs": 12, "patience": 2})
    settings["evaluate"] = EVALUATE.model_copy(update={"repeats": 1})
    checkpoints = (MemoryCheckpoints(), MemoryCheckpoints())
    results = linked_run(**settings, checkpoints=checkpoints)(linkage)
    ((best, last),) = {(*of.section.early_stopping.best_epochs, *of.section.early_stopping.last_epochs) for of in results}
    assert 1 < best < last
    newest = checkpoints[0].names()[-1]
    assert newest == f"r000-e{last:06d}"
    resumed = linked_run(**settings, checkpoints=checkpoints, resume_from=newest)(linkage)
    settings["train"] = settings["train"].model_copy(update={"epochs": best})
    for kept, again, as_long in zip(results, resumed, linked_run(**settings)(linkage), strict=True):
        for name, tensor in as_long.weights.items():
            assert torch.equal(kept.weights[name], tensor)
            assert torch.equal(again.weights[name], tensor)
        assert kept.results.metrics == again.results.metrics == as_long.results.metrics


def test_other_secrets_give_other_bits(linked: Any, linked_run: Any, settings: dict[str, Any]) -> None:
    linkage = linked(60, 40, 3)
    one, other = (
        linked_run(**settings, seeds=(b"clinic's private randomness, 32b", seed))(linkage) for seed in (b"x" * 32, b"y" * 32)
    )
    assert not torch.equal(one[1].weights["bottom.cut.weight"], other[1].weights["bottom.cut.weight"])
