"""What the label strategies do to a whole training: to its bits, its probabilities and its transcript."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.thorough import every
from vfl_node.job import Evaluate
from vfl_node.privacy.attacks.longitudinal import Longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.labels.contract import Known, Labels, Step
from vfl_node.training.split.missing.labels.made_up import majority
from vfl_node.training.split.missing.labels.specs import Majority, RandomPos
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import LABELS
from vfl_node.training.split.supervision import Supervision
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EPOCHS = 5
REPEATS = itertools.count()


def majority_of_this_repeat(strategy: Majority, known: Known) -> Labels:
    """The mistake: the majority of half the labels, other ones in each repeat."""
    drawn = known.randomness.derive(f"half/{next(REPEATS)}").permutation(len(known.labels))[: len(known.labels) // 2]
    return majority(strategy, replace(known, labels=known.labels[drawn]))


class Redrawn:
    """The mistake: a label as frequent as it is, drawn anew in every step."""

    rate = 0.3

    def __init__(self, strategy: RandomPos, known: Known) -> None:
        self._known = known

    def targets(self, step: Step) -> Tensor:
        drawn = self._known.randomness.derive(str(step.number)).choices(len(self._known.labels), len(step.positions))
        return torch.from_numpy(self._known.labels[drawn])


def guessed(both: Any, parties: Any) -> float:
    """AUC of the passive party's guess which labels are synthetic, from the gradients of all epochs."""
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)
    steps = [
        (epoch, positions)
        for epoch in range(EPOCHS)
        for positions in schedule.batches(0, epoch, training, both.train.batch_size)
    ]
    sent = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Gradient)]
    transcript = [
        Batch(epoch, positions, codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)))
        for (epoch, positions), tensor in zip(steps, sent, strict=True)
    ]
    found = follow(Longitudinal, transcript, ~parties.clinic_view.owned).score()
    assert found is not None
    return found


@pytest.mark.parametrize("redrawn", [False, True])
def test_redrawn_labels_are_found_and_fixed_ones_are_not(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch, redrawn: bool
) -> None:
    if redrawn:
        monkeypatch.setattr(RandomPos, "implementation", f"{__name__}:Redrawn")
    missing = Missing(labels="random-pos")
    both = run(train=Train(bottom=(32, 16), active_bottom=(8,), top=(16,), epochs=EPOCHS, batch_size=128, missing=missing))
    parties = synthetic(2000, (0.5, 0.8))
    both(parties)
    if redrawn:
        assert guessed(both, parties) > 0.75
    else:
        assert guessed(both, parties) == pytest.approx(0.5, abs=0.06)  # two standard errors are .03


