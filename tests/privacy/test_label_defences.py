"""Defences of labels: published vectors, what each leaves of the attacks, and the literal forms that fail as controls."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError
from vfl_node.metrics.classes import auc
from vfl_node.node.partners import Partner
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, build
from vfl_node.privacy.defences.dp import budget, epsilon, total_epsilon
from vfl_node.privacy.defences.marvell import Classes, Variances, cost, divergence, solve
from vfl_node.privacy.defences.mixpro import beta_quantiles, project
from vfl_node.settings.defences import read_params

ROWS, WIDTH = 4096, 16
SENDER = Sender("gradients", np.ones(ROWS, dtype=bool))


def defence(seed: bytes = bytes(32), **keys: Any) -> Defence:
    (made,) = build([read_params(keys)], SENDER, Randomness(seed))
    return made


def leaving(labels: Tensor, step: int = 0, rows: int | None = None) -> Leaving:
    count = len(labels) if rows is None else rows
    return Leaving(f"step/{step}", np.arange(count), labels=labels, mean_of=count)


def gradients(top: str, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Of a batch's mean loss at the cut layer, float32[B, d], under a top of one layer or with a hidden one; and its labels."""
    drawn = np.random.default_rng(seed)
    labels = torch.from_numpy((drawn.random(ROWS) < share).astype(np.float32))
    hidden = torch.from_numpy(drawn.normal(size=(ROWS, WIDTH)).astype(np.float32)) + 0.3 * labels[:, None]
    hidden.requires_grad_()
    layer = torch.from_numpy(drawn.normal(size=(WIDTH, 16)).astype(np.float32)) / math.sqrt(WIDTH)
    last = torch.from_numpy(drawn.normal(size=16).astype(np.float32)) / 4
    logits = (hidden @ layer).relu() @ last if top == "hidden" else hidden @ (layer @ last)
    start = math.log(share / (1 - share))
    torch.nn.functional.binary_cross_entropy_with_logits(logits + start, labels).backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    return hidden.grad, labels


def folded(labels: Tensor, scores: Tensor) -> float:
    value = auc(labels.numpy(), scores.double().numpy())
    assert value is not None
    return max(value, 1 - value)


def read(sent: Tensor, labels: Tensor) -> dict[str, float]:
    """AUC, folded, of three attacks on one batch."""
    along = torch.linalg.svd(sent.double(), full_matrices=False)[2][0].float()
    reach = sent @ along
    across = sent - reach[:, None] * along
    return {
        "norm": folded(labels, sent.norm(dim=1)),
        "direction": folded(labels, reach),
        "residual": folded(labels, across.norm(dim=1)),
    }


TOPS = pytest.mark.parametrize("top", ["one layer", "hidden"])


@TOPS
def test_without_a_defence_labels_are_read(top: str) -> None:
    assert max(read(*gradients(top, 0.1)).values()) > 0.9


@TOPS
@pytest.mark.parametrize("share", [0.03, 0.1, 0.4])
def test_marvell_hides_labels_from_every_attack_on_one_batch(top: str, share: float) -> None:
    given, labels = gradients(top, share)
    found = read(defence(name="marvell", power=4).protect(given, leaving(labels)), labels)
    assert max(found.values()) < 0.72, found
    assert found["residual"] < 0.6


@pytest.mark.parametrize(
    ("u", "v", "expected", "least"),
    [(0.1, 0.3, (1.156, 0.144, 1.334, 0.0), 1.591), (0.3, 0.1, (1.606, 0.0, 2.235, 0.192), 0.976)],
)
def test_marvells_minimum_of_eight_directions(u: float, v: float, expected: tuple[float, ...], least: float) -> None:
    classes = Classes(0.2, 2.0, (u, v), (u, v), 7)
    found = solve(classes, 2.0)
    assert (found.along[0], found.across[0], found.along[1], found.across[1]) == pytest.approx(expected, abs=1e-3)
    assert divergence(classes, (0.0, 0.0), (0.0, 0.0)) == pytest.approx(18.667, abs=1e-3)
    assert divergence(classes, found.along, found.across) == pytest.approx(least, abs=1e-3)
    assert cost(classes, found) == pytest.approx(2.0)


