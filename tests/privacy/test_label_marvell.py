"""Stronger attacks on Marvell than those of the meter: shapes of the classes, and batches of one class."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import auc
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, build
from vfl_node.settings.defences import read_params

ROWS, WIDTH = 8192, 16


def marvell() -> Defence:
    (made,) = build(
        [read_params({"name": "marvell", "power": 4})], Sender("gradients", np.ones(ROWS, dtype=bool)), Randomness(bytes(32))
    )
    return made


def leaving(labels: Tensor, step: int = 0) -> Leaving:
    return Leaving(f"step/{step}", np.arange(len(labels)), labels=labels, mean_of=len(labels))


def folded(labels: Tensor, scores: Tensor) -> float:
    value = auc(labels.numpy(), scores.double().numpy())
    assert value is not None
    return max(value, 1 - value)


def cones(share: float) -> tuple[Tensor, Tensor]:
    """Gradients under a top with ReLU, which lie on a cone for each set of units that are on; and labels."""
    drawn = np.random.default_rng(4)
    labels = torch.from_numpy((drawn.random(ROWS) < share).astype(np.float32))
    hidden = torch.from_numpy(drawn.normal(size=(ROWS, WIDTH)).astype(np.float32)) + 0.5 * labels[:, None]
    layer = torch.from_numpy(drawn.normal(size=(WIDTH, 16)).astype(np.float32)) / math.sqrt(WIDTH)
    last = torch.from_numpy(drawn.normal(size=16).astype(np.float32)) / 4
    on = (hidden @ layer > 0).float()
    error = torch.sigmoid((hidden @ layer).relu() @ last + math.log(share / (1 - share))) - labels
    return error[:, None] * (on * last) @ layer.T / ROWS, labels


def neighbours(sent: Tensor, labels: Tensor) -> Tensor:
    """Share of positives among the 25 nearest of the first half's rows, of which the labels are known; of the second half."""
    centred = (sent - sent.mean(dim=0)).double()
    _, values, axes = torch.linalg.svd(centred, full_matrices=False)
    white = centred @ axes.T / values
    half = len(sent) // 2
    nearest = torch.cdist(white[half:], white[:half]).topk(25, largest=False).indices
    return labels[nearest].mean(dim=1)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_known_labels_of_one_batch_do_not_tell_the_others(share: float) -> None:
    given, labels = cones(share)
    half = ROWS // 2
    assert folded(labels[half:], neighbours(given, labels)) > 0.85
    sent = marvell().protect(given, leaving(labels))
    assert folded(labels[half:], neighbours(sent, labels)) < 0.64


@pytest.mark.parametrize("share", [0.01, 0.1])
@pytest.mark.parametrize("ratio", [0.3e-3, 0.9e-3, 1.1e-3, 5e-3, 0.05])
def test_a_direction_of_one_class_alone_tells_nothing_however_weak_it_is(ratio: float, share: float) -> None:
    """``ratio``: of its singular value to the largest, on both sides of what counts as the row space."""
    drawn = np.random.default_rng(1)
    labels = torch.from_numpy((drawn.random(ROWS) < share).astype(np.float32))
    given = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    given[:, 0] = torch.from_numpy(drawn.random(ROWS) * 0.2 + 0.05) * torch.where(labels > 0, -3.0, 1.0)
    given[:, 1] = torch.from_numpy(drawn.normal(size=ROWS)) * 0.02
    own = torch.from_numpy(drawn.normal(size=ROWS)) * labels
    given[:, 2] = own / own.norm() * ratio * torch.linalg.svdvals(given)[0]
    sent = marvell().protect((given / ROWS).float(), leaving(labels))
    assert folded(labels, sent[:, 1].abs()) < 0.62
    assert folded(labels, sent[:, 2].abs()) < 0.62
    assert folded(labels, sent[:, 1:].norm(dim=1)) < 0.62


def test_a_short_batch_of_one_class_gets_as_much_noise_as_its_longer_gradients_need() -> None:
    """The last batch of an epoch may have a few rows: in the mean of few losses each row's gradient is larger."""
    given, labels = cones(0.2)
    made, alone = marvell(), torch.nonzero(labels == 0)[:1, 0]
    one = given[alone] * ROWS
    for step in range(2):
        before = made.protect(given, leaving(labels, step)) - given
    noises = torch.cat([made.protect(one, leaving(torch.zeros(1), 10 + step)) - one for step in range(400)])
    expected = (before[labels == 0] * ROWS).square().sum(dim=1).mean().sqrt()
    assert noises.square().sum(dim=1).mean().sqrt().item() == pytest.approx(expected.item(), rel=0.15)
