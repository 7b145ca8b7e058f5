from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, ProtocolError, StateError
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.toss import toss
from vfl_node.training.schedule import Schedule
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels, run_together


def tossed(ours: bytes, theirs: bytes, pins: tuple[Pins, Pins] | None = None) -> list[Any]:
    a, b = memory_channels("clinic", "lab")
    kept = pins or (MemoryPins(), MemoryPins())
    return run_together(
        (toss(a, Randomness(ours), first=True, pins=kept[0]), a),
        (toss(b, Randomness(theirs), first=False, pins=kept[1]), b),
    )


def test_both_sides_toss_the_same_seed_and_each_has_a_say() -> None:
    seed, same = tossed(b"a" * 32, b"b" * 32)
    assert seed == same
    assert len(seed) == 32
    assert tossed(b"a" * 32, b"b" * 32)[0] == seed
    assert tossed(b"c" * 32, b"b" * 32)[0] != seed
    assert tossed(b"a" * 32, b"c" * 32)[0] != seed


async def _cheat(channel: Channel, opened: bytes) -> None:
    """Commits to one share, sees the other's, and opens another."""
    commitment = training_pb2.TossCommit(sha256=b"\0" * 32)
    await channel.send(commitment)
    await channel.receive(training_pb2.TossShare)
    await channel.send(training_pb2.TossShare(share=opened))


@pytest.mark.parametrize("opened", [bytes(32), b"short", b""])
def test_an_opening_that_does_not_match_the_commitment_is_refused(opened: bytes) -> None:
    a, b = memory_channels("clinic", "lab")
    _, error = run_together((_cheat(a, opened), a), (toss(b, Randomness(b"b" * 32), first=False, pins=MemoryPins()), b))
    assert isinstance(error, ProtocolError)
    assert error.code == "E_TOSS"


def test_a_share_of_another_length_is_refused() -> None:
    async def answer(channel: Channel) -> None:
        await channel.receive(training_pb2.TossCommit)
        await channel.send(training_pb2.TossShare(share=bytes(31)))
        await channel.receive(training_pb2.TossShare)

    a, b = memory_channels("clinic", "lab")
    error, _ = run_together((toss(a, Randomness(b"a" * 32), first=True, pins=MemoryPins()), a), (answer(b), b))
    assert isinstance(error, ProtocolError)
    assert error.code == "E_TOSS"


@pytest.mark.parametrize(("ours", "theirs", "who_refuses"), [(b"c", b"b", 1), (b"a", b"c", 0)])
def test_a_later_attempt_may_not_bring_another_share(ours: bytes, theirs: bytes, who_refuses: int) -> None:
    pins = MemoryPins(), MemoryPins()
    first = tossed(b"a" * 32, b"b" * 32, pins)
    assert tossed(b"a" * 32, b"b" * 32, pins) == first
    results = tossed(ours * 32, theirs * 32, pins)
    assert isinstance(results[who_refuses], StateError)
    assert results[who_refuses].code == "E_REPLAY"
    assert isinstance(results[1 - who_refuses], PeerLost)


def test_an_attempt_that_ended_before_the_opening_binds_too() -> None:
    """The active party has seen the other share by then; it may not commit anew."""

    async def stop_before_opening(channel: Channel) -> None:
        await channel.send(training_pb2.TossCommit(sha256=b"\1" * 32))
        await channel.receive(training_pb2.TossShare)

    pins = MemoryPins(), MemoryPins()
    a, b = memory_channels("clinic", "lab")
    passive = toss(b, Randomness(b"b" * 32), first=False, pins=pins[1])
    _, error = run_together((stop_before_opening(a), a), (passive, b))
    assert isinstance(error, PeerLost)
    _, error = tossed(b"a" * 32, b"b" * 32, pins)
    assert isinstance(error, StateError)
    assert error.code == "E_REPLAY"


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
