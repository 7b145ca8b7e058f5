"""The diffusion model by itself: it draws what it has learnt, class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.thorough import examples
from vfl_node.crypto.randomness import Randomness
from vfl_node.training.unaligned.contract import Standardised
from vfl_node.training.unaligned.diffusion import Generator, NoiseSchedule
from vfl_node.training.unaligned.specs import Diffusion

MEANS = np.array([[-2.0, 1.0], [2.0, 3.0]])
FACTORS = np.array([[[1.0, 0.0], [0.6, 0.8]], [[0.7, 0.0], [-0.5, 1.2]]])  # covariance of a class: F·Fᵀ
SHARE = 0.3


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def two_classes(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows float32[n, 2] and labels float32[n, 1]."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < SHARE).astype(int)
    values = MEANS[labels] + np.einsum("nij,nj->ni", FACTORS[labels], rng.normal(size=(rows, 2)))
    return torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels[:, None].astype(np.float32))


def drawn(settings: Diffusion, count: int = 20_000) -> tuple[Tensor, Tensor]:
    """What a generator draws that has learnt from 20,000 rows, and the labels it was given."""
    values, labels = two_classes(20_000, 1)
    of_values, of_labels = Standardised.fit(values), Standardised.fit(labels)
    randomness = Randomness(bytes(32))
    generator = Generator(settings, of_values.apply(values), of_labels.apply(labels), randomness.derive("generator"))
    asked = two_classes(count, 2)[1]
    noise = torch.from_numpy(randomness.derive("noise").normal((count, 2)))
    return of_values.undo(generator.draw(of_labels.apply(asked), noise, randomness)), asked


@pytest.mark.parametrize(
    ("keys", "tolerance"),
    [
        ({"sampler": "ddim", "hidden": 64, "learning_rate": 3e-3}, 0.06),
        pytest.param({"sampler": "ddpm", "steps": 100}, 0.15, marks=pytest.mark.slow),
    ],
    ids=["ddim", "ddpm"],
)
def test_each_class_is_drawn_with_its_mean_and_covariance(keys: dict[str, Any], tolerance: float) -> None:
    settings = Diffusion(
        method="diffusion",
        **{"steps": 200, "updates": examples(4000, fewer=2500), "hidden": 256, "learning_rate": 2e-3, **keys},
    )
    rows, labels = drawn(settings)
    nearest = torch.cdist(rows, torch.from_numpy(MEANS.astype(np.float32))).argmin(dim=1)
    assert float(nearest.float().mean()) == pytest.approx(SHARE, rel=0.1)  # positives at their share
    for label in (0, 1):
        of_class = rows[labels[:, 0] == label].double().numpy()
        covariance = FACTORS[label] @ FACTORS[label].T
        width = np.sqrt(np.diag(covariance))
        assert np.abs((of_class.mean(0) - MEANS[label]) / width).max() < 0.05
        assert np.abs((np.cov(of_class.T) - covariance) / np.outer(width, width)).max() < tolerance


def test_without_its_label_a_class_is_not_drawn_apart() -> None:
    """The control: by a label that says nothing both classes are drawn for each."""
    values, labels = two_classes(5000, 1)
    wrong = labels[torch.from_numpy(np.random.default_rng(3).permutation(5000))]
    generator = Generator(Diffusion(method="diffusion", steps=100, updates=500), values, wrong, Randomness(bytes(32)))
    noise = torch.from_numpy(np.random.default_rng(4).normal(size=(4000, 2)).astype(np.float32))
    asked = torch.ones(4000, 1)
    assert generator.draw(asked, noise, Randomness(bytes(32)))[:, 0].mean() < 0.5  # class 1 alone has mean 2


def test_the_same_randomness_gives_the_same_bits_and_another_one_other_rows() -> None:
    values, labels = two_classes(300, 1)
    settings = Diffusion(method="diffusion", steps=20, updates=20, sampler="ddpm")
    noise = torch.zeros(300, 2)

    def rows(seed: int) -> Tensor:
        return Generator(settings, values, labels, Randomness(bytes([seed] * 32))).draw(
            labels, noise, Randomness(bytes([seed] * 32))
        )

    assert torch.equal(rows(1), rows(1))
    assert not torch.equal(rows(1), rows(2))


@pytest.mark.parametrize("steps", [2, 50, 200, 1000, 10_000])
def test_the_last_step_is_noise_for_any_number_of_steps(steps: int) -> None:
    kept = NoiseSchedule.from_steps(steps, torch.device("cpu")).kept
    assert 0 < kept[-1] < 0.01
    assert bool((kept.diff() < 0).all())


def test_a_constant_column_stays_constant() -> None:
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    scale = Standardised.fit(values)
    assert torch.equal(scale.undo(scale.apply(values)), values)
    assert torch.equal(scale.undo(torch.tensor([[0.0, 7.0]])), torch.tensor([[2.0, 5.0]]))


def test_sampler_steps_are_for_ddim_alone() -> None:
    with pytest.raises(ValidationError, match="sampler_steps is for sampler: ddim"):
        Diffusion(method="diffusion", sampler="ddpm", sampler_steps=10)
