"""The conversations of one party, of which a passive one has fewer than there are other parties."""

from __future__ import annotations

import pytest

from benchmarks.sessions import session
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Parties
from vfl_node.session.session import Session
from vfl_node.transport.generated.vfl.v1.training_pb2 import TossShare
from vfl_node.transport.memory import memory_network, run_together

PARTIES = Parties(active="clinic", passive=("lab", "insurer"), coordinator="notary")


def test_passive_parties_meet_the_active_one_and_the_coordinator_alone() -> None:
    met = {name: PARTIES.peers_of(name) for name in PARTIES.all}
    assert met == {
        "clinic": ("lab", "insurer", "notary"),
        "lab": ("clinic", "notary"),
        "insurer": ("clinic", "notary"),
        "notary": ("clinic", "lab", "insurer"),
    }
    assert PARTIES.others("lab") == ("clinic", "insurer")


def test_a_phase_and_its_traffic_are_of_all_data_peers() -> None:
    held = memory_network(*PARTIES.all, job_id="t")
    sessions = {
        name: session(name, {peer: held[name][peer] for peer in PARTIES.peers_of(name)}, Randomness(bytes(32)), parties=PARTIES)
        for name in PARTIES.data
    }

    async def say(of: Session) -> None:
        async with of.phase("toss") as traffic:
            for channel in of.data_peers.values():
                await channel.send(TossShare(share=bytes(32)))
            for channel in of.data_peers.values():
                await channel.receive(TossShare)
        assert len(traffic) == len(of.data_peers)

    results = run_together(*((say(of), list(of.data_peers.values())) for of in sessions.values()))
    assert results == [None] * 3
    moved = {name: of.traffic()["toss"] for name, of in sessions.items()}
    assert {name: traffic.messages_sent for name, traffic in moved.items()} == {"clinic": 4, "lab": 2, "insurer": 2}
    assert moved["clinic"].bytes_sent == moved["lab"].bytes_received + moved["insurer"].bytes_received
    assert list(sessions["clinic"].data_peers) == ["lab", "insurer"]
    with pytest.raises(ValueError, match="too many"):
        _ = sessions["clinic"].peer
