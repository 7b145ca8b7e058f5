from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.models.initial_weights import initialise
from vfl_node.models.layers import BatchNorm, Dropout, hidden_layers
from vfl_node.models.settings import LayerOptions
from vfl_node.training.split.config import Train


def draws(seed: int = 1) -> Randomness:
    return Randomness(bytes([seed]) * 32)


def dropped(rate: float, seed: int = 1, rows: int = 2000) -> torch.Tensor:
    layer = Dropout(rate)
    layer.draw_from(draws(seed))
    return layer(torch.ones(rows, 50))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_its_share(rate: float) -> None:
    values = dropped(rate)
    assert float((values == 0).float().mean()) == pytest.approx(rate, abs=0.01)
    assert values[values != 0].unique().tolist() == pytest.approx([1 / (1 - rate)])


def test_masks_come_from_the_stream_and_from_nowhere_else() -> None:
    before = torch.get_rng_state()
    assert torch.equal(dropped(0.5), dropped(0.5))
    assert not torch.equal(dropped(0.5), dropped(0.5, seed=2))
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(RuntimeError, match="without its party's randomness"):
        Dropout(0.5)(torch.ones(3, 3))
    torch.nn.functional.dropout(torch.ones(3, 3), 0.5)  # torch's own does use the global generator: the check can fail
    assert not torch.equal(before, torch.get_rng_state())


def test_in_evaluation_nothing_is_dropped() -> None:
    assert torch.equal(Dropout(0.5).eval()(torch.ones(3, 3)), torch.ones(3, 3))


def test_a_batch_norm_is_that_of_torch_and_follows_the_batches() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (64, 5)).astype(np.float32))
    ours, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    for start in (0, 32):
        assert torch.equal(ours(rows[start : start + 32]), theirs(rows[start : start + 32]))
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())
    assert torch.equal(ours.eval()(rows), theirs.eval()(rows))


def test_a_batch_of_one_row_is_scaled_by_the_running_averages_and_leaves_them() -> None:
    layer = BatchNorm(4)
    layer(torch.arange(32.0).view(8, 4))
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    row = torch.ones(1, 4, requires_grad=True)
    trained = layer(row)
    trained.sum().backward()
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in before.items())
    assert torch.equal(trained, layer.eval()(row))
    assert layer.weight.grad is not None
    with pytest.raises(ValueError, match="more than 1 value"):  # torch's own has no answer
        nn.BatchNorm1d(4)(row)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 4, 2),
        nn.GRU(3, 4),
        nn.Embedding(5, 3),
        nn.LayerNorm(3),
        hidden_layers(3, (4, 4), LayerOptions(batch_norm=True)),
    ],
)
def test_every_parameter_of_a_known_layer_is_set(layer: nn.Module) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(float("nan"))
    initialise(layer, draws())
    assert all(parameter.isfinite().all() for parameter in layer.parameters())


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(3))


class OwnScale(Scale):
    def initialise(self, draws: Randomness) -> None:
        self.factor.copy_(torch.from_numpy(draws.uniform((3,))))


def test_an_unknown_layer_must_say_how_it_begins() -> None:
    with pytest.raises(UsageError, match="Scale") as caught:
        initialise(nn.Sequential(Scale()), draws())
    assert caught.value.code == "E_EXTENSION"
    models = [nn.Sequential(OwnScale()) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        initialise(model, draws(seed))
    assert torch.equal(models[0][0].factor, models[1][0].factor)
    assert not torch.equal(models[0][0].factor, models[2][0].factor)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"batch_norm": True, "layer_norm": True}, "choose one"),
        ({"batch_norm": True, "batch_size": 1}, "batch of one row"),
        ({"layer_norm": True, "top": (4, 1)}, "2 units or more"),
        ({"dropout": 1.0}, "less than or equal to 0.99"),
        ({"clip": 0}, "greater than 0"),
    ],
)
def test_options_that_cannot_work_are_refused(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Train.model_validate(section)
