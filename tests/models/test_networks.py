from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import ARCHITECTURES, InputSchema, architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.training.split.config import Train

SCHEMA = InputSchema(3, (4, 6))
TRAIN = Train(bottom=(16, 8), active_bottom=(16, 8), top=(4,))
KINDS = sorted(ARCHITECTURES)


def bottom(name: str = "mlp", schema: InputSchema = SCHEMA) -> nn.Module:
    return architecture_of(name).bottom(schema, TRAIN.bottom, TRAIN)


def whole(name: str, schema: InputSchema = SCHEMA, received: tuple[int, ...] = ()) -> Classifier:
    return build_classifier(architecture_of(name), TRAIN, schema, received)


def rows(schema: InputSchema = SCHEMA, count: int = 5) -> ModelInput:
    generator = torch.Generator().manual_seed(3)
    codes = [torch.randint(k, (count,), generator=generator) for k in schema.cardinalities]
    categorical = torch.stack(codes, dim=1) if codes else None
    return ModelInput.from_tensors(torch.randn(count, schema.numeric, generator=generator), categorical)


def draws(seed: int = 1) -> Randomness:
    return Randomness(bytes([seed]) * 32)


@pytest.mark.parametrize(("name", "width"), [("mlp", 8), ("wide_deep", 9)])
def test_an_embedding_has_the_cut_width_and_passed_a_relu(name: str, width: int) -> None:
    model = bottom(name)
    initialise(model, draws())
    embedding = model(rows())
    assert embedding.shape == (5, width)
    assert width == architecture_of(name).cut_width((16, 8))
    assert (embedding[:, :8] >= 0).all()


def test_the_wide_coordinate_is_linear_in_the_columns_and_added_to_the_logit() -> None:
    numeric = InputSchema(3)
    model, top = bottom("wide_deep", numeric), whole("wide_deep", InputSchema(), (9,))
    initialise(model, draws())
    initialise(top, draws())
    x = rows(numeric)
    torch.testing.assert_close(model(ModelInput.from_tensors(3 * x.numeric))[:, -1], 3 * model(x)[:, -1])
    embedding = model(x)
    raised = embedding.clone()
    raised[:, -1] += 2
    torch.testing.assert_close(top(x, [raised]), top(x, [embedding]) + 2)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("schema", [InputSchema(3), InputSchema(0, (4, 6)), SCHEMA])
def test_numeric_only_and_categorical_only_tables_fit(name: str, schema: InputSchema) -> None:
    model = bottom(name, schema)
    initialise(model, draws())
    embedding = model(rows(schema))
    assert embedding.isfinite().all()
    embedding.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", [{}, {"batch_norm": True, "dropout": 0.5}, {"layer_norm": True, "top": ()}])
def test_weights_are_counted_exactly(name: str, options: dict[str, object]) -> None:
    train = TRAIN.model_copy(update=options)
    architecture = architecture_of(name)
    built = build_classifier(architecture, train, SCHEMA, [architecture.cut_width(train.bottom)])
    count = sum(parameter.numel() for parameter in built.parameters())
    bottom_weights = architecture.bottom_weights(SCHEMA, train.active_bottom, train)
    assert count == bottom_weights + architecture.head_weights([8, 8], train)


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_comes_from_the_stream(name: str) -> None:
    models = [whole(name) for _ in range(3)]
    for model in models:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float("nan"))
    for model, seed in zip(models, (1, 1, 2), strict=True):
        initialise(model, draws(seed))
    first, same, other = (list(model.parameters()) for model in models)
    for a, b, c in zip(first, same, other, strict=True):
        assert a.isfinite().all()
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_an_unseen_category_starts_at_zero_and_others_do_not() -> None:
    model = bottom()
    initialise(model, draws())
    assert (model.categories[0].weight[0] == 0).all()
    assert (model.categories[0].weight[1:] != 0).all()


def test_building_and_initialising_leave_the_global_generators_alone() -> None:
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    initialise(whole("wide_deep"), draws())
    assert torch.equal(before, torch.get_rng_state())
    assert (numpys == np.random.get_state()[1]).all()
    nn.Linear(2, 2)  # the ordinary constructor does consume it: the check can fail
    assert not torch.equal(before, torch.get_rng_state())


def test_a_classifier_without_columns_reads_the_received_embedding_only() -> None:
    model = whole("mlp", InputSchema(), (8,))
    initialise(model, draws())
    assert model.bottom is None
    assert model(ModelInput.from_tensors(torch.zeros(5, 0)), [torch.ones(5, 8)]).shape == (5,)


def test_rows_of_every_kind_are_taken_together() -> None:
    images, tokens = torch.arange(3 * 4.0).view(3, 1, 2, 2), torch.arange(6).view(3, 2)
    taken = ModelInput(torch.eye(3), torch.arange(3)[:, None], images, tokens).take(torch.tensor([2, 0, 2]))
    assert len(taken) == 3
    assert taken.categorical[:, 0].tolist() == [2, 0, 2]
    assert torch.equal(taken.images, images[[2, 0, 2]])
    assert torch.equal(taken.sequences, tokens[[2, 0, 2]])
    assert taken.to(torch.device("meta")).images.device.type == "meta"


def test_a_job_is_checked_and_its_weights_are_counted_without_torch() -> None:
    code = """
import sys
from vfl_node.training.split.config import Train
from vfl_node.models import InputSchema, architecture_of
train = Train(model="wide_deep", optimizer="sgd")
architecture_of(train.model).bottom_weights(InputSchema(3, (4,)), train.bottom, train)
architecture_of(train.model).head_weights([8, 8], train)
assert "torch" not in sys.modules
architecture_of(train.model).bottom(InputSchema(3), train.bottom, train)
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
