"""LAMB beside a plain rendering of its paper's Algorithm 2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vfl_node.models.optimisers import Lamb, restore_optimiser, tensors_of_optimiser


def plain(weights: np.ndarray, gradients: np.ndarray, rate: float, decay: float) -> np.ndarray:
    """The weights after all ``gradients``, one after the other, in float64."""
    x, m, v = weights.astype(np.float64), np.zeros_like(weights, np.float64), np.zeros_like(weights, np.float64)
    for step, g in enumerate(gradients.astype(np.float64), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        r = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6)
        update = r + decay * x
        length, along = np.linalg.norm(x), np.linalg.norm(update)
        x = x - rate * (length / along if length > 0 and along > 0 else 1.0) * update
    return x


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("start", ["random", "zero"])
def test_it_steps_as_the_paper_says(decay: float, start: str) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 3)).astype(np.float32) * (start == "random")
    gradients = rng.normal(size=(30, 4, 3)).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    optimizer = Lamb([parameter], lr=1e-2, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), plain(weights, gradients, 1e-2, decay), rtol=1e-4, atol=1e-6)


def test_a_tensor_without_a_gradient_and_one_with_zeros_stay() -> None:
    still, idle = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    optimizer = Lamb([still, idle], lr=1e-2)
    still.grad = torch.zeros(3)
    optimizer.step()
    assert still.tolist() == idle.tolist() == [1, 1, 1]


def test_a_step_is_as_long_as_the_rate_times_the_tensor() -> None:
    parameter = torch.nn.Parameter(torch.full((5,), 2.0))
    parameter.grad = torch.rand(5) + 1
    before = parameter.detach().clone()
    Lamb([parameter], lr=0.1).step()
    assert float((parameter.detach() - before).norm()) == pytest.approx(0.1 * float(before.norm()), rel=1e-5)


def test_a_restart_changes_no_bit() -> None:
    gradients = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))

    def after(stop: int | None) -> torch.Tensor:
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = Lamb([parameter], lr=1e-2, weight_decay=0.01)
        for number, gradient in enumerate(gradients):
            if number == stop:
                again = Lamb([parameter], lr=1e-2, weight_decay=0.01)
                restore_optimiser(again, {name: value.clone() for name, value in tensors_of_optimiser(optimizer).items()})
                optimizer = again
            parameter.grad = gradient
            optimizer.step()
        return parameter.detach()

    whole = after(None)
    assert all(torch.equal(after(stop), whole) for stop in (0, 1, 3, 5))
