"""The active party locates keys of the passive one by which of its records have one as a candidate: noise does nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import Linkage, embeddings_of, found_by_active, found_by_membership, made_up, partition
from experiments.linkage import membership

CHANCE_M = 10_000


def test_who_has_a_record_as_a_candidate_locates_it_whatever_the_noise_is() -> None:
    linkage = Linkage(made_up(400, 80), 5, 0.1)
    groups = partition.partition(embeddings_of(linkage.rows, len(linkage.passive)))  # of a training, in no order
    pairs = partition.record_similarities(linkage.release(50.0).similarities[linkage.rows, np.arange(400)[:, None]], groups)
    guess = membership.locate(~np.isnan(pairs), linkage.points.active)
    truth = linkage.points.passive[np.unique(linkage.rows)]
    behind = [np.unique(linkage.rows[groups == group]).item() for group in range(len(guess))]
    assert linkage.points.error(guess, linkage.points.passive[behind]) < 1500
    assert found_by_active(linkage, 50.0, 400) > 5000  # similarities tell nothing
    assert linkage.points.error(np.random.default_rng(0).permutation(guess), truth) > CHANCE_M  # the control


@pytest.mark.parametrize(("count", "within_m"), [(5, 1500), (20, 4000)])
def test_fewer_candidates_locate_better(count: int, within_m: float) -> None:
    linkage = Linkage(made_up(400, 80), count, 0.1)
    assert found_by_membership(linkage) < within_m
    assert found_by_membership(linkage, mixed_up=True) > CHANCE_M


def test_few_uses_tell_less() -> None:
    """What ``linkage.max_reuse`` is for."""
    linkage = Linkage(made_up(2000, 40), 2, 0.1)
    members = ~np.isnan(linkage.true)
    few = np.zeros_like(members)
    for record, of in enumerate(members):
        few[record, np.flatnonzero(of)[:1]] = True
    used = members.any(axis=1)
    errors = [
        linkage.points.error(membership.locate(of[used], linkage.points.active), linkage.points.passive[used])
        for of in (few, members)
    ]
    assert errors[0] > 1.3 * errors[1]


@pytest.mark.data
def test_schools_are_located(schools: Linkage) -> None:
    few = Linkage(schools.points, 5)
    assert found_by_membership(few) < 600
    assert found_by_membership(few, mixed_up=True) > 6000
