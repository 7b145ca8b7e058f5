from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError
from vfl_node.training.missing import source_rows


def alignment(rows: list[int] | np.ndarray) -> Alignment:
    rows = np.asarray(rows, dtype=np.int64)
    return Alignment("psu", "curve25519", rows, ours=int((rows >= 0).sum()), theirs=len(rows), intersection=None)


def test_an_owned_position_uses_its_own_row_and_another_a_real_one() -> None:
    view = alignment([2, -1, 0, -1, 1])
    source = source_rows(view, 3, "sampling", Randomness(b"p" * 32))
    assert list(source[view.owned]) == [2, 0, 1]
    assert ((source >= 0) & (source < 3)).all()
    assert source.dtype == np.int64


def test_the_source_row_of_a_position_is_the_same_whenever_it_is_asked_for() -> None:
    view = alignment(np.full(1000, -1))
    randomness = Randomness(b"p" * 32)
    first = source_rows(view, 50, "sampling", randomness)
    randomness.bytes(100)  # whatever else is drawn meanwhile
    assert (source_rows(view, 50, "sampling", randomness) == first).all()
    assert (source_rows(view, 50, "sampling", Randomness(b"q" * 32)) != first).any()


def test_the_draw_at_a_position_does_not_depend_on_who_owns_the_others() -> None:
    some = np.full(100, -1)
    some[::2] = np.arange(50)
    none, half = (source_rows(alignment(rows), 50, "sampling", Randomness(b"p" * 32)) for rows in (np.full(100, -1), some))
    assert (none[1::2] == half[1::2]).all()


def test_source_rows_are_uniform() -> None:
    own, positions = 20, 40_000
    source = source_rows(alignment(np.full(positions, -1)), own, "sampling", Randomness(b"p" * 32))
    counts = np.bincount(source, minlength=own)
    chi_squared = ((counts - positions / own) ** 2 / (positions / own)).sum()
    assert chi_squared < 43.8  # 99.9 % quantile at 19 degrees of freedom


def test_with_every_row_owned_nothing_is_drawn() -> None:
    assert list(source_rows(alignment([1, 0, 2]), 3, "none", Randomness(b"p" * 32))) == [1, 0, 2]


def test_missing_rows_without_a_strategy_and_an_empty_table_are_refused() -> None:
    with pytest.raises(UsageError, match=r"missing\.features"):
        source_rows(alignment([0, -1]), 1, "none", Randomness(b"p" * 32))
    with pytest.raises(DataError, match="E_EMPTY"):
        source_rows(alignment([-1, -1]), 0, "sampling", Randomness(b"p" * 32))
