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


@pytest.mark.parametrize(
    ("test", "validation", "sizes"), [(0.2, 0.1, (70, 10, 20)), (0.0, 0.3, (70, 30, 0)), (0.2, 0.0, (80, 0, 20))]
)
def test_validation_rows_are_neither_trained_nor_tested_on(test: float, validation: float, sizes: tuple[int, int, int]) -> None:
    schedule = Schedule(b"s" * 32, 100, 0)
    training, testing, apart = schedule.parts(0, test, validation)
    held_out = testing if test else np.empty(0)
    assert tuple(map(len, (training, apart, held_out))) == sizes
    assert sorted([*training, *apart, *held_out]) == list(range(100))
    assert list(testing) == (list(schedule.split(0, test)[1]) if test else list(training))
    assert all((np.diff(of) > 0).all() for of in (training, testing, apart))


def test_rows_are_too_few_for_all_parts() -> None:
    training, testing, validation = Schedule(b"s" * 32, 1, 0).parts(0, 0.2, 0.2)
    assert (len(training), len(testing), len(validation)) == (0, 1, 0)


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
