"""One party's columns, how they are encoded, and its view of a union."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features, Levels, Scale
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.data.transforms import Standard
from vfl_node.job.alignment import ALIGNMENTS


def view(rows: Sequence[int] | NDArray[np.int64]) -> Alignment:
    """A party's view; it owns the positions whose row is not −1."""
    rows = np.asarray(rows, dtype=np.int64)
    return Alignment(ALIGNMENTS["psu"], "curve25519", rows, int((rows >= 0).sum()), {"lab": PeerFacts(len(rows))})


def union(own: int, shared: int, seed: int = 0) -> Alignment:
    """``own`` rows at random places among ``shared``."""
    rng = np.random.default_rng(seed)
    rows = np.full(shared, NOT_MINE)
    rows[rng.permutation(shared)[:own]] = rng.permutation(own)
    return view(rows)


@dataclass(frozen=True)
class Own:
    """One party's table, and how a model reads it."""

    table: Table
    encoder: Encoder

    @property
    def features(self) -> Features:
        return self.encoder.transform(self.table)


def table(rows: int, numeric: Sequence[NDArray[Any]], codes: Sequence[NDArray[Any]], cardinalities: Sequence[int]) -> Table:
    """Columns n0, n1, … and c0, c1, …; of the codes 0 is missing."""
    named: dict[str, Column] = {f"n{i}": NumericColumn(values.astype(np.float64)) for i, values in enumerate(numeric)}
    for i, (column, cardinality) in enumerate(zip(codes, cardinalities, strict=True)):
        named[f"c{i}"] = CategoricalColumn(column.astype(np.int64) - 1, levels(cardinality))
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), named)


def levels(cardinality: int) -> tuple[str, ...]:
    return tuple(f"{code:04}" for code in range(1, cardinality))


def plain(numeric: Any, categorical: Any = None, cardinalities: tuple[int, ...] = ()) -> Own:
    """Columns that a model reads as they are."""
    numeric = np.asarray(numeric)
    codes = np.zeros((len(numeric), 0)) if categorical is None else np.asarray(categorical)
    scales = [Scale(name=f"n{i}", transform=Standard(mean=0, sd=1), indicator=False) for i in range(numeric.shape[1])]
    coded = [Levels(name=f"c{i}", levels=levels(cardinality)) for i, cardinality in enumerate(cardinalities)]
    return Own(table(len(numeric), numeric.T, codes.T, cardinalities), Encoder(columns=(*scales, *coded)))


def columns(rows: int, *, seed: int = 0, spread: float = 0.5, mixed: bool = True) -> Own:
    """Correlated columns with long tails, scaled by every other row.

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
        numeric.append(np.where(absent, np.nan, numeric[0] + rng.normal(size=rows)))
        codes = [1 + (base[:, 0] > 0) + (base[:, 0] > 1), 1 + rng.integers(0, 4, rows)]
    own = table(rows, numeric, codes, (4, 5) if mixed else ())
    return Own(own, Encoder.fit(own, np.arange(0, rows, 2)))


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
def columns_fixture() -> Callable[..., Own]:
    return columns


@pytest.fixture(name="plain")
def plain_fixture() -> Callable[..., Own]:
    return plain
