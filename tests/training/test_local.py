"""The active party's own model that gives calibration its q, and what its training must not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.sessions import session
from tests.thorough import examples
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models.storage import take_part
from vfl_node.training.network.half import RepeatStart
from vfl_node.training.split import base_rates
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.tasks import ClassLabels
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels

SECRET = b"clinic's private randomness, 32b"


def half(parties: Any, calibration: str = "none", *, protocol: str = "psu") -> ActiveHalf:
    train = Train(
        bottom=(8,), active_bottom=(16,), top=(16,), epochs=20, batch_size=32, learning_rate=1e-2,
        missing=Missing(calibration=calibration),
    )  # fmt: skip
    view = replace(parties.clinic_view, spec=ALIGNMENTS[protocol])
    channel, _ = memory_channels("clinic", "lab")
    own, data = session("clinic", {"lab": channel}, Randomness(SECRET), train=train), TrainingData(view, parties.clinic)
    return ActiveHalf(own, data, RepeatStart(Randomness(SECRET), Randomness(SECRET[::-1]), 0, np.arange(len(view))))


def rates(half: ActiveHalf) -> Tensor:
    """q of each shared row."""
    return half._supervision._base_rate


def alone(half: ActiveHalf) -> dict[str, Tensor]:
    """Weights of the model that gives it."""
    return take_part("local", half.weights())


def with_other_label(parties: Any, row: int) -> Any:
    labels = parties.clinic.labels.copy()
    labels[row] = 1 - labels[row]
    return replace(parties, clinic=replace(parties.clinic, labels=labels))


@pytest.mark.parametrize(("calibration", "learnt"), [("train", False), ("test", True)])
def test_in_the_loss_q_of_a_row_does_not_come_from_its_own_label(
    synthetic: Callable[..., Any], calibration: str, learnt: bool
) -> None:
    """At test q is asked for rows that were not learnt, and the one model of all rows is the better one."""
    parties = synthetic(200, (0.8, 0.8))
    before = rates(half(parties, calibration))
    for position in np.flatnonzero(parties.clinic_view.owned)[: examples(5, fewer=2)]:
        after = rates(half(with_other_label(parties, int(parties.clinic_view.rows[position])), calibration))
        assert (after[position] != before[position]) == learnt
        assert bool((after != before).any())


def test_without_calibration_q_is_the_rate_of_positives(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(200, (0.8, 0.8))
    assert torch.allclose(rates(half(parties)), torch.tensor(float(parties.clinic.labels.mean())), atol=1e-6)


@pytest.mark.parametrize("protocol", ["apsi", "psu"])
def test_a_model_for_calibration_takes_as_long_however_many_rows_are_owned(
    synthetic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The peer waits for it, and sees how long it takes: apsi hides how many rows are shared, padding how many a party has."""
    steps: list[int] = []
    real = base_rates.train_local

    def counting(*arguments: Any, **named: Any) -> None:
        steps.append(len(arguments[4]))
        real(*arguments, **named)

    monkeypatch.setattr(base_rates, "train_local", counting)
    for share in (0.3, 0.9):
        parties = synthetic(300, (share, 1.0), independent=True)
        half(parties, "test", protocol=protocol)
    assert steps == [300, 300]


@pytest.mark.parametrize("protocol", ["apsi", "psu"])
def test_rows_without_a_label_are_not_learnt_from(synthetic: Callable[..., Any], protocol: str) -> None:
    """They take part in every batch and count for nothing."""
    parties = synthetic(300, (0.5, 1.0), independent=True)
    found = half(parties, "test", protocol=protocol)
    before = {name: tensor.clone() for name, tensor in alone(found).items()}
    assert before
    targets = ClassLabels.targets

    def others(self: ClassLabels, labels: Any) -> Any:
        return targets(self, np.where(parties.clinic_view.owned, labels, np.float32(1)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassLabels, "targets", others)
        again = half(parties, "test", protocol=protocol)
    assert alone(again).keys() == before.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in alone(again).items())


def test_no_label_among_the_rows_trained_on_is_said(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(100, (0.5, 1.0), independent=True)
    train = Train(bottom=(8,), active_bottom=(4,), top=(8,), epochs=1, batch_size=32)
    channel = memory_channels("a", "b")[0]
    own, data = (
        session("clinic", {"lab": channel}, Randomness(SECRET), train=train),
        TrainingData(parties.clinic_view, parties.clinic),
    )
    foreign = np.flatnonzero(~parties.clinic_view.owned)
    with pytest.raises(DataError, match="E_EMPTY"):
        ActiveHalf(own, data, RepeatStart(Randomness(SECRET), Randomness(SECRET), 0, foreign))
