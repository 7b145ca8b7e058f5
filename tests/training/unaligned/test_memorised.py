"""Made-up embeddings that are copies of real ones are told from draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.unaligned import memorised
from vfl_node.training.unaligned.diffusion import Generator
from vfl_node.training.unaligned.memorised import nearest_real
from vfl_node.training.unaligned.specs import Diffusion


def normal(rows: int, width: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32))


@pytest.mark.parametrize("at_once", [8192, 100])
def test_copies_have_0_draws_1_and_what_lies_elsewhere_more(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memorised, "ROWS_AT_ONCE", at_once)
    real = normal(1500, 8, 0)
    assert nearest_real(real[torch.arange(0, 1500, 2)], real) == 0
    assert nearest_real(real[:500] + 1e-3 * normal(500, 8, 1), real) == pytest.approx(0, abs=0.01)
    assert nearest_real(normal(2500, 8, 2), real) == pytest.approx(1, abs=0.05)
    assert nearest_real(normal(500, 8, 2) + 9, real) > 5  # type: ignore[operator]


def test_without_a_distance_between_real_rows_there_is_none() -> None:
    assert nearest_real(normal(5, 2, 0), normal(1, 2, 1)) is None
    assert nearest_real(normal(5, 2, 0), torch.ones(50, 2)) is None


def test_the_generator_draws_and_learns_only_few_rows_by_heart() -> None:
    """The control: of eight rows and their own conditions it makes copies."""

    def found(rows: int, conditions: Tensor) -> float:
        real, settings = (
            normal(rows, 8, 0),
            Diffusion(method="diffusion", steps=100, sampler_steps=20, hidden=128, updates=1500),
        )
        randomness = Randomness(bytes(32))
        generator = Generator(settings, real, conditions, randomness)
        asked = conditions[torch.arange(400) % len(conditions)]
        nearest = nearest_real(generator.draw(asked, normal(400, 8, 3), randomness), real)
        assert nearest is not None
        return nearest

    assert found(1000, normal(1000, 1, 4)) > 0.8
    assert found(8, torch.eye(8)) < 0.3
