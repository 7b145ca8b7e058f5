from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError, UsageError
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import FEATURES


def rows_of(rows: int) -> Table:
    """``rows`` rows whose one column is their number."""
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), {"n": NumericColumn(np.arange(rows) * 1.0)})


@pytest.fixture
def used(view: Any) -> Any:
    """The own row used at each position."""

    def use(rows: Any, table: int, randomness: Randomness, strategy: str = "sampling") -> NDArray[np.int64]:
        own = rows_of(table)
        encoder = Encoder.fit(own, np.arange(0, table, 2))
        features, source = fill_in(view(rows), own, encoder, Missing(features=strategy), randomness)
        assert features.numeric.tolist() == encoder.transform(own).numeric.tolist()  # no copies
        return source

    return use


def test_an_owned_position_uses_its_own_row_and_another_a_real_one(used: Any, randomness: Randomness) -> None:
    source = used([2, -1, 0, -1, 1], 3, randomness)
    assert list(source[[0, 2, 4]]) == [2, 0, 1]
    assert ((source >= 0) & (source < 3)).all()
    assert source.dtype == np.int64


def test_the_source_row_of_a_position_is_the_same_whenever_it_is_asked_for(used: Any, randomness: Randomness) -> None:
    first = used(np.full(1000, -1), 50, randomness)
    randomness.bytes(100)  # whatever else is drawn meanwhile
    assert (used(np.full(1000, -1), 50, randomness) == first).all()
    assert (used(np.full(1000, -1), 50, Randomness(b"q" * 32)) != first).any()


def test_the_draw_at_a_position_does_not_depend_on_who_owns_the_others(used: Any, randomness: Randomness) -> None:
    some = np.full(100, -1)
    some[::2] = np.arange(50)
    none, half = (used(rows, 50, randomness) for rows in (np.full(100, -1), some))
    assert (none[1::2] == half[1::2]).all()


def test_source_rows_are_uniform(used: Any, randomness: Randomness) -> None:
    own, positions = 20, 40_000
    counts = np.bincount(used(np.full(positions, -1), own, randomness), minlength=own)
    chi_squared = ((counts - positions / own) ** 2 / (positions / own)).sum()
    assert chi_squared < 43.8  # 99.9 % quantile at 19 degrees of freedom


@pytest.mark.parametrize("strategy", [name for name in FEATURES if FEATURES[name].embeddings])
def test_below_synthetic_embeddings_lie_sampled_rows(strategy: str, used: Any, randomness: Randomness) -> None:
    rows = [2, -1, 0, -1, 1]
    assert (used(rows, 3, randomness, strategy) == used(rows, 3, randomness)).all()


def test_with_every_row_owned_nothing_is_drawn(used: Any, randomness: Randomness) -> None:
    for strategy in ("none", "sampling", "smoothed", "gaussian"):
        assert list(used([1, 0, 2], 3, randomness, strategy)) == [1, 0, 2]


def test_missing_rows_without_a_strategy_and_an_empty_table_are_refused(used: Any, randomness: Randomness) -> None:
    with pytest.raises(UsageError, match=r"missing\.features"):
        used([0, -1], 1, randomness, "none")
    for strategy in ("sampling", "smoothed"):
        with pytest.raises(DataError, match="E_EMPTY"):
            used([-1, -1], 0, randomness, strategy)
