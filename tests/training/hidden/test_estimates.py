"""Metrics from noised sums: how wide their intervals are, how often these hold, and when nothing is said."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from vfl_node.gdp import mu_of
from vfl_node.training.intervals import NORMAL
from vfl_node.training.shares.estimates import Estimate, mean_area, mean_loss, share_right
from vfl_node.training.shares.measuring import OutputTally
from vfl_node.training.shares.metric_noise import MetricNoise

SHIFT = math.sqrt(2) * 0.6744897501960817
"""Between scores of both labels, with which the area is .75."""


def opened(
    counts: tuple[int, ...], order: float, sums: dict[str, float], noise: MetricNoise, rng: np.random.Generator
) -> OutputTally:
    """Sums with noise."""
    noisy = tuple(max(0, round(of + noise.counts * rng.normal())) for of in counts)
    reach = 0 if noise.numbers else noise.reach(noisy)
    ordered = 0 if noise.numbers else round(order + noise.order(reach) * rng.normal())
    return OutputTally(noisy, ordered, reach, {name: sums[name] + sd * rng.normal() for name, sd in noise.sums.items()})


def half_widths(estimate: Callable[[OutputTally], Estimate | None], tallies: list[OutputTally]) -> tuple[float, float]:
    """What is said of the noise, on average, and what it does to values."""
    found = [of for tally in tallies if (of := estimate(tally))]
    return NORMAL * float(np.mean([of.noise for of in found])), NORMAL * float(np.std([of.value for of in found]))


@pytest.mark.parametrize(
    ("rows", "epsilon", "area", "loss", "right"),
    [
        (500, 1.0, 0.12, 0.16, 0.076),
        (2_000, 0.5, 0.055, None, None),
        (2_000, 1.0, 0.026, 0.038, 0.018),
        (2_000, 2.0, 0.013, None, None),
        (20_000, 1.0, 0.0023, 0.0038, 0.0017),
        (200_000, 1.0, 0.00024, 0.0004, 0.0002),
    ],
)
def test_noise_is_as_wide_as_it_is_said(
    rows: int, epsilon: float, area: float, loss: float | None, right: float | None
) -> None:
    """As the mean of 600 draws, within 15 %: 5 standard errors of a deviation; and as worked out before, roughly."""
    noise, rng = MetricNoise(mu_of(epsilon), worlds=1), np.random.default_rng(1)
    positive = round(0.22 * rows)
    sums = {"loss": 0.5 * rows, "squares": 0.4 * rows, "right": 0.8 * rows, "beyond": 0.0}
    order = 0.5 * positive * (rows - positive)
    tallies = [opened((rows - positive, positive), order, sums, noise, rng) for _ in range(600)]
    for estimate, before in (
        (lambda of: mean_area([of], noise), area),
        (lambda of: mean_loss(of, noise), loss),
        (lambda of: share_right(of, noise), right),
    ):
        said, seen = half_widths(estimate, tallies)
        assert said == pytest.approx(seen, rel=0.15)
        assert before is None or seen == pytest.approx(before, rel=0.3)


def covers(of: Estimate | None, name: str, truth: float) -> bool:
    assert of is not None
    interval = of.interval(name)
    return interval["low"] <= truth <= interval["high"]


def test_intervals_of_classes_hold() -> None:
    """Of 500 samples of 800 rows, with the noise of ε 2: 95 % ± 4 standard errors."""
    noise, rng = MetricNoise(mu_of(2.0), worlds=2), np.random.default_rng(2)

    def drawn(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = rng.random(rows) < 0.3
        z = rng.normal(size=rows) + SHIFT * y
        return y, z, np.minimum(np.logaddexp(0, (z - 1) * np.where(y, -1, 1)), 4)

    y, z, loss = drawn(1_000_000)
    truth = {"nll": loss.mean(), "accuracy": ((z > 1) == y).mean(), "auc": 0.75}
    held = dict.fromkeys(truth, 0)
    for _ in range(500):
        y, z, loss = drawn(800)
        order = np.sign(z[y][:, None] - z[~y]).sum()
        sums = {"loss": loss.sum(), "squares": (loss**2).sum(), "right": float(((z > 1) == y).sum()), "beyond": 0.0}
        tally = opened((int((~y).sum()), int(y.sum())), order, sums, noise, rng)
        held["auc"] += covers(mean_area([tally], noise), "auc", truth["auc"])
        held["nll"] += covers(mean_loss(tally, noise), "nll", truth["nll"])
        held["accuracy"] += covers(share_right(tally, noise), "accuracy", truth["accuracy"])
    for name, count in held.items():
        assert count / 500 == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 500) ** 0.5), name


@pytest.mark.parametrize("tails", [3, 100])
def test_intervals_of_numbers_hold(tails: int) -> None:
    """Likewise, also where errors have long tails: Student's, of 3,000 rows."""
    noise, rng = MetricNoise(mu_of(2.0), worlds=2, numbers=True), np.random.default_rng(3)

    def squares(rows: int) -> np.ndarray:
        return np.minimum((0.4 * rng.standard_t(tails, rows)) ** 2, 9)

    truth, held = squares(2_000_000).mean(), 0
    for _ in range(500):
        of = squares(3000)
        tally = opened((3000,), 0, {"loss": of.sum(), "squares": (of**2).sum(), "beyond": 0.0}, noise, rng)
        held += covers(mean_loss(tally, noise), "mse", float(truth))
    assert held / 500 == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 500) ** 0.5)


