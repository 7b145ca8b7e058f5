"""Gradients of a learner's own weights, after those of what it received have left."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.network.learner import Learner
from vfl_node.training.split.config import Train


def parts() -> tuple[nn.Sequential, nn.Linear, Tensor]:
    """A model, a head beside it, and an embedding."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model.register_module("unused", nn.Linear(2, 2))
    model[2].bias.requires_grad_(False)
    return model, nn.Linear(4, 1), torch.randn(16, 4).requires_grad_()


def loss_of(model: nn.Sequential, head: nn.Module, embedding: Tensor) -> Tensor:
    hidden: Tensor = model[2](model[1](model[0](embedding)))
    return (hidden + head(embedding)).square().mean()


def test_two_passes_give_the_bits_of_one() -> None:
    model, head, embedding = parts()
    loss_of(model, head, embedding).backward()  # type: ignore[no-untyped-call]
    once, received = [weight.grad for weight in model.parameters()], embedding.grad
    for alone in (True, False):
        model, head, embedding = parts()
        loss = loss_of(model, head, embedding)
        (gradient,) = torch.autograd.grad(loss, [embedding], retain_graph=True)
        Learner(model, Train(bottom=(4,)), Randomness(bytes(32))).backward(loss, alone=alone)
        assert received is not None
        assert torch.equal(gradient, received)
        for weight, expected in zip(model.parameters(), once, strict=True):
            assert (weight.grad is None) if expected is None else torch.equal(weight.grad, expected)
        assert (head.weight.grad is None) is alone  # others learn from a loss that is not the model's alone
        assert (embedding.grad is None) is alone
