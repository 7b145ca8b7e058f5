"""The active party locates keys of the passive one by how many candidates are within reach: exact, without a training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.linkage_privacy import counted
from experiments.linkage import counts
from tests.alignment.linkage.worlds import A, B, World, numbers
from vfl_node.alignment.alignment import Alignment

THEIRS = np.array([7.0, 16.0, 33.0, 42.5, 58.0, 67.0, 83.0, 93.0])  # no fall hides a rise


def found(folder: Path, reach: float) -> np.ndarray:
    """What the active party finds from what it received: a job that only aligns, with noise of 50 deviations."""
    world = World(folder, {A: numbers(200, 3), B: THEIRS}, limits={B: {"linkage": {"max_reuse": 200}}})
    key = {"kind": "number", "low": 0, "high": 100, "reach": reach}
    alignment = world.job(keys={"u": key}, encoding={"epsilon": 0.1, "delta": 0.05}, candidates=8, noise={"sigma": 50})[A]
    assert isinstance(alignment, Alignment)
    seen = (alignment.similarities != 0).sum(axis=1)
    return counts.locate(seen, world.keys[A][alignment.rows], reach)


def test_counts_within_reach_locate_every_record(tmp_path: Path) -> None:
    np.testing.assert_allclose(found(tmp_path, 3.0), THEIRS, atol=1.0)


def test_where_every_record_has_all_its_candidates_nothing_is_found(tmp_path: Path) -> None:
    """The control: two reaches are as far as the bounds are apart."""
    assert not len(found(tmp_path, 50.0))


def test_figures_of_the_page() -> None:
    number, error = counted(3)
    assert (number, counted(50)[0]) == (8, 0)
    assert error < 0.3


@pytest.mark.parametrize("first", [0, 1])
def test_records_before_the_first_key_are_known_by_their_falls(first: int) -> None:
    """Two records, one of which is within reach of the first key already, or neither is."""
    own = np.arange(20.0)
    theirs = np.array([2.5, 12.5]) if first else np.array([5.5, 12.5])
    seen = (np.abs(own[:, None] - theirs) < 4).sum(axis=1)
    assert seen[0] == first
    np.testing.assert_array_equal(counts.locate(seen, own, 2.0), theirs)
