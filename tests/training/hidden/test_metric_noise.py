"""No two neighbouring worlds are further apart than μ in what is opened of them, and some are nearly as far."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from vfl_node.gdp import mu_of
from vfl_node.job import Job
from vfl_node.training.shares.metric_noise import MOST_LOSS, MOST_SQUARE, PARTS, REACHES, MetricNoise

MU = 0.2367
ALL = 1 + 1e-9
"""Of μ, and rounding."""


@dataclass(frozen=True)
class Records:
    """Shared records held out: scores, labels of each output, and their number in each sum, from 0 to 1."""

    score: np.ndarray
    label: np.ndarray
    sums: np.ndarray

    @classmethod
    def drawn(cls, count: int, outputs: int, rng: np.random.Generator) -> Records:
        label = rng.integers(0, max(outputs, 2), count)
        ones = np.eye(outputs)[label] if outputs > 1 else label[:, None]
        return cls(rng.integers(-3, 4, (count, outputs)), ones.astype(int), rng.integers(0, 2, (count, outputs, 4)))

    def without(self, place: int) -> Records:
        return Records(*(np.delete(of, place, axis=0) for of in (self.score, self.label, self.sums)))

    def and_one(self, other: Records) -> Records:
        each = zip((self.score, self.label, self.sums), (other.score, other.label, other.sums), strict=True)
        return Records(*(np.concatenate([of, more[:1]]) for of, more in each))

    def flipped(self, place: int, rng: np.random.Generator) -> Records:
        label, sums = self.label.copy(), self.sums.copy()
        new = rng.permutation(label[place]) if label.shape[1] > 1 else 1 - label[place]
        label[place], sums[place] = new, rng.integers(0, 2, sums[place].shape)
        return replace(self, label=label, sums=sums)


def opened(of: Records, noise: MetricNoise, reaches: list[int]) -> np.ndarray:
    """All sums without noise, each in standard deviations of its noise."""
    most = MOST_SQUARE if noise.numbers else MOST_LOSS
    largest = {"loss": most, "squares": most**2, "right": 1.0, "beyond": 1.0}
    found = [
        of.sums[:, k, i].sum() * largest[name] / sd
        for k in range(noise.outputs)
        for i, (name, sd) in enumerate(noise.sums.items())
    ]
    if noise.numbers:
        return np.array([*found, len(of.score) / noise.counts])
    for k, reach in enumerate(reaches):
        positive, negative = (of.score[of.label[:, k] == label, k] for label in (1, 0))
        order = np.sign(positive[:, None] - negative).sum()
        found += [order / noise.order(reach), len(positive) / noise.counts, len(negative) / noise.counts]
    return np.array(found)


def reaches_of(of: Records, noise: MetricNoise) -> list[int]:
    """Of numbers without noise, and so without what is added for it."""
    silent = replace(noise, mu=1e9)
    return (
        []
        if noise.numbers
        else [silent.reach([int((1 - of.label[:, k]).sum()), int(of.label[:, k].sum())]) for k in range(noise.outputs)]
    )


def apart(one: Records, other: Records, noise: MetricNoise) -> float:
    """In parts of μ."""
    reaches = reaches_of(one, noise)
    return float(np.linalg.norm(opened(one, noise, reaches) - opened(other, noise, reaches)) / noise.mu)


FORMS = [{"outputs": 1}, {"outputs": 3}, {"outputs": 10}, {"numbers": True}]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("worlds", [1, 2])
def test_neighbours_are_not_further_apart_than_mu(form: dict[str, Any], worlds: int) -> None:
    noise, rng = MetricNoise(MU, worlds, **form), np.random.default_rng(1)
    for _ in range(200):
        records = Records.drawn(int(rng.integers(2, 30)), noise.outputs, rng)
        fewer = records.without(0)
        alone = apart(records, fewer, noise), apart(fewer, records, noise)
        if worlds == 1:
            assert max(alone) <= ALL
        else:
            assert max(alone) <= math.sqrt(3 / 4) * ALL  # and training has a quarter of μ²
            swapped = fewer.and_one(Records.drawn(1, noise.outputs, rng))
            assert apart(records, swapped, noise) <= ALL
        assert apart(records, records.flipped(0, rng), noise) <= ALL


@pytest.mark.parametrize("worlds", [1, 2])
def test_some_neighbours_are_nearly_as_far_apart(worlds: int) -> None:
    """Or there would be noise for nothing. In a union sums have a third more variance than a swap needs: see the module."""
    label = np.repeat([1, 0], [8, 127])[:, None]
    score = np.where(label == 1, 1, 0)
    score[0] = -1
    records = Records(score, label, np.zeros((135, 1, 4), int))
    best = Records(np.array([[1]]), np.array([[1]]), np.ones((1, 1, 4), int))
    noise = MetricNoise(MU, worlds)
    order = noise.parts["order"]
    if worlds == 2:
        other, expected = records.without(0).and_one(best), math.sqrt(order + 3 / 4 * (1 - order - noise.parts["counts"]))
    else:  # a positive below all others becomes a negative below all others
        other = replace(records, label=records.label.copy(), sums=records.sums.copy())
        other.label[0], other.sums[0], expected = 0, 1, 1.0
    assert apart(records, other, noise) == pytest.approx(expected, abs=0.03)


def test_all_of_mu_is_given_and_nothing_more() -> None:
    for parts in PARTS.values():
        assert sum(parts.values()) == pytest.approx(1)


@pytest.mark.parametrize(("worlds", "expected"), [(2, 600), (1, 400)])
def test_the_reach_covers_the_numbers_of_labels_and_their_noise(worlds: int, expected: float) -> None:
    noise = MetricNoise(MU, worlds)
    sd = noise.counts * (math.sqrt(2) if worlds == 1 else worlds)
    assert expected + 7 * sd <= noise.reach([300, 100]) <= (expected + 7 * sd) * 9 / 8


def test_reaches_are_fine_and_wide_enough() -> None:
    assert all(a < b <= max(a + 1, a * 9 / 8) for a, b in pairwise(REACHES))
    assert REACHES[0] <= 8
    assert REACHES[-1] > 2 * 2**28
    assert MetricNoise(MU).reach([2**62, 0]) == REACHES[-1]


@pytest.mark.parametrize(
    ("evaluate", "train", "epsilon"),
    [({}, {}, 1.0), ({}, {"epsilon": 2.0}, 2.0), ({"epsilon": 0.5}, {"epsilon": 2.0}, 0.5), ({}, {"epsilon": None}, 1.0)],
)
def test_it_is_of_the_job(evaluate: dict[str, Any], train: dict[str, Any], epsilon: float) -> None:
    job = {
        "name": "hidden",
        "parties": {"active": "clinic", "passive": "lab", "coordinator": "hub"},
        "align": {"protocol": "psu"},
        "train": {"algorithm": "hidden", "classes": 3, **train},
        "evaluate": {"share_with_passive": True, "metrics": ["auc"], **evaluate},
    }
    assert MetricNoise.from_job(Job.model_validate(job)) == MetricNoise(mu_of(epsilon), 2, 3)
    known = MetricNoise.from_job(Job.model_validate(job | {"align": {"protocol": "psi"}}))
    assert known.worlds == 1