@pytest.mark.slow
def test_the_rarer_label_for_all_raises_the_probabilities_and_calibration_puts_them_back(
    synthetic: Callable[..., Any], run: Any
) -> None:
    """As tests/training/test_calibration_effect.py has it for the more frequent one."""
    parties = synthetic(6000, (0.5, 0.7), active_features=False, independent=True, seed=1)
    ace = {}
    for calibration in every(2, ("none", "test", "train")):
        train = Train(
            bottom=(32, 16),
            top=(16,),
            epochs=6,
            batch_size=128,
            learning_rate=3e-3,
            missing=Missing(labels="minority", calibration=calibration),  # type: ignore[arg-type]
        )
        ace[calibration] = run(train=train, evaluate=Evaluate(test_fraction=0.3))(parties)[0].results.metrics["ace"]
    lacking, negatives = 1 - parties.clinic_view.owned.mean(), 1 - parties.clinic.labels.mean()
    assert ace["none"] == pytest.approx(lacking * negatives, abs=0.035)
    assert max(ace[name] for name in ace if name != "none") < 0.5 * ace["none"]  # about .03 is the noise of 15 bins of 60 rows


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("strategy", [name for name in LABELS if LABELS[name].fills and "classification" in LABELS[name].tasks])
def test_every_strategy_trains_and_ends_with_the_same_bits_after_a_restart(
    synthetic: Callable[..., Any], run: Any, strategy: str, classes: int
) -> None:
    parties = synthetic(300, (0.6, 0.8))
    if classes == 3:
        parties.clinic.labels[::5] = 2
    keys = {"draws": 3} if strategy == "random-pred" else {}
    missing = Train.model_validate({"missing": {"labels": strategy, **keys}}).missing
    train = run().train.model_copy(update={"missing": missing, "classes": classes})
    whole = run(train=train)
    first = whole(parties)[0]
    resumed = run(train=train, checkpoints=whole.checkpoints, resume_from=min(whole.checkpoints[0].names()))
    again = resumed(parties)[0]
    assert 0 < len(resumed.transcript) < len(whole.transcript)
    assert all(torch.equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert first.results.metrics == again.results.metrics
    assert all(np.isfinite(list(first.results.metrics.values())))


def labels_used(parties: Any, both: Any, monkeypatch: pytest.MonkeyPatch) -> dict[int, set[float]]:
    """Shared position → the labels it was trained on with, in all repeats."""
    found: dict[int, set[float]] = {}
    used = Supervision.step_targets

    def watched(self: Supervision, number: int, positions: Any, *others: Tensor) -> Tensor:
        targets = used(self, number, positions, *others)
        for position, target in zip(positions.tolist(), targets.tolist(), strict=True):
            found.setdefault(position, set()).add(target)
        return targets

    monkeypatch.setattr(Supervision, "step_targets", watched)
    both(parties)
    return found


@pytest.mark.parametrize("strategy", ["majority", "minority", "random-pos"])
def test_a_label_that_is_fixed_is_so_in_every_repeat(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """Real labels are the same in all repeats, so one that is not would be known to be synthetic; classes are nearly even."""
    train = run().train.model_copy(update={"missing": Missing(labels=strategy), "epochs": 1})
    parties = synthetic(160, (0.5, 0.8), positives=0.5)
    found = labels_used(parties, run(train=train, evaluate=Evaluate(repeats=8, test_fraction=0.5)), monkeypatch)
    assert len(found) == len(parties.people)
    assert all(len(labels) == 1 for labels in found.values())


def test_a_majority_of_the_rows_trained_on_would_change_between_repeats(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake: each repeat decides anew, and the labels that change are just the synthetic ones."""

    monkeypatch.setattr(Majority, "implementation", f"{__name__}:majority_of_this_repeat")
    parties = synthetic(160, (0.5, 0.8), positives=0.5)
    both = run(train=run().train.model_copy(update={"epochs": 1}), evaluate=Evaluate(repeats=8, test_fraction=0.5))
    found = labels_used(parties, both, monkeypatch)
    changing = {position for position, labels in found.items() if len(labels) > 1}
    assert len(changing) > 20
    assert not any(parties.clinic_view.owned[position] for position in changing)


@pytest.mark.parametrize("strategy", ["majority", "random-pos", "random-pred", "neighbors"])
def test_gradients_of_synthetic_labels_are_rows_like_any_other(synthetic: Callable[..., Any], run: Any, strategy: str) -> None:
    """Same dtype and shape, finite, no row of zeros, and norms within the range of those of real labels."""
    missing = Missing(labels=strategy)
    both = run(train=Train(bottom=(32, 32), active_bottom=(8,), top=(32,), epochs=1, batch_size=200, missing=missing))
    parties = synthetic(1200, (0.5, 0.8))
    both(parties)
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)
    sent = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Gradient)]
    for positions, tensor in zip(schedule.batches(0, 0, training, 200), sent, strict=True):
        rows = codec.decode(tensor, dtype=torch.float32, shape=(len(positions), 32))
        norms = rows.double().norm(dim=1)
        real = torch.from_numpy(parties.clinic_view.owned[positions])
        assert bool(norms.isfinite().all())
        assert bool((norms > 0).all())
        assert norms[~real].max() < 2 * norms[real].max()
        assert norms[~real].min() > norms[real].min() / 10
