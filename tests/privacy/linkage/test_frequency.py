"""The coordinator recognises frequent keys by their equal filters."""

from __future__ import annotations

import numpy as np

from benchmarks.linkage_privacy import Linkage, frequency_found
from experiments.linkage.frequency import recognise


def test_keys_are_recognised_by_their_frequency(linkage: Linkage) -> None:
    found = frequency_found(linkage.points, linkage.active, known=True)
    assert found > 0.04
    assert frequency_found(linkage.points, linkage.active, known=False) < found / 3
    assert frequency_found(linkage.points, linkage.active, known=True, equal=True) < 0.02


def test_frequencies_that_all_differ_give_every_key(linkage: Linkage) -> None:
    counts = np.arange(1, 31)
    truth = np.random.default_rng(0).permutation(np.repeat(np.arange(30), counts))
    np.testing.assert_array_equal(recognise(linkage.active[truth], counts.astype(float)), truth)
    (unknown,) = np.unique(recognise(linkage.active[truth], counts[15:].astype(float))[truth < 15])
    assert unknown == -1  # fewer keys than filters
