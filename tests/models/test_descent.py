"""The project's own optimisers give the bits of torch's."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from vfl_node.models.descent import Adam, Sgd
from vfl_node.models.optimisers import restore_optimiser, tensors_of_optimiser

PAIRS: dict[str, tuple[Any, Any]] = {"adam": (Adam, partial(torch.optim.Adam, fused=True)), "sgd": (Sgd, torch.optim.SGD)}


def weights() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((40, 30), (30,), (7, 5), ())]


def move(parameters: list[nn.Parameter], optimiser: Any, steps: range) -> None:
    """Steps with gradients of very different sizes; the last parameter has one in every other step only, the third none."""
    for step in steps:
        generator = torch.Generator().manual_seed(100 + step)
        optimiser.zero_grad()
        for number, parameter in enumerate(parameters):
            if number != 2 and (number != 3 or step % 2):
                parameter.grad = torch.randn(parameter.shape, generator=generator) * 10.0 ** (number - step % 5)
        optimiser.param_groups[0]["lr"] = 0.01 / (1 + step)
        optimiser.step()


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_weights_and_memory_have_the_bits_of_torchs(name: str, weight_decay: float) -> None:
    own_kind, kind = PAIRS[name]
    own, theirs = weights(), weights()
    ours, other = own_kind(own, rate=0.01, weight_decay=weight_decay), kind(theirs, lr=0.01, weight_decay=weight_decay)
    move(own, ours, range(9))
    move(theirs, other, range(9))
    assert all(torch.equal(*pair) for pair in zip(own, theirs, strict=True))
    assert not torch.equal(own[0], weights()[0])
    remembered, expected = tensors_of_optimiser(ours), tensors_of_optimiser(other)
    assert list(remembered) == list(expected)
    assert all(torch.equal(remembered[key], expected[key]) and remembered[key].dtype == expected[key].dtype for key in expected)


@pytest.mark.parametrize("name", PAIRS)
def test_it_goes_on_with_the_bits_of_no_break_from_what_torch_remembered_too(name: str) -> None:
    own_kind, kind = PAIRS[name]
    whole = weights()
    move(whole, kind(whole, lr=0.01), range(9))
    for begins in (own_kind, kind):
        parts = weights()
        first = own_kind(parts, rate=0.01, weight_decay=0) if begins is own_kind else kind(parts, lr=0.01)
        move(parts, first, range(4))
        kept = {key: value.clone() for key, value in tensors_of_optimiser(first).items()}
        second = own_kind(parts, rate=0.01, weight_decay=0)
        restore_optimiser(second, kept)
        move(parts, second, range(4, 9))
        assert all(torch.equal(*pair) for pair in zip(parts, whole, strict=True))


def test_sparse_gradients_move_the_rows_of_the_batch() -> None:
    moved = []
    for kind in (partial(Sgd, rate=0.5, weight_decay=0), partial(torch.optim.SGD, lr=0.5)):
        table = nn.Embedding(10, 3, sparse=True)
        table.weight.data.copy_(torch.arange(30.0).view(10, 3))
        optimiser: Any = kind(table.parameters())
        table(torch.tensor([1, 4, 1])).square().sum().backward()
        optimiser.step()
        moved.append(table.weight.detach().clone())
    assert torch.equal(*moved)
    assert moved[0][0].tolist() == [0, 1, 2]
    assert moved[0][1].tolist() != [3, 4, 5]


def test_a_step_loads_no_compiler() -> None:
    """It would take a second of each party's time."""
    code = """
import sys
import torch
from vfl_node.models import InputSchema, architecture_of
from vfl_node.models.building import build_bottom
from vfl_node.models.inputs import ModelInput
from vfl_node.models.updates import Updates
from vfl_node.training.split.config import Train

for optimizer in ("adam", "sgd"):
    train = Train(optimizer=optimizer)
    bottom = build_bottom(architecture_of(train.model), train, InputSchema(3, (5,)), train.bottom)
    updates = Updates(bottom, optimizer, train)
    bottom(ModelInput.from_tensors(torch.ones(4, 3), torch.ones(4, 1, dtype=torch.int64))).sum().backward()
    updates.step()
    updates.restore(updates.tensors())
print(*({"torch._dynamo", "sympy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