def test_no_other_noise_of_the_same_power_is_better() -> None:
    drawn = np.random.default_rng(3)
    for _ in range(30):
        p, gap, power = drawn.uniform(0.02, 0.9), drawn.uniform(0.1, 5), drawn.uniform(0.1, 20)
        along, across = (tuple(drawn.uniform(0.01, 2, 2)) for _ in range(2))
        classes = Classes(p, gap, (along[0], along[1]), (across[0], across[1]), int(drawn.integers(0, 20)))
        best = solve(classes, power)
        least = divergence(classes, best.along, best.across)
        assert cost(classes, best) == pytest.approx(power)
        two = drawn.uniform(0, 1, (2, 2000)) * drawn.choice([0.01, 0.1, 1], (2, 2000)) * power
        one = two + drawn.uniform(0, 1, (2, 2000)) * power
        shares = np.array([1 - p, p])[:, None]
        scale = power / (shares * (one + classes.directions * two)).sum(axis=0)
        others = divergence(classes, tuple(one * scale), tuple(two * scale))
        assert (others >= least - 1e-6 * (1 + abs(least))).all()


def test_marvells_power_is_what_its_owner_allows() -> None:
    given, labels = gradients("hidden", 0.2)
    sent = defence(name="marvell", power=3).protect(given, leaving(labels))
    gap = (given[labels > 0].mean(dim=0) - given[labels == 0].mean(dim=0)).square().sum()
    assert ((sent - given).square().sum(dim=1).mean() / gap).item() == pytest.approx(3, rel=0.1)


def literal_marvell(given: Tensor, labels: Tensor, power: float) -> Tensor:
    """As published: in all directions, where a class without variance gets noise and the other gets none."""
    positive = labels > 0
    means = [given[~positive].mean(dim=0), given[positive].mean(dim=0)]
    delta = means[1] - means[0]
    u, v = (
        ((given[rows] - mean).square().sum(dim=1).mean() / WIDTH).item()
        for rows, mean in zip((~positive, positive), means, strict=True)
    )
    classes = Classes(positive.float().mean().item(), delta.square().sum().item(), (u, v), (u, v), WIDTH - 1)
    best = solve(classes, power * classes.gap)
    drawn = np.random.default_rng(5)
    sent = given.clone()
    for rows, one, two in ((~positive, best.along[0], best.across[0]), (positive, best.along[1], best.across[1])):
        count = int(rows.sum())
        along = torch.from_numpy(drawn.normal(size=(count, 1)).astype(np.float32)) * math.sqrt(one - two)
        every = torch.from_numpy(drawn.normal(size=(count, WIDTH)).astype(np.float32)) * math.sqrt(two)
        sent[rows] += along * delta / delta.norm() + every
    return sent


def test_published_marvell_leaves_labels_in_the_residual_of_a_top_of_one_layer() -> None:
    given, labels = gradients("one layer", 0.1)
    assert read(literal_marvell(given, labels, 4), labels)["residual"] > 0.84
    assert read(defence(name="marvell", power=4).protect(given, leaving(labels)), labels)["residual"] < 0.56


def test_a_batch_of_one_class_gets_the_noise_of_the_one_before() -> None:
    given, labels = gradients("hidden", 0.2)
    made = defence(name="marvell", power=4)
    made.protect(given, leaving(labels))
    before = made.state()["factors"].clone()
    sent = made.protect(given, leaving(torch.zeros(ROWS), step=1))
    assert torch.equal(made.state()["factors"], before)
    power = (sent - given).square().sum(dim=1).mean()
    assert power * ROWS**2 == pytest.approx(before[0].square().sum().item(), rel=0.1)
    again = defence(name="marvell", power=4)
    again.restore(made.state())
    assert torch.equal(again.protect(given, leaving(torch.zeros(ROWS), step=1)), sent)
    first = defence(name="marvell", power=4).protect(given, leaving(torch.ones(ROWS)))  # nothing before it
    assert ((first - given).square().sum() / given.square().sum()).item() == pytest.approx(4, rel=0.1)


