from __future__ import annotations

import numpy as np
import pytest

from vfl_node.training.schedule import Schedule


@pytest.mark.parametrize(("size", "fraction", "held_out"), [(100, 0.2, 20), (7, 0.2, 2), (1, 0.5, 1), (0, 0.2, 0)])
def test_a_split_is_a_partition(size: int, fraction: float, held_out: int) -> None:
    training, testing = Schedule(b"s" * 32, size, 0).split(0, fraction)
    assert len(testing) == held_out
    assert sorted([*training, *testing]) == list(range(size))
    assert (np.diff(training) > 0).all()
    assert (np.diff(testing) > 0).all()


def test_without_a_test_fraction_training_rows_are_tested() -> None:
    training, testing = Schedule(b"s" * 32, 10, 0).split(0, 0.0)
    assert list(training) == list(testing) == list(range(10))


def test_repeats_have_their_own_splits() -> None:
    schedule = Schedule(b"s" * 32, 100, 0)
    assert list(schedule.split(0, 0.2)[1]) != list(schedule.split(1, 0.2)[1])


def test_batches_hold_every_position_once_in_a_new_order_each_epoch() -> None:
    schedule = Schedule(b"s" * 32, 100, 0)
    training, _ = schedule.split(0, 0.25)
    first, second = (schedule.batches(0, epoch, training, 16) for epoch in (0, 1))
    assert [len(batch) for batch in first] == [16, 16, 16, 16, 11]
    for batches in (first, second):
        assert sorted(np.concatenate(batches)) == list(training)
    assert list(np.concatenate(first)) != list(np.concatenate(second))
    assert list(np.concatenate(first)) != list(training)


def test_a_schedule_depends_on_seed_size_and_salt_only() -> None:
    def orders(schedule: Schedule) -> list[int]:
        training, _ = schedule.split(0, 0.2)
        return list(np.concatenate(schedule.batches(0, 0, training, 8)))

    assert orders(Schedule(b"s" * 32, 50, 7)) == orders(Schedule(b"s" * 32, 50, 7))
    assert orders(Schedule(b"t" * 32, 50, 7)) != orders(Schedule(b"s" * 32, 50, 7))
    assert orders(Schedule(b"s" * 32, 50, 8)) != orders(Schedule(b"s" * 32, 50, 7))
    fingerprints = {
        Schedule(b"s" * 32, 50, 7).fingerprint,
        Schedule(b"s" * 32, 51, 7).fingerprint,
        Schedule(b"s" * 32, 50, 8).fingerprint,
    }
    assert len(fingerprints) == 3
