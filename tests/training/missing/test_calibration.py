"""Vectors of the map, its stable form, its inverse, and the map itself by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.errors import DataError, StateError, UsageError
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.split.missing.calibration import (
    CALIBRATIONS,
    AtTest,
    AtTraining,
    Calibration,
    Composition,
    Identity,
    Rate,
    calibration,
)
from vfl_node.training.split.missing.section import OwnedShares

LOGIT, P_A, P_P, PI = 0.4, 0.5, 0.7, 0.25
LABELS = Composition(P_A, 0.0, 1 - P_A)
FEATURES = Composition(P_P, 1 - P_P, 0.0)
BOTH = Composition(P_A * P_P, P_A * (1 - P_P), 1 - P_A)
UNION = Composition(0.4, 0.2, 0.4)
"""60 and 80 records, 40 in both."""
RATES: list[Rate] = [0.0, 0.25, 1.0, "model", "vote"]


def rate(value: float, rows: int = 1) -> torch.Tensor:
    return torch.full((rows,), value)


def logit(probability: float) -> torch.Tensor:
    return torch.tensor([math.log(probability / (1 - probability))])


def synthetic_rate(real: torch.Tensor, of: Rate) -> torch.Tensor:
    """s(r), as the module's docstring has it."""
    if of == "model":
        return real
    if of == "vote":
        return 3 * real**2 - 2 * real**3
    return torch.full_like(real, float(of))


def mapped(mix: Composition, probability: torch.Tensor, base_rate: torch.Tensor, of: Rate) -> torch.Tensor:
    """P' by the definition, without logarithms."""
    real = (mix.w11 * probability + mix.w10 * base_rate) / (mix.w11 + mix.w10)
    return (1 - mix.w01) * real + mix.w01 * synthetic_rate(real, of)


def union(owned: int, shared: int, intersection: int | None) -> Alignment:
    rows = np.concatenate([np.arange(owned), np.full(shared - owned, NOT_MINE)])
    return Alignment(ALIGNMENTS["psu"], "curve25519", rows, owned, {"lab": PeerFacts(80, intersection)})


@pytest.mark.parametrize(
    ("mix", "seen", "positive", "negative"),
    [(LABELS, 0.299344, 1.206162, 0.355738), (FEATURES, 0.494081, 0.705055, 0.681379), (BOTH, 0.247041, 1.398202, 0.283744)],
)
def test_the_training_loss_meets_its_vectors(mix: Composition, seen: float, positive: float, negative: float) -> None:
    shift = AtTraining(mix, 0.0)
    assert shift.loss(torch.tensor([LOGIT]), torch.tensor([1.0]), rate(PI)).item() == pytest.approx(positive, abs=1e-6)
    assert shift.loss(torch.tensor([LOGIT]), torch.tensor([0.0]), rate(PI)).item() == pytest.approx(negative, abs=1e-6)
    assert shift.observed_output(torch.tensor([LOGIT]), rate(PI)).item() == pytest.approx(seen, abs=1e-6)


@pytest.mark.parametrize(("model", "true"), [(0.3, 0.75), (0.9, 2.464)])
def test_the_inverse_map_meets_its_vectors_before_clipping(model: float, true: float) -> None:
    assert AtTest(BOTH, 0.0).probability(logit(model), rate(PI))[0] == pytest.approx(true, abs=1e-3)


def test_weights_are_counts_of_the_union() -> None:
    assert Composition.from_view(union(60, 100, 40)) == Composition(0.4, 0.2, pytest.approx(0.4))


def test_weights_are_products_where_shares_are_agreed() -> None:
    shares = OwnedShares(active=P_A, passive=P_P)
    assert Composition.from_view(union(60, 100, None), shares) == BOTH
    assert Composition.from_view(union(60, 100, None), OwnedShares(active=1, passive=1)) == Composition(1, 0, 0)


@pytest.mark.parametrize("shares", [None, OwnedShares(active=0.6, passive=2 / 3)])
def test_what_is_not_calibrated_for_is_taken_as_real(shares: OwnedShares | None) -> None:
    whole = Composition.from_view(union(60, 100, 40), shares)
    labels, features = (Composition.from_view(union(60, 100, 40), shares, calibrate) for calibrate in ("labels", "features"))
    assert labels == Composition(pytest.approx(0.6), 0.0, pytest.approx(0.4))
    assert features == Composition(pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0)
    assert sum((whole.w11, whole.w10, whole.w01)) == pytest.approx(1)
    assert AtTest(features, "vote").expectation(logit(0.3), rate(PI))[0] == pytest.approx(0.3)  # nothing to undo
    assert AtTest(labels, 0.0).probability(logit(0.3), rate(PI))[0] == pytest.approx(0.5)  # as in eq. 1


