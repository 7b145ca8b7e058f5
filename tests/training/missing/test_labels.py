from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError
from vfl_node.training.split.missing.labels import neighbors as neighbors
from vfl_node.training.split.missing.labels.contract import Known, Labels, Step, build
from vfl_node.training.split.missing.strategies import LABELS

MADE = [name for name in LABELS if LABELS[name].fills and "classification" in LABELS[name].tasks]
SEED = b"the label holder's own randomness"[:32]


def known(labels: list[int] | np.ndarray[Any, Any], classes: int = 2, *, shared: int = 200) -> Known:
    return Known(np.asarray(labels, np.float32), shared, classes, Randomness(SEED))


def batch(classes: int = 2, rows: int = 60, *, number: int = 7, seed: int = 0, real: float = 0.6) -> Step:
    """A random batch of 200 shared rows, whose targets are not numbers where no label is real."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=rng)
    logits = torch.randn(rows, classes, generator=rng, requires_grad=True)
    is_real = torch.rand(rows, generator=rng) < real
    targets = labels.float() if classes == 2 else one_hot(labels, classes).float()
    targets[~is_real] = torch.nan
    seen = torch.softmax(logits, dim=1)
    positions = torch.randperm(200, generator=rng)[:rows].numpy()
    embedding = torch.randn(rows, 5, generator=rng)
    return Step(number, positions, is_real, targets, seen[:, 1] if classes == 2 else seen, embedding)


def chosen(strategy: str, of: Known, **keys: Any) -> Labels:
    return build(LABELS[strategy](**keys), of)


def made(strategy: str, of: Known, step: Step, **keys: Any) -> Tensor:
    return chosen(strategy, of, **keys).targets(step)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("strategy", MADE)
def test_targets_are_like_real_ones_and_the_same_again(strategy: str, classes: int) -> None:
    of, step, keys = known(np.arange(50) % classes, classes), batch(classes), {"draws": 3} if strategy == "random-pred" else {}
    targets = made(strategy, of, step, **keys)
    assert targets.shape == step.targets.shape
    assert targets.dtype == torch.float32
    assert not targets.requires_grad
    assert ((targets >= 0) & (targets <= 1)).all()
    if classes > 2:
        torch.testing.assert_close(targets.sum(dim=1), torch.ones(60))
    assert torch.equal(made(strategy, of, step, **keys), targets)


@pytest.mark.parametrize(
    ("labels", "classes", "majority", "minority"),
    [
        ([0, 1, 0], 2, 0, 1),
        ([1, 1, 0], 2, 1, 0),
        ([1, 0], 2, 0, 1),
        ([1, 1], 2, 1, 1),  # a class that does not occur is nobody's label
        ([3, 1, 3, 0, 1, 3], 5, 3, 0),
        ([4, 2, 4, 2, 0, 1], 5, 2, 1),
    ],
)
def test_majority_and_minority_are_one_class_everywhere(labels: list[int], classes: int, majority: int, minority: int) -> None:
    for strategy, expected in (("majority", majority), ("minority", minority)):
        targets = made(strategy, known(labels, classes), batch(classes))
        assert set((targets if classes == 2 else targets.argmax(dim=1)).tolist()) == {expected}
        assert chosen(strategy, known(labels, classes)).rate == float(expected == 1)


def test_random_pos_draws_once_a_position_as_often_as_real_labels_are() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    fixed = chosen("random-pos", known(labels, 3, shared=4000))
    everywhere = replace(batch(3), positions=np.arange(4000), number=1)
    drawn = fixed.targets(everywhere)
    np.testing.assert_allclose(drawn.mean(dim=0), [0.6, 0.3, 0.1], atol=0.025)  # three standard deviations
    assert fixed.rate == pytest.approx(0.3)
    again = fixed.targets(replace(everywhere, positions=np.array([17, 3, 17]), number=2))
    assert torch.equal(again, drawn[[17, 3, 17]])
    other = replace(known(labels, 3, shared=4000), randomness=Randomness(SEED[::-1]))
    assert not torch.equal(made("random-pos", other, everywhere), drawn)  # another job


@pytest.mark.parametrize("classes", [2, 4])
def test_random_pred_follows_the_model_without_bias(classes: int) -> None:
    """Its gradient, P' − y, is zero in the mean over steps; its variance falls as one over the draws."""
    variance = []
    for draws in (1, 10):
        predicted = chosen("random-pred", known([0, 1], classes), draws=draws)
        step = batch(classes)
        gradients = torch.stack([step.seen.detach() - predicted.targets(replace(step, number=n)) for n in range(400)])
        assert gradients.mean(dim=0).abs().max() < 4.5 * 0.5 / np.sqrt(400 * draws)  # 4.5 standard deviations at most
        assert gradients.mean().abs() < 1e-2
        variance.append(gradients.var(dim=0).mean().item())
        shares = predicted.targets(step) * draws
        torch.testing.assert_close(shares, shares.round())
    assert variance[0] == pytest.approx(
        (batch(classes).seen * (1 - batch(classes).seen)).mean().item(), rel=0.05
    )  # of single draws
    assert variance[0] / variance[1] == pytest.approx(10, rel=0.1)
    assert chosen("random-pred", known([0, 1])).rate == "model"


