from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import near_duplicate
from vfl_node.training.split.missing.features.contract import Substitute, substitute
from vfl_node.training.split.missing.strategies import FEATURES

BATCH, WIDTH = 4000, 6
EMBEDDINGS = [name for name in FEATURES if FEATURES[name].embeddings]


def made(strategy: str) -> Substitute:
    embeddings = substitute(FEATURES[strategy](), Randomness(b"p" * 32))
    assert embeddings is not None
    return embeddings


def embedding(rows: int = BATCH, seed: int = 0) -> Tensor:
    """What a bottom may give: coordinates of different means and spreads, none negative."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, WIDTH, generator=generator) * torch.arange(1, WIDTH + 1) + 4).relu()


def half(rows: int = BATCH) -> Tensor:
    return torch.arange(rows) % 2 == 0


def test_other_strategies_leave_the_embeddings_of_their_rows() -> None:
    assert EMBEDDINGS
    for strategy in set(FEATURES) - set(EMBEDDINGS):
        assert substitute(FEATURES[strategy](), Randomness(b"p" * 32)) is None


@pytest.mark.parametrize("strategy", EMBEDDINGS)
def test_real_rows_stay_with_their_graph_and_drawn_ones_have_no_gradient(strategy: str) -> None:
    given, real = embedding().requires_grad_(), half()
    used = made(strategy)("step/0", given, real, learn=True)
    assert used.shape == given.shape
    assert used.dtype == torch.float32
    assert (used[real] == given[real]).all()
    assert used.isfinite().all()
    assert (used.abs().sum(dim=1)[~real] > 0).all()
    used.sum().backward()
    assert given.grad is not None
    assert (given.grad[real] == 1).all()
    assert (given.grad[~real] == 0).all()


def test_a_gaussian_row_is_as_long_as_the_longest_real_one() -> None:
    given, real = embedding(), half()
    given[1] = 1000  # not a real row, so it does not count
    drawn = made("gaussian")("step/0", given, real, learn=True)[~real]
    longest = float(given[real].square().sum(dim=1).max())
    assert float(drawn.square().sum(dim=1).mean()) == pytest.approx(longest, rel=0.05)  # sd of a mean of 2,000: 1.3 %
    covariance = torch.cov(drawn.T) / (longest / WIDTH)
    assert torch.allclose(covariance, torch.eye(WIDTH), atol=0.15)
    assert drawn.mean(dim=0).abs().max() < 0.1 * longest**0.5


def test_a_random_row_has_the_real_ones_mean_and_spread_in_every_coordinate() -> None:
    given, real = embedding(), half()
    given[~real] = 1000
    drawn = made("random")("step/0", given, real, learn=True)[~real]
    sd = given[real].std(dim=0)
    assert ((drawn.mean(dim=0) - given[real].mean(dim=0)).abs() < 0.1 * sd).all()
    assert torch.allclose(drawn.std(dim=0), sd, rtol=0.08)


def test_moving_averages_follow_the_batches_and_only_when_told() -> None:
    drawing, real = made("random"), half()
    drawing("step/0", embedding(), real, learn=True)
    first = drawing.tensors()
    drawing("step/1", embedding() + 10, real, learn=False)
    assert all((drawing.tensors()[name] == value).all() for name, value in first.items())
    drawing("step/2", embedding() + 10, real, learn=True)
    assert torch.allclose(drawing.tensors()["mean"], first["mean"] + 0.1 * 10, atol=1e-4)
    assert torch.allclose(drawing.tensors()["sd"], first["sd"], atol=1e-4)


@pytest.mark.parametrize("strategy", EMBEDDINGS)
def test_the_label_names_the_draw_also_after_a_restart(strategy: str) -> None:
    drawing, given, real = made(strategy), embedding(64), half(64)
    first = drawing("step/7", given, real, learn=True)
    assert (drawing("step/8", given, real, learn=False) != first)[~real].all()
    restarted = made(strategy)
    restarted.restore({name: tensor.clone() for name, tensor in drawing.tensors().items()})
    for label in ("step/7", "batch/7"):
        again = [each(label, given + 1, real, learn=False) for each in (drawing, restarted)]
        assert (again[0] == again[1]).all()
    assert (drawing("step/7", given, real, learn=False) == first).all()
    restarted.restore({})
    assert restarted.tensors() == {}


@pytest.mark.parametrize("strategy", EMBEDDINGS)
@pytest.mark.parametrize(
    ("rows", "real"), [(1, [False]), (1, [True]), (3, [False] * 3), (3, [True] * 3), (3, [True, False, False])]
)
def test_any_number_of_rows_may_be_real(strategy: str, rows: int, real: list[bool]) -> None:
    given, mask = embedding(rows), torch.tensor(real)
    drawing = made(strategy)
    for step in range(2):
        used = drawing(f"step/{step}", given, mask, learn=True)
        assert used.isfinite().all()
        assert (used[mask] == given[mask]).all()
        assert (used.abs().sum(dim=1) > 0).all()
        if rows > 1:
            assert (used != given)[~mask].any(dim=1).all()
    assert bool(drawing.tensors()) == (strategy == "random" and sum(real) > 1)


@pytest.mark.parametrize("strategy", EMBEDDINGS)
def test_made_up_embeddings_are_outliers(strategy: str) -> None:
    """Why they are for comparison only; rows that are in truth all real are at chance."""
    generator = torch.Generator().manual_seed(1)
    given = torch.relu(torch.randn(600, 3, generator=generator) @ torch.randn(3, 32, generator=generator))
    real = half(600)
    for substituted, least, most in ((True, 0, 0.05), (False, 0.45, 0.55)):
        seen = made(strategy)("step/0", given, real, learn=True) if substituted else given
        found = auc(~real.numpy(), near_duplicate.scores(seen).numpy())
        assert found is not None
        assert least <= found <= most
