"""Class weights: what a job may say, what they do to the loss and to what is sent, and what they do not combine with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job, parse_job
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.class_weight import weight_of_classes
from vfl_node.training.split.class_weight import WeightedIdentity
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Identity
from vfl_node.training.split.tasks import ClassLabels
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

Make = Callable[..., Any]

HEAD = "name: trial\nparties: {active: clinic, passive: lab}\n"


def job(train: str, rest: str = "") -> Job:
    return parse(f"{HEAD}train: {{{train}}}\n{rest}", Job, source="job.yaml")


@pytest.mark.parametrize("written", ["{0: 1, 1: 5}", "[1, 5]", "{1: 5.0, 0: 1.0}", "{'1': 5, '0': 1}"])
def test_every_way_to_write_weights_is_the_same_job(written: str) -> None:
    weighted = job(f"class_weight: {written}")
    assert Train.section_of(weighted).class_weight == (1.0, 5.0)
    assert weighted.digest() == job("class_weight: [1, 5]").digest() != job("class_weight: null").digest()
    assert parse_job(weighted.canonical(), source="job").digest() == weighted.digest()


ODD = "'train.class_weight': it is balanced, or a number above 0 and up to 10,000 for each class, such as [1, 5]"
NUMBERS = (
    "'train.class_weight': it needs the number of every class, from 0, such as {0: 1, 1: 5}; names of classes are private, "
    "and a job is public"
)
SHIFTED = (
    "'train': class_weight shifts the model's probabilities, and missing.calibration computes with them as shares of rows: "
    "leave one out. To predict a rare class more often, evaluate.threshold shifts nothing"
)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("class_weight: even", ODD),
        ("class_weight: 5", ODD),
        ("class_weight: []", ODD),
        ("class_weight: [1, 0]", ODD),
        ("class_weight: [1, .nan]", ODD),
        ("class_weight: [1, 10001]", ODD),
        ("class_weight: [1, true]", ODD),
        ("class_weight: {0: 1, 1: heavy}", ODD),
        ("class_weight: {benign: 1, malignant: 5}", NUMBERS),
        ("class_weight: {1: 5}", NUMBERS),
        ("class_weight: [1, 5, 2]", "'train': class_weight has 3 weights, and the job has 2 classes (train.classes)"),
        ("class_weight: [1, 5], missing: {calibration: test}", SHIFTED),
        ("class_weight: balanced, missing: {calibration: train}", SHIFTED),
    ],
)
def test_what_a_job_may_not_say(train: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(train)
    assert caught.value.message.endswith(message)


def test_another_tool_s_name_has_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        job("pos_weight: 5")
    assert "did you mean 'class_weight'?" in caught.value.hint


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.repeat([0, 1, 3], [60, 30, 10])
    shares = np.bincount(labels, minlength=5) / 100
    weights = weight_of_classes("balanced", shares)
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=labels)
    assert weights[[0, 1, 3]] == pytest.approx(expected)
    assert weights[[2, 4]].tolist() == [1, 1]
    assert weights[labels].mean() == pytest.approx(1)
    assert weight_of_classes((1.0, 5.0), np.array([0.5, 0.5])).tolist() == [1, 5]


@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_counts_every_term_by_its_class(classes: int) -> None:
    weights = np.array([0.5, 4.0, 2.0])[:classes]
    logits = torch.randn(5) if classes == 2 else torch.randn(5, 3)
    targets = torch.rand(5) if classes == 2 else torch.rand(5, 3).softmax(dim=1)
    p = torch.sigmoid(logits) if classes == 2 else torch.softmax(logits, dim=1)
    both = (p, targets) if classes > 2 else (torch.stack([1 - p, p], 1), torch.stack([1 - targets, targets], 1))
    expected = -(torch.from_numpy(weights).float() * both[1] * both[0].log()).sum(dim=1)
    weighted = WeightedIdentity(weights)
    torch.testing.assert_close(weighted.losses(logits, targets), expected)
    torch.testing.assert_close(weighted.loss(logits, targets, torch.zeros(5)), expected.mean())
    alike = WeightedIdentity(np.ones(classes))
    torch.testing.assert_close(alike.losses(logits, targets), ClassLabels(classes, None, 0.5).losses(logits, targets))


@pytest.mark.parametrize("classes", [2, 3])
def test_what_the_data_show_is_seen_without_the_weights(classes: int) -> None:
    """The minimum of the weighted loss on rows of which a known share is of each class."""
    weights, shares = np.array([0.5, 4.0, 2.0])[:classes], torch.tensor([0.7, 0.2, 0.1])[:classes]
    shares = shares / shares.sum()
    weighted = WeightedIdentity(weights)
    logits = torch.zeros(1 if classes == 2 else (1, 3), requires_grad=True)
    targets = shares[1:] if classes == 2 else shares[None]
    optimiser = torch.optim.LBFGS([logits], max_iter=100)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = weighted.loss(logits, targets, torch.zeros(1))
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(weighted.observed_output(logits, torch.zeros(1)), targets, atol=1e-4, rtol=0)
    shifted = torch.from_numpy(weighted.probability(logits, torch.zeros(1)))
    by_hand = torch.from_numpy(weights) * shares.double() / (torch.from_numpy(weights) * shares).sum()
    torch.testing.assert_close(shifted, by_hand[1:] if classes == 2 else by_hand[None], atol=1e-4, rtol=0)
    assert Identity.from_json(weighted.to_json()).to_json() == Identity().to_json()


def gradients(both: Any) -> Tensor:
    """Those of the first step."""
    sent = next(message for message in both.transcript if isinstance(message, training_pb2.Gradient))
    return codec.decode(sent.tensor, dtype=torch.float32, shape=tuple(sent.tensor.shape))


def test_a_row_s_gradient_counts_by_the_label_it_is_trained_with(synthetic: Make, run: Make) -> None:
    """Also where the label is synthetic: its length must not tell that."""
    parties = synthetic(people=120)
    plain, weighted = (run(run.train.model_copy(update={"epochs": 1, "class_weight": of})) for of in (None, (1.0, 5.0)))
    plain(parties)
    active, passive = weighted(parties)
    schedule = weighted.schedule(parties)
    positions, *_ = schedule.batches(0, 0, schedule.split(0, 0.2)[0], 64)
    owned = parties.clinic_view.owned[positions]
    assert not owned.all()
    labels = np.where(owned, parties.clinic.labels[parties.clinic_view.rows[positions]], 0)
    times = torch.from_numpy(np.where(labels == 1, 5.0, 1.0)).float()
    torch.testing.assert_close(gradients(weighted), times[:, None] * gradients(plain))
    said = {entry.what: entry.text for entry in passive.disclosures["lab"]}
    assert "each is as many times longer as its class counts more (train.class_weight)" in said["gradients"]
    assert said == {entry.what: entry.text for entry in active.disclosures["lab"]}


def test_balanced_weights_are_those_of_the_labels_trained_on(synthetic: Make, run: Make) -> None:
    parties = synthetic(people=150, positives=0.2)
    balanced = run(run.train.model_copy(update={"epochs": 2, "class_weight": "balanced"}))
    training, _ = balanced.schedule(parties).split(0, 0.2)
    rows = parties.clinic_view.rows[training]
    labels = parties.clinic.labels[rows[rows >= 0]]
    weights = tuple(len(labels) / (2 * np.count_nonzero(labels == k)) for k in (0, 1))
    first, passive = balanced(parties)
    second, _ = run(run.train.model_copy(update={"epochs": 2, "class_weight": weights}))(parties)
    third, _ = run(run.train.model_copy(update={"epochs": 2}))(parties)
    for name, tensor in first.weights.items():
        torch.testing.assert_close(tensor, second.weights[name])
    assert any(not torch.equal(first.weights[name], third.weights[name]) for name in first.weights)
    assert first.results.alone.metrics == pytest.approx(second.results.alone.metrics)
    assert first.results.alone.metrics["nll"] != pytest.approx(third.results.alone.metrics["nll"])
    (text,) = (entry.text for entry in passive.disclosures["lab"] if entry.what == "gradients")
    assert "the lengths tell how frequent each class is among clinic's labels" in text


def test_weights_help_a_rare_class_and_shift_probabilities(synthetic: Make, run: Make) -> None:
    parties = synthetic(people=800, owned=(1.0, 1.0), positives=0.1)
    plain, balanced = (
        run(run.train.model_copy(update={"epochs": 6, "class_weight": of}))(parties)[0] for of in (None, "balanced")
    )
    assert balanced.results.confusion[1][1] > plain.results.confusion[1][1]  # positives that are predicted
    assert balanced.results.metrics["ace"] > plain.results.metrics["ace"]


def test_noise_hides_the_row_of_the_largest_weight_as_well(synthetic: Make, run: Make) -> None:
    parties = synthetic(people=120)
    noise = Protection(defences=(read_params({"name": "noise", "sigma": 1000.0}),))
    spread = []
    for weights in (None, (1.0, 5.0)):
        both = run(run.train.model_copy(update={"epochs": 1, "class_weight": weights}), protections=(noise, Protection()))
        both(parties)
        spread.append(gradients(both).std().item())
    assert spread[1] / spread[0] == pytest.approx(5, rel=0.01)


def test_without_weights_the_losses_are_torch_s() -> None:
    logits, targets = torch.randn(4), torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert torch.equal(
        ClassLabels(2, None, 0.5).losses(logits, targets), binary_cross_entropy_with_logits(logits, targets, reduction="none")
    )
