"""Vectors of the affine map, its stable form, and the map itself by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import DataError
from vfl_node.training.missing.calibration import CALIBRATIONS, AtTest, AtTraining, Composition, Identity

LOGIT, P_A, P_P, PI = 0.4, 0.5, 0.7, 0.25
LABELS = Composition(P_A, 0.0, 1 - P_A, 0.0)
FEATURES = Composition(P_P, 1 - P_P, 0.0, 0.0)
BOTH = Composition(P_A * P_P, P_A * (1 - P_P), 1 - P_A, 0.0)


def rate(value: float, rows: int = 1) -> torch.Tensor:
    return torch.full((rows,), value)


@pytest.mark.parametrize(
    ("mix", "positive", "negative"),
    [(LABELS, 1.206162, 0.355738), (FEATURES, 0.705055, 0.681379), (BOTH, 1.398202, 0.283744)],
)
def test_the_training_loss_meets_its_vectors(mix: Composition, positive: float, negative: float) -> None:
    loss = AtTraining(mix).loss
    assert loss(torch.tensor([LOGIT]), torch.tensor([1.0]), rate(PI)).item() == pytest.approx(positive, abs=1e-6)
    assert loss(torch.tensor([LOGIT]), torch.tensor([0.0]), rate(PI)).item() == pytest.approx(negative, abs=1e-6)


@pytest.mark.parametrize(("model", "true"), [(0.3, 0.75), (0.9, 2.464)])
def test_the_inverse_map_meets_its_vectors_before_clipping(model: float, true: float) -> None:
    logit = torch.tensor([math.log(model / (1 - model))])
    assert AtTest(BOTH).probability(logit, rate(PI))[0] == pytest.approx(true, abs=1e-3)


def test_weights_are_counts_of_the_union() -> None:
    rows = np.concatenate([np.arange(60), np.full(40, -1)])
    union = Alignment("psu", "curve25519", rows, ours=60, theirs=80, intersection=40)
    assert Composition.of(union, 0.0) == Composition(0.4, 0.2, pytest.approx(0.4), 0.0)


def test_an_intersection_without_missing_rows_needs_no_correction() -> None:
    shared = Alignment("psi", "curve25519", np.arange(30), ours=50, theirs=40, intersection=30)
    assert Composition.of(shared, 0.0) == Composition(1.0, 0.0, 0.0, 0.0)
    logits, labels = torch.linspace(-30, 30, 61), torch.tensor([0.0, 1.0]).repeat(31)[:61]
    plain, base = Identity(), rate(PI, 61)
    for name in ("train", "test"):
        calibration = CALIBRATIONS[name](shared, 0.0)
        torch.testing.assert_close(calibration.loss(logits, labels, base), plain.loss(logits, labels, base))
        assert (calibration.probability(logits, base) == plain.probability(logits, base)).all()
        assert (calibration.expectation(logits, base) == plain.expectation(logits, base)).all()


@pytest.mark.parametrize("intersection", [None, 0])
def test_calibration_without_a_known_intersection_is_refused(intersection: int | None) -> None:
    union = Alignment("psu", "curve25519", np.array([0, -1]), ours=1, theirs=1, intersection=intersection)
    for name in ("train", "test"):
        with pytest.raises(DataError, match=r"calibration: none"):
            CALIBRATIONS[name](union, 0.0)
    CALIBRATIONS["none"](union, 0.0)


def test_the_loss_stays_finite_and_right_at_extreme_logits() -> None:
    """log(1 − P') = softplus(l + log(1 − p_a)) − softplus(l) for labels only, with gradient (P' − y)(1 − σ)/(1 − P')."""
    logits = torch.tensor([-80.0, -20.0, 0.0, 20.0, 80.0], requires_grad=True)
    softplus = torch.nn.functional.softplus
    wide = logits.detach().double()
    log_not = softplus(wide + math.log(1 - P_A)) - softplus(wide)
    log_p = math.log(P_A) + torch.nn.functional.logsigmoid(wide)
    for label, expected in ((1.0, -log_p), (0.0, -log_not)):
        loss = AtTraining(LABELS).loss(logits, torch.full((5,), label), rate(PI, 5)) * 5
        assert loss.item() == pytest.approx(expected.sum().item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(loss, logits)
        sigma = torch.sigmoid(wide)
        p = P_A * sigma
        torch.testing.assert_close(gradient.double(), (p - label) * (1 - sigma) / (1 - p), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("base_rate", [0.0, 1e-3, 0.25, 1.0])
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_no_value_of_the_base_rate_gives_a_loss_that_is_not_a_number(base_rate: float, c: float) -> None:
    logits = torch.linspace(-60, 60, 13, requires_grad=True)
    labels = (torch.arange(13) % 2).float()
    loss = AtTraining(Composition(0.35, 0.15, 0.5, c)).loss(logits, labels, rate(base_rate, 13))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_inverse_map_keeps_the_ranking_where_the_base_rate_is_constant() -> None:
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    order = np.argsort(Identity().probability(logits, rate(PI, 500)))
    assert (np.argsort(AtTest(BOTH).probability(logits, rate(PI, 500))) == order).all()


def test_what_is_expected_of_an_owned_row_counts_the_synthetic_ones_in() -> None:
    logits = torch.tensor([math.log(0.3 / 0.7)])
    assert AtTest(BOTH).expectation(logits, rate(PI))[0] == pytest.approx(0.3 / P_A)  # as with synthetic labels only
    assert AtTraining(BOTH).expectation(logits, rate(PI))[0] == pytest.approx(P_P * 0.3 + (1 - P_P) * PI)
    assert Identity().expectation(logits, rate(PI))[0] == pytest.approx(0.3)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_base_rate_cancels_in_what_test_reports(c: float) -> None:
    mix = Composition(BOTH.w11, BOTH.w10, BOTH.w01, c)
    logits = torch.linspace(-6, 6, 25)
    reported = AtTest(mix).expectation(logits, torch.linspace(0.001, 0.999, 25))
    seen = Identity().probability(logits, rate(PI, 25))
    np.testing.assert_allclose(reported, (seen - mix.w01 * c) / (1 - mix.w01), atol=1e-12)
    assert (np.diff(reported) > 0).all()  # the ranking is that of the logits whatever q is
    beyond = reported > 1 if c == 0 else reported < 0
    assert (beyond == (seen > 1 - mix.w01 if c == 0 else seen < mix.w01)).all()
    assert beyond.any()


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_mixture_of_rows_has_the_probability_that_the_map_says(c: float) -> None:
    """Equation 3 by counting, with independently placed rows: labels c where the active party lacks the row."""
    rng = np.random.default_rng(5)
    n = 400_000
    x = rng.integers(0, 4, n)
    probability = np.array([0.05, 0.2, 0.45, 0.8])
    y = rng.random(n) < probability[x]
    label_real, features_real = rng.random(n) < P_A, rng.random(n) < P_P
    seen_x = np.where(features_real, x, x[rng.integers(0, n, n)])  # a whole row of another record
    seen_y = np.where(label_real, y, c)
    mix = Composition(P_A * P_P, P_A * (1 - P_P), 1 - P_A, c)
    for value in range(4):
        expected = mix.w11 * probability[value] + mix.w10 * y.mean() + mix.w01 * c
        # a real label with a foreign row's features: rows are mixed over features_real only
        assert seen_y[seen_x == value].mean() == pytest.approx(expected, abs=0.01)