def test_mixed_gradients_are_turned_to_the_goal() -> None:
    turned = project(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0, 2.0]), math.sqrt(3) / 2)
    assert turned[0].tolist() == pytest.approx([1, math.sqrt(3)], abs=1e-6)
    given, _ = gradients("hidden", 0.3)
    mean = given.mean(dim=0)
    cosines = torch.nn.functional.cosine_similarity(project(given, mean, 0.9), mean[None])
    assert cosines.min() >= 0.9 - 1e-3
    assert torch.equal(project(given, torch.zeros(WIDTH), 0.9), given)


def test_literal_mixpro_sends_rows_of_zeros_and_the_repaired_one_no_short_row() -> None:
    given, labels = gradients("one layer", 0.1)
    partner = torch.from_numpy(np.random.default_rng(2).permutation(ROWS))
    mixed = 0.7 * given + 0.3 * given[partner]
    literal = project(mixed, given.mean(dim=0), math.sqrt(3) / 2)
    vanished = literal.norm(dim=1) < 1e-3 * mixed.norm(dim=1).median()
    kinds = vanished[labels > 0].float().mean(), vanished[labels == 0].float().mean()
    assert abs(kinds[0] - kinds[1]) > 0.5
    assert read(literal, labels)["norm"] > 0.9
    sent = defence(name="mixpro").protect(given, leaving(labels))
    assert sent.norm(dim=1).min() >= 0.5 * mixed.norm(dim=1).median()
    assert max(read(sent, labels).values()) < 0.65


@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_mixpro_leaves_labels_neither_in_the_rounding_of_a_row_nor_in_lengths_that_occur_twice(share: float) -> None:
    given, labels = gradients("one layer", share)
    sent = defence(name="mixpro").protect(given, leaving(labels)).double()
    lengths = sent.norm(dim=1)
    units = sent / lengths[:, None]
    along = torch.linalg.svd(units, full_matrices=False)[2][0]
    assert folded(labels, (units - (units @ along)[:, None] * along).norm(dim=1)) < 0.62
    order = lengths.argsort()
    steps = lengths[order].diff() / lengths[order][1:]
    assert (steps < 1e-7).float().mean() < 0.01  # lengths that are drawn among those of rows: of every third
    assert folded(labels[order[1:-1]], torch.minimum(steps[:-1], steps[1:])) < 0.6


def test_rows_of_a_pair_are_shared_by_betas_quantiles() -> None:
    drawn = np.random.default_rng(0).uniform(size=20_000)
    values = np.interp(drawn * 4095, np.arange(4096), beta_quantiles(0.6))
    assert stats.kstest(values, stats.beta(0.6, 0.6).cdf).pvalue > 0.001
    assert stats.kstest(values, stats.beta(1.2, 1.2).cdf).pvalue < 1e-6


def test_maxnorm_makes_all_rows_as_long_as_the_longest_in_the_mean_square() -> None:
    given, labels = gradients("one layer", 0.3)
    given[0] = 0
    made = defence(name="maxnorm")
    squares = torch.stack([made.protect(given, leaving(labels, step)).square().sum(dim=1) for step in range(400)]).mean(dim=0)
    assert squares.mean() == pytest.approx(given.square().sum(dim=1).max().item(), rel=0.02)
    assert squares[0] == pytest.approx(given.square().sum(dim=1).max().item(), rel=0.3)
    assert folded(labels, squares) < 0.53
    assert folded(labels, given.norm(dim=1)) > 0.8


def test_isotropic_noise_is_as_long_as_its_owner_says() -> None:
    given, labels = gradients("hidden", 0.3)
    sent = defence(name="isotropic", noise=0.5).protect(given, leaving(labels))
    assert (sent - given).norm(dim=1).square().mean().sqrt() == pytest.approx(0.5 * given.norm(dim=1).max().item(), rel=0.02)


