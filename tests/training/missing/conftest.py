"""One party's encoded columns, and its view of a union."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import CLIP, Features


def view(rows: Sequence[int] | NDArray[np.int64]) -> Alignment:
    """A party's view; it owns the positions whose row is not −1."""
    rows = np.asarray(rows, dtype=np.int64)
    return Alignment("psu", "curve25519", rows, ours=int((rows >= 0).sum()), theirs=len(rows), intersection=None)


def union(own: int, shared: int, seed: int = 0) -> Alignment:
    """``own`` rows at random places among ``shared``."""
    rng = np.random.default_rng(seed)
    rows = np.full(shared, NOT_MINE)
    rows[rng.permutation(shared)[:own]] = rng.permutation(own)
    return view(rows)


def columns(rows: int, *, seed: int = 0, spread: float = 0.5, mixed: bool = True) -> Features:
    """Correlated columns with long tails.

    Numeric: eight continuous ones; or, ``mixed``, three, one that is mostly a single value, a
    small count, one with missing values and, last, its indicator; and two categorical ones.
    """
    rng = np.random.default_rng(seed)
    base, width = rng.normal(size=(rows, 2)), 3 if mixed else 8
    ties = np.array([[1, 0.5, -1, 0.2, 1, 0, 0.7, 0], [0, 1, 1, -1, 0.3, 1, 0, 0.5]])[:, :width]
    numeric = list(np.sinh(base @ ties + spread * rng.normal(size=(rows, width))).T)
    codes: list[NDArray[Any]] = []
    if mixed:
        absent = rng.random(rows) < 0.2
        numeric.append(np.where(rng.random(rows) < 0.8, 0, np.exp(base[:, 0])))
        numeric.append(np.floor(np.abs(2 * base[:, 1])))
        numeric.append(numeric[0] + rng.normal(size=rows))
        codes = [1 + (base[:, 0] > 0) + (base[:, 0] > 1), 1 + rng.integers(0, 4, rows)]
    scaled = [(column - column.mean()) / column.std() for column in numeric]
    if mixed:
        scaled[-1] = np.where(absent, 0, scaled[-1])
        scaled.append(absent.astype(float))
    return Features(
        np.clip(np.stack(scaled, axis=1), -CLIP, CLIP).astype(np.float32),
        np.stack(codes, axis=1).astype(np.int64) if mixed else np.zeros((rows, 0), np.int64),
        (4, 5) if mixed else (),
    )


@pytest.fixture
def randomness() -> Randomness:
    return Randomness(b"p" * 32)


@pytest.fixture(name="view")
def view_fixture() -> Callable[..., Alignment]:
    return view


@pytest.fixture(name="union")
def union_fixture() -> Callable[..., Alignment]:
    return union


@pytest.fixture(name="columns")
def columns_fixture() -> Callable[..., Features]:
    return columns
