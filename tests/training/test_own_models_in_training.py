"""Architectures that owners declare: trained, resumed, asked for predictions, and refused where they are others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.predicting import TO_ACTIVE, TO_PASSIVE
from tests.training.test_resume import NAMES, Fatal, KilledError, assert_same_bits
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate
from vfl_node.models.storage import take_part
from vfl_node.session.pins import MemoryPins
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.tasks import probabilities
from vfl_node.training.split.prediction.model import VERSION

Make = Callable[..., Any]


def own(name: str) -> dict[str, str]:
    return {"own": f"tests.models.own_models:{name}"}


def trial_of(run: Any, *names: str, **changes: Any) -> Any:
    train = run().train.model_copy(update={"model": "own", **changes})
    return run(train=train, models=tuple(map(own, names)), evaluate=Evaluate(repeats=2))


@pytest.mark.parametrize(
    "names",
    [
        ("Gated", "Everything"),
        *(pytest.param((name, name), marks=pytest.mark.slow) for name in ("Gated", "Everything")),
    ],
)
def test_each_party_trains_its_own_half(synthetic: Make, run: Any, names: tuple[str, str]) -> None:
    """Their classes may differ: what crosses the wire is an embedding of the width that the job says."""
    clinic, lab = trial_of(run, *names, epochs=15)(synthetic(400))
    assert clinic.results.metrics["auc"] > 0.7
    assert clinic.results.alone.metrics["auc"] > 0.6
    assert any("gate" in name for name in take_part("bottom", clinic.weights)) == (names[0] == "Gated")
    assert any("norm.running_mean" in name for name in lab.weights) == (names[1] == "Everything")


def test_the_start_is_the_partys_own(synthetic: Make, run: Any) -> None:
    """Constructors of the class draw from torch's generator; what they draw is overwritten."""
    both, parties = trial_of(run, "Everything", "Everything", epochs=1), synthetic(200)
    torch.manual_seed(1)
    first = both(parties)
    torch.manual_seed(2)
    again = both(parties)
    other = dataclasses.replace(both, lab_seed=b"x" * 32, pins=(MemoryPins(), MemoryPins()))(parties)
    for ours, theirs in zip(first, again, strict=True):
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
    assert not all(torch.equal(first[1].weights[name], other[1].weights[name]) for name in first[1].weights)


@pytest.fixture(autouse=True)
def a_checkpoint_after_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short it is."""
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)


def killed_at(run: Any, parties: Any, name: str, checkpoint: str) -> tuple[Any, str]:
    killed = dataclasses.replace(trial_of(run, name, name, batch_size=16), checkpoints=(MemoryCheckpoints(), Fatal(checkpoint)))
    assert isinstance(killed.raw(parties)[1], KilledError)
    return killed, max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))


@pytest.mark.usefixtures("audits")
def test_a_killed_training_ends_with_the_same_bits(synthetic: Make, run: Any) -> None:
    parties = synthetic(140)
    whole = trial_of(run, "Everything", "Everything", batch_size=16)(parties)
    killed, newest = killed_at(run, parties, "Everything", NAMES[4])
    resumed = dataclasses.replace(killed, resume_from=newest)(parties)
    for ours, theirs in zip(resumed, whole, strict=True):
        assert_same_bits(ours, theirs)


def test_a_checkpoint_of_another_version_of_the_class_is_refused(synthetic: Make, run: Any) -> None:
    parties = synthetic(140)
    killed, newest = killed_at(run, parties, "Gated", NAMES[1])
    later = dataclasses.replace(killed, models=(own("LaterGated"), own("LaterGated")), resume_from=newest)
    with pytest.raises(StateError, match="by version 1 of model 'own', and this node has version 2") as caught:
        later(parties)
    assert caught.value.code == "E_STATE_VERSION"


def test_a_class_whose_weights_have_changed_without_a_new_version_is_refused(synthetic: Make, run: Any) -> None:
    parties = synthetic(140)
    killed, newest = killed_at(run, parties, "Gated", NAMES[1])
    other = dataclasses.replace(killed, models=(own("Everything"), own("Everything")), resume_from=newest)
    with pytest.raises(StateError, match="do not fit model 'own'") as caught:
        other(parties)
    assert caught.value.code == "E_STATE_CORRUPT"


@pytest.mark.parametrize("name", ["Gated", "Everything"])
def test_predictions_by_an_own_model(world: Make, name: str) -> None:
    made = world(model="own", models=own(name), owned=(1.0, 1.0))
    (answered,) = made.ask(TO_PASSIVE, made.known(made.parties.lab, range(12)))
    scorer, embedder = made.sides
    positions = embedder.positions(made.parties.lab.ids)[:12]
    with torch.no_grad():
        logits = scorer._model(scorer.inputs.take(positions), [embedder._bottom(embedder.inputs.take(positions))])
    assert answered == pytest.approx(probabilities(logits), abs=1e-5)


def test_a_stored_model_without_its_class_or_of_another_version_is_refused(world: Make) -> None:
    made = world(model="own", models=own("Gated"))
    stored = made.kept(1)
    assert stored.architecture.version == 1
    with pytest.raises(UsageError, match="has none of that name") as missing:
        dataclasses.replace(stored, models={}).architecture  # noqa: B018
    with pytest.raises(StateError, match="version") as other:
        dataclasses.replace(stored, models=own("LaterGated")).architecture  # noqa: B018
    assert (missing.value.code, other.value.code) == ("E_EXTENSION", "E_STATE_VERSION")


def test_a_model_stored_by_an_earlier_version_still_predicts_and_one_of_a_later_one_is_refused(world: Make) -> None:
    made = world()
    state = json.loads(made.results[0].servable.state)
    assert (state["version"], state["model_version"]) == (VERSION, 1)
    request = made.known(made.parties.clinic, range(5))
    (expected,) = made.ask(TO_ACTIVE, request)

    def stored_as(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        def changed(result: Any) -> Any:
            state = json.dumps(change(json.loads(result.servable.state)))
            return dataclasses.replace(result, servable=dataclasses.replace(result.servable, state=state))

        made.results = tuple(map(changed, made.results))

    stored_as(lambda state: {key: value for key, value in state.items() if key not in ("version", "model_version")})
    (answered,) = made.ask(TO_ACTIVE, made.known(made.parties.clinic, range(5)))
    assert np.array_equal(answered, expected)
    stored_as(lambda state: {**state, "version": VERSION + 1})
    with pytest.raises(StateError, match="a later vfl-node") as caught:
        made.sides  # noqa: B018
    assert caught.value.code == "E_STATE_VERSION"


def test_in_one_process_a_model_is_declared_for_all_parties(trial: Any, tmp_path: Any) -> None:
    job = trial.job("train: {model: gated, bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}")
    with pytest.raises(UsageError, match="has none of that name"):
        simulate(job, trial.files, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    folders = simulate(job, trial.files, tmp_path / "out", models={"gated": "tests.models.own_models:Gated"})
    assert (folders["lab"] / "report.json").exists()