def test_dp_clips_and_its_noise_counts_by_row() -> None:
    given, labels = gradients("hidden", 0.3)
    clip = 0.3
    made = defence(name="dp", max_grad_norm=clip, noise_multiplier=1e-3)
    sent = made.protect(given, leaving(labels)) * ROWS
    assert sent.norm(dim=1).max() < clip * 1.01
    strong = defence(name="dp", max_grad_norm=clip, noise_multiplier=5).protect(given, leaving(labels)) * ROWS
    assert (strong - sent).std().item() == pytest.approx(clip * 5, rel=0.02)
    steps = strong / ROWS / (strong[strong != 0].abs().min() / ROWS)
    assert torch.allclose(steps, steps.round(), atol=1e-3)  # low bits tell of no sum


def test_epsilon_is_that_of_one_gaussian_with_all_releases() -> None:
    """Against the exact δ of a Gaussian mechanism (Balle and Wang 2018, theorem 8)."""
    for multiplier, releases in ((2.0, 1), (2.0, 10), (0.5, 10), (10.0, 100)):
        found = epsilon(multiplier, 1e-5, releases)
        assert found is not None
        z = multiplier / math.sqrt(releases)
        delta = stats.norm.cdf(1 / (2 * z) - found * z) - math.exp(found) * stats.norm.cdf(-1 / (2 * z) - found * z)
        assert delta == pytest.approx(1e-5, rel=0.01)
    assert epsilon(0.01, 1e-5, 10) is None


def test_epsilon_of_several_jobs_is_that_of_all_their_gradients(tmp_path: Path) -> None:
    weak, strong = (read_params({"name": "dp", "max_grad_norm": 1, "noise_multiplier": noise}) for noise in (4, 8))
    lab, insurer = Partner(tmp_path, "lab"), Partner(tmp_path, "insurer")
    assert total_epsilon(lab, "default", "job-1", strong, 6) == pytest.approx(budget([strong], 6).epsilon)
    for _ in range(2):  # a job that is repeated counts once
        both = total_epsilon(lab, "default", "job-2", weak, 5)
    assert both == pytest.approx(epsilon((6 / 4**2 + 5 / 2**2) ** -0.5, weak.delta, 1))
    assert total_epsilon(Partner(tmp_path, "lab"), "default", "job-3", strong, 6) > both
    assert total_epsilon(insurer, "default", "job-3", strong, 6) == pytest.approx(budget([strong], 6).epsilon)
    assert total_epsilon(lab, "another table", "job-4", strong, 6) == pytest.approx(budget([strong], 6).epsilon)
    for file in (tmp_path / "lab").glob("dp-*.kept"):
        if "begun" not in file.name:
            file.unlink()
    with pytest.raises(StateError) as lost:
        total_epsilon(Partner(tmp_path, "lab"), "default", "job-5", strong, 6)
    assert lost.value.code == "E_STATE_LOST"


