from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import MODELS, Bottom, Classifier, Top, initialise

NUMERIC, CARDINALITIES = 3, (4, 6)


def bottom(name: str = "mlp", *, numeric: int = NUMERIC, cardinalities: tuple[int, ...] = CARDINALITIES) -> Bottom:
    return MODELS[name].bottom(numeric=numeric, cardinalities=cardinalities, embedding_size=4, sizes=(16, 8))


def columns(rows: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    numeric = torch.randn(rows, NUMERIC, generator=generator)
    return numeric, torch.stack([torch.randint(k, (rows,), generator=generator) for k in CARDINALITIES], dim=1)


def draws(seed: int = 1) -> Randomness:
    return Randomness(bytes([seed]) * 32)


@pytest.mark.parametrize(("name", "width"), [("mlp", 8), ("wide_deep", 9)])
def test_an_embedding_has_the_cut_width_and_passed_a_relu(name: str, width: int) -> None:
    model = bottom(name)
    initialise(model, draws())
    embedding = model(*columns())
    assert embedding.shape == (5, width)
    assert width == MODELS[name].cut_width((16, 8))
    assert (embedding[:, :8] >= 0).all()


def test_the_wide_coordinate_is_linear_in_the_columns_and_added_to_the_logit() -> None:
    model, top = bottom("wide_deep", cardinalities=()), Top(widths=[9], sizes=(4,), wide=True)
    initialise(model, draws())
    initialise(top, draws())
    x, none = columns()[0], torch.zeros(5, 0, dtype=torch.int64)
    wide = lambda numeric: model(numeric, none)[:, -1]  # noqa: E731
    torch.testing.assert_close(wide(3 * x), 3 * wide(x))
    embedding = model(x, none)
    raised = embedding.clone()
    raised[:, -1] += 2
    torch.testing.assert_close(top([raised]), top([embedding]) + 2)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize(("numeric", "cardinalities"), [(3, ()), (0, (4, 6)), (3, (4, 6))])
def test_numeric_only_and_categorical_only_tables_fit(name: str, numeric: int, cardinalities: tuple[int, ...]) -> None:
    model = bottom(name, numeric=numeric, cardinalities=cardinalities)
    initialise(model, draws())
    x, codes = columns()
    embedding = model(x[:, :numeric], codes[:, : len(cardinalities)])
    assert embedding.isfinite().all()
    embedding.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_parameter_comes_from_the_stream(name: str) -> None:
    models = [
        Classifier(bottom(name), MODELS[name].top(widths=[MODELS[name].cut_width((16, 8))], sizes=(4,))) for _ in range(3)
    ]
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
    model = Classifier(bottom("wide_deep"), Top(widths=[9], sizes=(4,), wide=True))
    initialise(model, draws())
    assert torch.equal(before, torch.get_rng_state())
    assert (numpys == np.random.get_state()[1]).all()
    nn.Linear(2, 2)  # the ordinary constructor does consume it: the check can fail
    assert not torch.equal(before, torch.get_rng_state())


def test_a_layer_without_defined_initial_weights_is_refused() -> None:
    with pytest.raises(TypeError, match="LayerNorm"):
        initialise(nn.Sequential(nn.LayerNorm(3)), draws())


def test_a_classifier_without_columns_reads_the_received_embedding_only() -> None:
    model = Classifier(None, Top(widths=[8], sizes=(), wide=False))
    initialise(model, draws())
    nothing = torch.zeros(5, 0), torch.zeros(5, 0, dtype=torch.int64)
    assert model(*nothing, [torch.ones(5, 8)]).shape == (5,)
