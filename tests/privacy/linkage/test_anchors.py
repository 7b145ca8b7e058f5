"""The coordinator locates records by the distances of their filters to some that it knows: secret pivots do not help."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import Linkage
from experiments.linkage import anchors

CHANCE_M = 8000


def error(linkage: Linkage, known: int, *, mixed_up: bool = False, of_passive: bool = False) -> float:
    """Of the active party's records, or of the passive party's other ones."""
    chosen = np.random.default_rng(0).permutation(len(linkage.passive))[:known]
    keys = linkage.points.passive[np.random.default_rng(1).permutation(chosen) if mixed_up else chosen]
    others = np.setdiff1d(np.arange(len(linkage.passive)), chosen)
    filters = linkage.passive[others] if of_passive else linkage.active[:200]
    truth = linkage.points.passive[others] if of_passive else linkage.points.active[:200]
    return linkage.points.error(anchors.locate(filters, linkage.passive[chosen], keys, linkage.space), truth)


def test_known_records_put_the_map_in_its_place(linkage: Linkage) -> None:
    assert error(linkage, 80) < 600
    assert error(linkage, 80, mixed_up=True) > CHANCE_M
    assert error(linkage, 10) < 1000
    assert error(linkage, 10, mixed_up=True) > CHANCE_M


def test_records_of_the_same_party_are_located_too(linkage: Linkage) -> None:
    assert error(linkage, 30, of_passive=True) < 600
    assert error(linkage, 30, mixed_up=True, of_passive=True) > CHANCE_M


@pytest.mark.data
def test_public_schools_locate_flats(schools: Linkage) -> None:
    assert error(schools, 165) < 300
    assert error(schools, 165, mixed_up=True) > 6000
