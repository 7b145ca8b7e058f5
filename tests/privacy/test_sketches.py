from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy import sketches
from vfl_node.privacy.attacks import distance_ratio, near_duplicate, same_step_twin
from vfl_node.privacy.sketches import LEAF, WIDTH, Sketch, distance_ratios, leaves, nearest, twins


def rows(count: int, width: int, seed: bytes = b"r" * 32) -> torch.Tensor:
    return torch.from_numpy(Randomness(seed).normal((count, width)))


def in_a_tree(sketches: NDArray[np.float32]) -> NDArray[np.float64]:
    return nearest(sketches, leaves(sketches, Randomness(b"n" * 32)))


def test_sketches_keep_distances_and_short_rows_are_their_own() -> None:
    x = rows(200, 128)
    found = np.linalg.norm(np.diff(Sketch(128, Randomness(b"s" * 32))(x), axis=0), axis=1)
    assert found.shape == (199,)
    ratio = found / (x[1:] - x[:-1]).norm(dim=1).numpy()
    assert ratio.mean() == pytest.approx(1, abs=0.05)
    assert ratio.std() == pytest.approx((1 / (2 * WIDTH)) ** 0.5, rel=0.25)
    assert (Sketch(WIDTH, Randomness(b"s" * 32))(x[:, :WIDTH]) == x[:, :WIDTH].numpy()).all()


@pytest.mark.parametrize("width", [3, WIDTH, 64])
@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_twins_are_those_that_a_comparison_of_every_pair_finds(width: int, scale: float) -> None:
    drawn = Randomness(b"t" * 32)
    x = scale * rows(300, width)
    x[:, -1] = 0  # a dead unit
    batches = x[torch.from_numpy(drawn.choices(300, 5 * 120).reshape(5, 120))]
    batches[0, :7] = 0
    batches = batches * (1 + 1e-7 * rows(5 * 120, 1, b"n" * 32).reshape(5, 120, 1))  # rounding
    sketch = Sketch(width, drawn)
    found = twins(np.stack([sketch(batch) for batch in batches]))
    plain = np.stack([same_step_twin.twins(batch) for batch in batches])
    assert 0.2 < plain.mean() < 0.5
    assert (found == plain).all()
    assert twins(np.zeros((2, 1, 3), np.float32)).tolist() == [[False], [False]]


@pytest.mark.parametrize("count", [2, 3, LEAF, LEAF + 1, 1000, 4097])
def test_the_nearest_of_a_leaf_is_found_exactly(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "PAIRS", 0)
    x = rows(count, 5).numpy()
    found = in_a_tree(x)
    exact = near_duplicate.nearest(torch.from_numpy(x), torch.arange(count)).numpy()
    assert (found > exact * (1 - 1e-4)).all()
    if count <= LEAF:
        assert found.tolist() == pytest.approx(exact.tolist(), rel=1e-4)
    else:
        assert np.isfinite(found).all()
        assert np.isclose(found, exact, rtol=1e-3).mean() > 0.4
    monkeypatch.setattr(sketches, "PAIRS_AT_ONCE", 1)
    assert np.allclose(in_a_tree(x), found)
    monkeypatch.setattr(sketches, "PAIRS", count**2)
    assert in_a_tree(x).tolist() == pytest.approx(exact.tolist(), rel=1e-3)


def test_twins_are_near_whatever_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "PAIRS", 0)
    x = rows(3000, 8).numpy()
    both = np.concatenate([x, x[:500] * (1 + 1e-4)])
    found = in_a_tree(both)
    twin = np.concatenate([np.arange(500), np.arange(3000, 3500)])
    assert (found[twin] < 0.01).mean() > 0.98
    assert (np.delete(found, twin) > 0.05).mean() > 0.98
    assert (in_a_tree(np.ones((200, 4), np.float32)) < 1e-3).all()
    assert in_a_tree(x[:1]).tolist() == [np.inf]


@pytest.mark.parametrize("count", [1, 2, 40, 1000, 1025])
def test_distance_ratios_are_those_of_each_leaf_by_itself(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "PAIRS", 0)
    x = rows(count, 5).numpy()
    x[: count // 10] = x[count - count // 10 :]
    groups = leaves(x, Randomness(b"n" * 32))
    expected = np.full(count, np.nan)
    for leaf in groups:
        there = leaf[leaf < count]
        expected[there] = distance_ratio.scores(torch.from_numpy(x[there]).double()).numpy()
    which = Randomness(b"w" * 32).permutation(count)[: count // 2 + 1]
    assert distance_ratios(x, groups, which).tolist() == pytest.approx(expected[which].tolist(), abs=1e-5)
    monkeypatch.setattr(sketches, "PAIRS_AT_ONCE", 1)
    assert distance_ratios(x, groups, which).tolist() == pytest.approx(expected[which].tolist(), abs=1e-5)
