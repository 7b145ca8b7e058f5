"""A training that was killed at any checkpoint ends with the bits of one that was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.thorough import every
from vfl_node.errors import StateError
from vfl_node.job import Evaluate
from vfl_node.settings.protection import Compare
from vfl_node.training.checkpoints import FileCheckpoints, MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.split.missing.section import Missing

pytestmark = pytest.mark.usefixtures("audits")

NAMES = [f"r{repeat:03d}-e{epoch:06d}" for repeat in range(2) for epoch in range(1, 4)]


class KilledError(Exception):
    pass


class Fatal(MemoryCheckpoints):
    """Kills its party right after it has kept the checkpoint ``at``."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def save(self, name: str, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
        super().save(name, tensors, meta)
        if name == self.at:
            raise KilledError


@pytest.fixture
def settings(run: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)  # a checkpoint after each epoch, however short
    train = run().train.model_copy(update={"batch_size": 16, "missing": Missing(calibration="train"), "model": "wide_deep"})
    return {"train": train, "evaluate": Evaluate(repeats=2, share_with_passive=True)}


def assert_same(ours: Any, theirs: Any) -> None:
    assert_same_bits(ours, theirs)
    assert all(epoch.auc is not None for epoch in ours.epochs)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
    figures = [[(epoch.loss, epoch.auc, epoch.attacks) for epoch in of.epochs] for of in (ours, theirs)]
    assert figures[0] == figures[1]
    assert all(epoch.attacks for epoch in ours.epochs)
    for name in ("steps", "results", "encoder", "section", "disclosures", "audits"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.servable.state == theirs.servable.state


@pytest.mark.parametrize("optimizer", ["adam", pytest.param("sgd", marks=pytest.mark.slow)])
def test_resumed_from_any_checkpoint_the_result_has_the_same_bits(
    synthetic: Callable[..., Any], run: Any, settings: dict[str, Any], optimizer: str
) -> None:
    settings["train"] = settings["train"].model_copy(update={"optimizer": optimizer})
    parties = synthetic(140)
    uninterrupted = run(**settings)
    whole = uninterrupted(parties)
    for at, name in every(4, list(enumerate(NAMES))):
        killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal(name)))
        assert isinstance(killed.raw(parties)[1], KilledError)
        newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
        assert at - NAMES.index(newest) <= 1
        resumed = run(**settings, checkpoints=killed.checkpoints, resume_from=newest)
        for ours, theirs in zip(resumed(parties), whole, strict=True):
            assert_same(ours, theirs)
        assert len(resumed.transcript) < len(uninterrupted.transcript)


@pytest.mark.parametrize(
    ("labels", "features"), every(2, [("random-pred", "random"), ("neighbors", "gaussian"), ("random-pos", "smoothed")])
)
def test_what_is_drawn_in_every_step_or_averaged_over_steps_goes_on_as_well(
    synthetic: Callable[..., Any],
    run: Any,
    settings: dict[str, Any],
    labels: str,
    features: str,
) -> None:
    missing = Missing(labels=labels, features=features)
    settings = {
        "train": settings["train"].model_copy(update={"missing": missing, "batch_size": 32, "epochs": 6}),
        "evaluate": Evaluate(),
    }
    parties = synthetic(200)
    whole = run(**settings)(parties)
    for name in ("r000-e000004", "r000-e000006"):
        killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal(name)))
        assert isinstance(killed.raw(parties)[1], KilledError)
        newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
        for ours, theirs in zip(
            run(**settings, checkpoints=killed.checkpoints, resume_from=newest)(parties), whole, strict=True
        ):
            assert_same_bits(ours, theirs)


def test_checkpoints_in_files_resume_as_well(
    synthetic: Callable[..., Any], run: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    parties = synthetic(140)
    settings["compare"] = Compare(boosted_tree=True)
    keep = lambda: (FileCheckpoints(tmp_path / "clinic"), FileCheckpoints(tmp_path / "lab"))  # noqa: E731
    whole = run(**settings, checkpoints=keep())(parties)
    assert keep()[0].names() == tuple(NAMES[-2:])
    for name in NAMES[-2:]:
        for ours, theirs in zip(run(**settings, checkpoints=keep(), resume_from=name)(parties), whole, strict=True):
            assert_same(ours, theirs)


def test_resuming_does_not_train_the_local_model_again(
    synthetic: Callable[..., Any], run: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = synthetic(140)
    settings["evaluate"] = Evaluate()
    first = run(**settings)
    whole = first(parties)
    monkeypatch.setattr("vfl_node.training.split.base_rates.train_local", None)
    resumed = run(**settings, checkpoints=first.checkpoints, resume_from="r000-e000002")
    assert_same(resumed(parties)[0], whole[0])


def test_a_checkpoint_of_other_secrets_or_none_is_refused(
    synthetic: Callable[..., Any], run: Any, settings: dict[str, Any]
) -> None:
    parties = synthetic(140)
    settings["evaluate"] = Evaluate()
    first = run(**settings)
    first(parties)
    other = run(**settings, checkpoints=first.checkpoints, resume_from="r000-e000002", lab_seed=b"x" * 32)
    errors = [result for result in other.raw(parties) if isinstance(result, StateError)]
    assert errors
    assert errors[0].code == "E_REPLAY"
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        run(**settings, resume_from="r000-e000002")(parties)
