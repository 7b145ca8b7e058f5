"""The joint coin toss, of two parties and of several."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sessions import TWO, session
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, ProtocolError, StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Parties
from vfl_node.session.agree import agree
from vfl_node.session.pins import MemoryPins, Pins
from vfl_node.session.toss import toss
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels, memory_network, run_together
from vfl_node.transport.recorder import Recorder


def side(end: Channel, own: bytes, pins: Pins) -> Coroutine[Any, Any, bytes]:
    """One of two parties; its end of the conversation says which."""
    name = TWO.active if end.peer in TWO.passive else TWO.passive[0]
    return toss(session(name, {end.peer: end}, Randomness(bytes(32)), pins=pins), Randomness(own))


def tossed(ours: bytes, theirs: bytes, pins: tuple[Pins, Pins] | None = None) -> list[Any]:
    kept = pins or (MemoryPins(), MemoryPins())
    ends = memory_channels("clinic", "lab")
    return run_together(*((side(end, own, of), end) for end, own, of in zip(ends, (ours, theirs), kept, strict=True)))


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
    _, error = run_together((_cheat(a, opened), a), (side(b, b"b" * 32, MemoryPins()), b))
    assert isinstance(error, ProtocolError)
    assert error.code == "E_TOSS"


def test_a_share_of_another_length_is_refused() -> None:
    async def answer(channel: Channel) -> None:
        await channel.receive(training_pb2.TossCommit)
        await channel.send(training_pb2.TossShare(share=bytes(31)))
        await channel.receive(training_pb2.TossShare)

    a, b = memory_channels("clinic", "lab")
    error, _ = run_together((side(a, b"a" * 32, MemoryPins()), a), (answer(b), b))
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
    passive = side(b, b"b" * 32, pins[1])
    _, error = run_together((stop_before_opening(a), a), (passive, b))
    assert isinstance(error, PeerLost)
    _, error = tossed(b"a" * 32, b"b" * 32, pins)
    assert isinstance(error, StateError)
    assert error.code == "E_REPLAY"


def star(count: int, job_id: str = "star") -> tuple[Parties, dict[str, dict[str, Channel]]]:
    """Parties of which the active one has a conversation with everybody, and the others with it alone."""
    parties = Parties(active="bank", passive=tuple(f"shop-{number}" for number in range(count)))
    network = memory_network(*parties.all, job_id=job_id)
    return parties, {
        name: {peer: channel for peer, channel in network[name].items() if parties.active in (name, peer)}
        for name in parties.all
    }


def tossed_by_many(secrets: dict[str, bytes], edit: Any = None) -> list[Any]:
    parties, network = star(len(secrets) - 1)
    recorder, runs = Recorder(edit), []
    for name, channels in network.items():
        own = {peer: recorder.wrap(name, channel) for peer, channel in channels.items()}
        of = session(name, own, Randomness(bytes(32)), parties=parties)
        runs.append((toss(of, Randomness(secrets[name])), list(own.values())))
    return run_together(*runs)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_all_of_several_parties_toss_the_same_seed_and_each_has_a_say(count: int) -> None:
    parties, _ = star(count)
    secrets = {name: bytes([number + 1]) * 32 for number, name in enumerate(parties.all)}
    seeds = tossed_by_many(secrets)
    assert len(set(seeds)) == 1
    assert len(seeds[0]) == 32
    for name in parties.all:
        (other, *_) = tossed_by_many(secrets | {name: b"x" * 32})
        assert other != seeds[0]


@pytest.mark.parametrize("victim", ["shop-0", "shop-1", "shop-2"])
def test_the_active_party_cannot_pass_on_another_share_than_was_committed_to(victim: str) -> None:
    """What a passive party is sent last are the openings; one of them is changed."""
    parties, _ = star(3)
    shares: list[Any] = []

    def change(sender: str, receiver: str, message: Any) -> None:
        if isinstance(message, training_pb2.TossShare) and (sender, receiver) == ("bank", victim):
            shares.append(message)
            if len(shares) == (2 if victim == "shop-2" else 3):
                message.share = bytes(32)

    results = tossed_by_many({name: name.encode().ljust(32) for name in parties.all}, change)
    refused = results[parties.all.index(victim)]
    assert isinstance(refused, ProtocolError)
    assert refused.code == "E_TOSS"


@pytest.mark.parametrize(
    ("held", "common"),
    [
        (["aligned"], "aligned"),
        (["aligned", "r1", "r2"], "r1"),
        ([], None),
    ],
)
def test_several_parties_go_on_from_the_newest_point_that_all_hold(tmp_path: Path, held: list[str], common: str | None) -> None:
    """One passive party holds all, another one ``held``; the active party tells both what they have in common."""
    parties, network = star(2)
    points = {"bank": ["aligned", "r0", "r1"], "shop-0": ["aligned", "r0", "r1", "r2"], "shop-1": held}
    runs = []
    for name, channels in network.items():
        of = session(name, channels, Randomness(name.encode().ljust(32)), parties=parties)
        agreed = agree(of, points[name], input_digest=b"d" * 32, inputs=JobFolder(tmp_path / name))
        runs.append((agreed, list(channels.values())))
    assert run_together(*runs) == [common] * 3
