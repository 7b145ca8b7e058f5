"""What the label strategies do to a whole training: to its bits, its probabilities and its transcript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.job import Evaluate, Missing, Train
from vfl_node.privacy.attacks import longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.training.missing.labels import LABELS, Known, Step
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EPOCHS = 5


class Redrawn:
    """The mistake: a label as frequent as it is, drawn anew in every step."""

    rate = 0.3

    def __init__(self, known: Known) -> None:
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
    found = longitudinal.attack(transcript, ~parties.clinic_view.owned)
    assert found is not None
    return found


@pytest.mark.parametrize("redrawn", [False, True])
def test_redrawn_labels_are_found_and_fixed_ones_are_not(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch, redrawn: bool
) -> None:
    if redrawn:
        monkeypatch.setitem(LABELS, "random-pos", Redrawn)
    missing = Missing(labels="random-pos")
    both = run(train=Train(bottom=(32, 16), active_bottom=(8,), top=(16,), epochs=EPOCHS, batch_size=128, missing=missing))
    parties = synthetic(2000, (0.5, 0.8))
    both(parties)
    if redrawn:
        assert guessed(both, parties) > 0.75
    else:
        assert guessed(both, parties) == pytest.approx(0.5, abs=0.06)  # two standard errors are .03


def test_the_rarer_label_for_all_raises_the_probabilities_and_calibration_puts_them_back(
    synthetic: Callable[..., Any], run: Any
) -> None:
    """As tests/training/test_calibration_effect.py has it for the more frequent one."""
    parties = synthetic(6000, (0.5, 0.7), active_features=False, independent=True, seed=1)
    ace = {}
    for calibration in ("none", "test", "train"):
        train = Train(
            bottom=(32, 16),
            top=(16,),
            epochs=6,
            batch_size=128,
            learning_rate=3e-3,
            missing=Missing(labels="minority", calibration=calibration),  # type: ignore[arg-type]
        )
        ace[calibration] = run(train=train, evaluate=Evaluate(test_fraction=0.3))(parties)[0].metrics["ace"]
    lacking, negatives = 1 - parties.clinic_view.owned.mean(), 1 - parties.clinic.labels.mean()
    assert ace["none"] == pytest.approx(lacking * negatives, abs=0.035)
    assert max(ace["test"], ace["train"]) < 0.5 * ace["none"]  # about .03 is the noise of 15 bins of 60 rows


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strategy", sorted(set(LABELS) - {"none"}))
def test_every_strategy_trains_and_ends_with_the_same_bits_after_a_restart(
    synthetic: Callable[..., Any], run: Any, strategy: str, classes: int
) -> None:
    parties = synthetic(300, (0.6, 0.8))
    if classes == 3:
        parties.clinic.labels[::5] = 2
    missing = Missing(labels=strategy, draws=3 if strategy == "random-pred" else 1)  # type: ignore[arg-type]
    train = run().train.model_copy(update={"missing": missing, "classes": classes})
    whole = run(train=train)
    first = whole(parties)[0]
    resumed = run(train=train, checkpoints=whole.checkpoints, resume_from=min(whole.checkpoints[0].names()))
    again = resumed(parties)[0]
    assert 0 < len(resumed.transcript) < len(whole.transcript)
    assert all(torch.equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert first.metrics == again.metrics
    assert all(np.isfinite(list(first.metrics.values())))