def test_epsilon_is_stated_for_dp_alone() -> None:
    dp = read_params({"name": "dp", "max_grad_norm": 1, "noise_multiplier": 8})
    iso = read_params({"name": "isotropic", "noise": 1})
    found = budget([dp], 6)
    assert found is not None
    assert found.releases == 6
    assert found.epsilon == pytest.approx(epsilon(4.0, 1e-5, 6))
    assert budget([iso, dp], 6) is None
    assert budget([dp, iso], 6) is None
    assert budget([], 6) is None


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "dp", "max_grad_norm": 1, "noise_multiplier": 4},
        {"name": "marvell", "power": 4},
        {"name": "mixpro"},
        {"name": "maxnorm"},
        {"name": "isotropic", "noise": 1},
    ],
    ids=lambda keys: keys["name"],
)
class TestEveryDefence:
    def test_repeats_its_bytes_and_draws_anew_for_other_values_and_steps(self, keys: dict[str, Any]) -> None:
        given, labels = gradients("hidden", 0.2)
        sent = defence(**keys).protect(given, leaving(labels))
        assert torch.equal(sent, defence(**keys).protect(given, leaving(labels)))
        others = [
            defence(b"o" * 32, **keys).protect(given, leaving(labels)),
            defence(**keys).protect(given, leaving(labels, step=1)),
            defence(**keys).protect(given * (1 + 1e-6), leaving(labels)) / (1 + 1e-6),  # as if resumed and rounded anew
        ]
        for other in others:
            assert (other - sent).norm() > 0.05 * sent.norm()

    def test_takes_batches_of_every_kind(self, keys: dict[str, Any]) -> None:
        made = defence(**keys)
        few, labels = gradients("hidden", 0.3)
        for rows in (1, 2, 3):
            assert torch.isfinite(made.protect(few[:rows], leaving(labels[:rows], rows))).all()
        for at, scale in enumerate((0.0, 1e-30, 1e15)):
            sent = made.protect(few * scale, leaving(labels, 10 + at))
            assert torch.isfinite(sent).all(), scale
        alike = few[:1].repeat(64, 1)
        assert torch.isfinite(made.protect(alike, leaving(labels[:64], 20))).all()

    def test_leaves_the_clean_gradient_as_it_is(self, keys: dict[str, Any]) -> None:
        given, labels = gradients("hidden", 0.2)
        before = given.clone()
        defence(**keys).protect(given, leaving(labels))
        assert torch.equal(given, before)


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "mixpro", "goal": 1},
        {"name": "mixpro", "goal": -1},
        {"name": "marvell", "power": 0},
        {"name": "marvell"},
        {"name": "dp", "max_grad_norm": 0, "noise_multiplier": 1},
        {"name": "dp", "max_grad_norm": 1},
        {"name": "isotropic", "noise": -1},
        {"name": "maxnorm", "noise": 1},
    ],
    ids=str,
)
def test_keys_that_mean_nothing_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(keys["name"])):
        read_params(keys)


def test_earlier_names_of_keys_are_read_and_lasting_things_keep_them() -> None:
    """What a checkpoint, a report and a defence's randomness are made of is the same as before the names changed."""
    today = read_params({"name": "dp", "max_grad_norm": 0.5, "noise_multiplier": 4})
    with pytest.warns(FutureWarning, match=r"is called '(max_grad_norm|noise_multiplier)' now"):
        assert read_params({"name": "dp", "clip": 0.5, "noise": 4}) == today
    written = today.model_dump(mode="json", context=LASTING_NAMES)
    assert written == {"name": "dp", "clip": 0.5, "noise": 4.0, "delta": 1e-5}
    assert read_params(written, context=LASTING_NAMES) == today


def test_noise_of_no_variance_is_the_only_one_of_equal_classes() -> None:
    """Across Δ, where neither class has any variance, neither gets noise."""
    found = solve(Classes(0.3, 1.0, (0.0, 0.0), (0.0, 0.0), 5), 4.0)
    assert found.across == (0.0, 0.0)
    assert isinstance(found, Variances)
    assert cost(Classes(0.3, 1.0, (0.0, 0.0), (0.0, 0.0), 5), found) == pytest.approx(4.0)


def test_whoever_knows_many_labels_learns_little_under_dp_and_marvell_and_much_under_maxnorm() -> None:
    """A classifier that learns from half of one batch's defended gradients."""

    def learnt(known: int, **keys: Any) -> float:
        given, labels = gradients("hidden", 0.3)
        sent = defence(**keys).protect(given, leaving(labels)).numpy().astype(np.float64)
        turned = sent @ np.linalg.svd(sent, full_matrices=False)[2].T
        turned /= turned.std(axis=0)
        judge = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(turned[:known], labels[:known])
        found = auc(labels[known:].numpy(), judge.predict_proba(turned[known:])[:, 1])
        assert found is not None
        return found

    assert learnt(2000, name="maxnorm") > 0.7
    assert learnt(2000, name="marvell", power=4) < 0.66
    assert learnt(2000, name="dp", max_grad_norm=0.5, noise_multiplier=4) < 0.56
