"""The active party finds which similarities are of the same record: nothing is done against it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import Linkage, embeddings_of
from experiments.linkage.partition import agreement, partition, record_similarities


def test_equal_embeddings_give_the_partition_exactly(linkage: Linkage) -> None:
    truth = linkage.rows.astype(np.int64)
    groups = partition(embeddings_of(linkage.rows, len(linkage.passive)))
    assert agreement(groups, truth) == 1
    shuffled = np.random.default_rng(0).permutation(groups.ravel()).reshape(groups.shape)
    assert agreement(shuffled, truth) < 0.05


def test_dropout_of_each_place_at_the_passive_party_hides_it(linkage: Linkage) -> None:
    groups = partition(embeddings_of(linkage.rows, len(linkage.passive), dropout=0.3))
    assert agreement(groups, linkage.rows.astype(np.int64)) < 0.1


def test_what_it_takes_to_collect_the_similarities_of_a_record() -> None:
    groups = np.array([[0, 1], [1, -1], [2, 0]])
    found = record_similarities(np.array([[0.1, 0.2], [0.3, 9.0], [0.5, 0.6]]), groups)
    expected = [[0.1, np.nan, 0.6], [0.2, 0.3, np.nan], [np.nan, np.nan, 0.5]]
    np.testing.assert_array_equal(found, expected)


def test_agreement() -> None:
    truth = np.array([0, 0, 1, 1])
    assert agreement(np.array([5, 5, 2, 2]), truth) == 1
    assert agreement(np.array([0, 0, 0, 0]), truth) == pytest.approx(2 / 6)
    assert agreement(np.array([0, 1, 2, 3]), truth) == 0


def test_a_record_is_known_again_in_another_job(linkage: Linkage) -> None:
    """By the active records of which it is a candidate, whatever the order of candidates and the number of its group is."""
    rng, truth = np.random.default_rng(0), linkage.rows.astype(np.int64)
    other = rng.permutation(len(linkage.passive))[rng.permuted(truth, axis=1)]
    first, second = (~np.isnan(record_similarities(np.zeros(truth.shape), groups)) for groups in (truth, other))
    used = first.any(axis=1)
    alike = first[used].astype(int) @ second.T.astype(int)
    jaccard = alike / np.maximum((first[used][:, None] | second[None]).sum(axis=2), 1)
    guess = jaccard.argmax(axis=1)
    np.testing.assert_array_equal(second[guess], first[used])
    assert len(set(guess)) == used.sum()