def test_random_pred_draws_anew_in_every_step_and_is_sure_where_the_model_is() -> None:
    of, step = known([0, 1]), batch(rows=200)
    assert not torch.equal(made("random-pred", of, step), made("random-pred", of, replace(step, number=8)))
    sure = torch.tensor([0.0, 1.0]).repeat(100)
    assert torch.equal(made("random-pred", of, replace(step, seen=sure)), sure)
    classes = one_hot(torch.arange(200) % 3, 3).float()
    assert torch.equal(made("random-pred", known([0, 1], 3), replace(step, seen=classes)), classes)


def voted(of: Known, step: Step) -> list[int]:
    """What ``neighbors`` should say, row by row."""
    frequent = sorted(range(of.classes), key=lambda label: (-np.count_nonzero(of.labels == label), label))
    labels = step.targets if step.targets.dim() == 1 else step.targets.argmax(dim=1)
    found = []
    for row, embedding in enumerate(step.embedding):
        others = [other for other in range(len(step.real)) if step.real[other] and other != row]
        cosine = torch.cosine_similarity(embedding[None], step.embedding[others])
        nearest = [others[i] for i in cosine.argsort(descending=True)[:3].tolist()]
        votes = Counter(int(labels[other]) for other in nearest)
        found.append(max(frequent, key=lambda label: votes[label]))  # the first of those with most votes
    return found


@pytest.mark.parametrize("real", [0, 1, 2, 3, 40, 60])
@pytest.mark.parametrize("classes", [2, 4])
def test_neighbors_are_the_three_nearest_other_rows_with_a_real_label(
    classes: int, real: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = known([1, 1, 0, 1] if classes == 2 else [3, 3, 3, 1, 1, 0], classes)
    step = replace(batch(classes, real=1), real=torch.arange(60) < real)
    step.targets[real:] = torch.nan
    expected = torch.tensor(voted(of, step))
    for block in (neighbors.BLOCK, 7):
        monkeypatch.setattr(neighbors, "BLOCK", block)
        targets = made("neighbors", of, step)
        assert torch.equal((targets if classes == 2 else targets.argmax(dim=1)).long(), expected)
    if real == 0:
        assert set(expected.tolist()) == {of.ranked[0]}


def test_neighbors_of_a_lone_row_and_of_embeddings_that_are_zero() -> None:
    of, lone = known([1, 1, 0]), replace(batch(rows=1), real=torch.tensor([True]), targets=torch.tensor([0.0]))
    assert made("neighbors", of, lone).tolist() == [1]
    step = batch()
    assert made("neighbors", of, replace(step, embedding=torch.zeros_like(step.embedding))).isfinite().all()


def test_neighbors_say_what_similar_rows_are() -> None:
    step = batch(rows=200)
    truth = (torch.arange(200) % 2).float()
    apart = step.embedding + 6 * torch.stack([truth, 1 - truth, *[torch.zeros(200)] * 3], dim=1)
    targets = made(
        "neighbors", known([0, 1, 0]), replace(step, embedding=apart, targets=torch.where(step.real, truth, torch.nan))
    )
    assert (targets == truth).float().mean() > 0.97
    assert chosen("neighbors", known([0, 1])).rate == "vote"


def test_no_label_to_learn_from_and_no_strategy_are_refused() -> None:
    with pytest.raises(DataError, match="E_EMPTY"):
        known([])
    with pytest.raises(UsageError, match=r"missing\.labels"):
        chosen("none", known([1]))


def test_every_strategy_has_a_rate_that_calibration_knows() -> None:
    for strategy in MADE:
        strategy_labels = chosen(strategy, known([0, 1, 0]))
        assert strategy_labels.rate in ("model", "vote") or 0 <= float(strategy_labels.rate) <= 1