NOISE = MetricNoise(mu_of(1.0))


def tally_of(negative: int, positive: int) -> OutputTally:
    """Without noise, of a model that knows nothing."""
    rows = negative + positive
    sums = {"loss": 0.69 * rows, "squares": 0.48 * rows, "right": rows / 2, "beyond": 0.0}
    return OutputTally((negative, positive), 0, NOISE.reach((negative, positive)), sums)


def test_a_label_that_noise_may_have_made_has_no_area() -> None:
    least = math.ceil(5 * NOISE.counts)
    assert mean_area([tally_of(10_000, least - 1)], NOISE) is None
    assert mean_area([tally_of(10_000, least)], NOISE) is not None
    assert mean_area([tally_of(10_000, 5_000), tally_of(10_000, 0)], NOISE) is None
    assert mean_loss(tally_of(10_000, 0), NOISE) is not None
    assert mean_loss(tally_of(least - 1, 0), NOISE) is None


def test_what_noise_moves_by_a_tenth_is_not_said() -> None:
    few, many = (share_right(tally_of(rows, rows), NOISE) for rows in (150, 250))
    assert few is not None
    assert many is not None
    assert (few.is_said, many.is_said) == (False, True)
    assert NORMAL * few.noise > 0.1 > NORMAL * many.noise


def test_no_value_and_no_interval_leaves_its_range() -> None:
    for order, right in ((2**62, 2**62), (-(2**62), -(2**62))):
        tally = OutputTally(
            (1000, 1000), order, 2000, {"loss": float(right), "squares": 0.0, "right": float(right), "beyond": 0.0}
        )
        for of, name in (
            (mean_area([tally], NOISE), "auc"),
            (share_right(tally, NOISE), "accuracy"),
            (mean_loss(tally, NOISE), "nll"),
        ):
            assert of is not None
            interval = of.interval(name)
            assert 0 <= interval["low"] <= of.value <= interval["high"]
            assert name == "nll" or interval["high"] <= 1


def test_a_root_and_a_line_keep_their_errors() -> None:
    of = Estimate(4.0, 0.2, 0.1)
    assert of.root == Estimate(2.0, 0.05, 0.025)
    assert of.scale(-2.0, 1.0) == Estimate(-7.0, 0.4, 0.2)
    assert Estimate(0.0, 0.04, 0.0).root == Estimate(0.0, 0.1, 0.0)  # near 0 as steep as where the error ends