def test_an_intersection_without_missing_rows_needs_no_correction() -> None:
    shared = Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(30), 50, {"lab": PeerFacts(40, intersection=30)})
    assert Composition.from_view(shared) == Composition(1.0, 0.0, 0.0)
    logits, labels = torch.linspace(-30, 30, 61), torch.tensor([0.0, 1.0]).repeat(31)[:61]
    plain, base = Identity(), rate(PI, 61)
    for name in CALIBRATIONS:
        for of in (0.0, 1.0, "model"):
            shift = calibration(name, Composition.from_view(shared), of)
            torch.testing.assert_close(shift.loss(logits, labels, base), plain.loss(logits, labels, base))
            torch.testing.assert_close(shift.observed_output(logits, base), plain.observed_output(logits, base))
            assert (shift.probability(logits, base) == plain.probability(logits, base)).all()
            assert (shift.expectation(logits, base) == plain.expectation(logits, base)).all()


@pytest.mark.parametrize("intersection", [None, 0])
def test_calibration_without_a_known_intersection_is_refused(intersection: int | None) -> None:
    with pytest.raises(DataError, match=r"calibration: none"):
        Composition.from_view(union(1, 2, intersection))
    for name in CALIBRATIONS:
        with pytest.raises(UsageError, match="calibration"):
            calibration(name, None, 0.0)
    assert isinstance(calibration("none", None, "model"), Identity)


def test_the_loss_stays_finite_and_right_at_extreme_logits() -> None:
    """log(1 − P') = softplus(l + log(1 − p_a)) − softplus(l) for labels only, with gradient (P' − y)(1 − σ)/(1 − P')."""
    logits = torch.tensor([-80.0, -20.0, 0.0, 20.0, 80.0], requires_grad=True)
    softplus = torch.nn.functional.softplus
    wide = logits.detach().double()
    log_not = softplus(wide + math.log(1 - P_A)) - softplus(wide)
    log_p = math.log(P_A) + torch.nn.functional.logsigmoid(wide)
    for label, expected in ((1.0, -log_p), (0.0, -log_not)):
        loss = AtTraining(LABELS, 0.0).loss(logits, torch.full((5,), label), rate(PI, 5)) * 5
        assert loss.item() == pytest.approx(expected.sum().item(), rel=1e-6)
        (gradient,) = torch.autograd.grad(loss, logits)
        sigma = torch.sigmoid(wide)
        p = P_A * sigma
        torch.testing.assert_close(gradient.double(), (p - label) * (1 - sigma) / (1 - p), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("of", RATES)
@pytest.mark.parametrize("mix", [LABELS, FEATURES, BOTH, UNION])
def test_the_stable_form_is_the_map_and_its_gradient_that_of_autograd(mix: Composition, of: Rate) -> None:
    logits = torch.linspace(-6, 6, 13, dtype=torch.float64, requires_grad=True)
    base = torch.linspace(0.01, 0.99, 13, dtype=torch.float64)
    targets = torch.linspace(0, 1, 13, dtype=torch.float64).flip(0)  # fractions: the mean of several draws
    shift = AtTraining(mix, of)
    seen = mapped(mix, torch.sigmoid(logits), base, of)
    naive = -(targets * seen.log() + (1 - targets) * (1 - seen).log()).mean()
    torch.testing.assert_close(shift.loss(logits, targets, base), naive)
    torch.testing.assert_close(shift.observed_output(logits, base), seen.detach())
    assert not shift.observed_output(logits, base).requires_grad
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (shift.loss(logits, targets, base), naive))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("of", RATES)
@pytest.mark.parametrize("mix", [LABELS, FEATURES, BOTH, UNION])
def test_what_one_party_puts_in_the_other_takes_out(mix: Composition, of: Rate) -> None:
    """``test`` asked about the logit of P' answers P, and r as the expectation that ``train`` has from P."""
    true = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    base = torch.linspace(0.9, 0.1, 49, dtype=torch.float64)
    seen = mapped(mix, true, base, of)
    back = AtTest(mix, of)
    np.testing.assert_allclose(back.probability(torch.logit(seen), base), true.numpy(), atol=1e-9)
    np.testing.assert_allclose(
        back.expectation(torch.logit(seen), base), AtTraining(mix, of).expectation(torch.logit(true), base), atol=1e-9
    )


@pytest.mark.parametrize("base_rate", [0.0, 1e-3, 0.25, 1.0])
@pytest.mark.parametrize("of", RATES)
def test_no_value_of_the_base_rate_gives_a_loss_that_is_not_a_number(base_rate: float, of: Rate) -> None:
    logits = torch.tensor([-3e38, -1e4, -60.0, -1.0, 0.0, 1.0, 60.0, 1e4, 3e38], requires_grad=True)
    shift, base = AtTraining(Composition(0.35, 0.15, 0.5), of), rate(base_rate, 9)
    seen = shift.observed_output(logits, base)
    assert ((seen >= 0) & (seen <= 1)).all()
    loss = shift.loss(logits[1:-1], (torch.arange(7) % 2).float(), base[1:-1])
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_inverse_map_keeps_the_ranking_where_the_base_rate_is_constant() -> None:
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    order = np.argsort(Identity().probability(logits, rate(PI, 500)))
    for of in RATES:
        assert (np.argsort(AtTest(BOTH, of).probability(logits, rate(PI, 500))) == order).all()


def test_what_is_expected_of_an_owned_row_counts_the_synthetic_ones_in() -> None:
    assert AtTest(BOTH, 0.0).expectation(logit(0.3), rate(PI))[0] == pytest.approx(0.3 / P_A)  # as with synthetic labels only
    for of in RATES:
        assert AtTraining(BOTH, of).expectation(logit(0.3), rate(PI))[0] == pytest.approx(P_P * 0.3 + (1 - P_P) * PI)
    assert Identity().expectation(logit(0.3), rate(PI))[0] == pytest.approx(0.3)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_base_rate_cancels_in_what_test_reports(c: float) -> None:
    logits = torch.linspace(-6, 6, 25)
    reported = AtTest(BOTH, c).expectation(logits, torch.linspace(0.001, 0.999, 25))
    seen = Identity().probability(logits, rate(PI, 25))
    np.testing.assert_allclose(reported, (seen - BOTH.w01 * c) / (1 - BOTH.w01), atol=1e-12)
    assert (np.diff(reported) > 0).all()  # the ranking is that of the logits whatever q is
    beyond = reported > 1 if c == 0 else reported < 0
    assert (beyond == (seen > 1 - BOTH.w01 if c == 0 else seen < BOTH.w01)).all()
    assert beyond.any()


def test_a_vote_is_undone_within_0_and_1_and_to_the_last_bit_near_0() -> None:
    logits = torch.tensor([-700.0, -300.0, -40.0, -1.0, 0.0, 1.0, 40.0, 700.0])
    found = AtTest(LABELS, "vote").expectation(logits, rate(PI, 8))
    assert ((found >= 0) & (found <= 1)).all()
    assert found[2] == pytest.approx(torch.sigmoid(torch.tensor(-40.0)).item() / P_A, rel=1e-9)  # s(r) vanishes there
    assert found[4] == pytest.approx(0.5)
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("of", RATES)
@pytest.mark.parametrize("dummies", [True, False])
def test_the_mixture_of_rows_has_the_probability_that_the_map_says(of: Rate, dummies: bool) -> None:
    """Equation 3 by counting: labels of rate s where the active party lacks the row, whole foreign rows at the peer.

    With dummy ids ownership is independent and the weights are products; without, a row that
    one party lacks is the other's, and they are counts.
    """
    rng = np.random.default_rng(5)
    n = 400_000
    x = rng.integers(0, 4, n)
    probability = np.array([0.05, 0.2, 0.45, 0.8])
    y = rng.random(n) < probability[x]
    label_real = rng.random(n) < P_A
    features_real = (rng.random(n) < P_P) | (False if dummies else ~label_real)
    seen_x = np.where(features_real, x, x[rng.integers(0, n, n)])  # a whole row of another record
    counted = Alignment(
        ALIGNMENTS["psu"],
        "g",
        np.where(label_real, 0, NOT_MINE),
        1,
        {"lab": PeerFacts(1, int((label_real & features_real).sum()))},
    )
    mix = Composition.from_view(counted, OwnedShares(active=P_A, passive=P_P) if dummies else None)
    for value in range(4):
        of_value = seen_x == value
        real = y[of_value & label_real]
        votes = real[rng.integers(0, len(real), (3, n))].sum(0) >= 2  # three random real labels of the same features
        drawn = {"vote": votes, "model": rng.random(n) < real.mean()}
        made = drawn[of] if isinstance(of, str) else rng.random(n) < of
        expected = mapped(mix, torch.tensor(probability[value]), torch.tensor(y.mean()), of).item()
        assert np.where(label_real, y, made)[of_value].mean() == pytest.approx(expected, abs=0.01)


def test_more_than_two_classes_are_a_softmax() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, -2.0, 0.0]], requires_grad=True)
    targets, none = torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]), torch.zeros(2)
    plain = calibration("none", None, 0.0)
    probabilities = torch.softmax(logits.detach().double(), dim=1).numpy()
    expected = -(np.log(probabilities[0, 1:]).sum() / 2 + np.log(probabilities[1, 0])) / 2
    assert plain.loss(logits, targets, none).item() == pytest.approx(expected)
    shown = plain.observed_output(logits, none)
    assert not shown.requires_grad
    for found in (plain.probability(logits, none), plain.expectation(logits, none), shown.double().numpy()):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, probabilities, rtol=1e-6)
    extreme = plain.observed_output(torch.tensor([[3e38, 0.0, -3e38]]), none)
    assert extreme.tolist() == [[1, 0, 0]]


def test_a_calibration_outlives_its_training() -> None:
    logits, base = torch.linspace(-5, 5, 11), torch.linspace(0.1, 0.9, 11)
    mix = Composition(1 / 3, 1 / 7, 11 / 21)
    for name, of in itertools.product(["none", *CALIBRATIONS], RATES):
        kept = calibration(name, mix, of)
        again = Calibration.from_json(kept.to_json())
        assert type(again) is type(kept)
        assert (again.probability(logits, base) == kept.probability(logits, base)).all()
        assert (again.expectation(logits, base) == kept.expectation(logits, base)).all()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"name": "test", "rate": "dice"}', '{"name": "no", "rate": 0}', '{"name": "test"}']
)
def test_a_damaged_calibration_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="calibration"):
        Calibration.from_json(text)
