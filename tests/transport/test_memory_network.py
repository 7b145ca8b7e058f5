"""Several parties in one process: who holds which channel, and that an end is seen by everyone."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.errors import PeerLost
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel
from vfl_node.transport.memory import memory_network, run_together

NAMES = ("clinic", "lab", "notary")


async def say(channel: Channel, word: str) -> None:
    await channel.send(Cancel(job_id=word))


async def hear(channel: Channel) -> str:
    return (await channel.receive(Cancel)).job_id


def test_every_two_parties_have_a_channel_in_the_order_of_the_parties() -> None:
    network = memory_network(*NAMES, job_id="j")
    assert {name: list(held) for name, held in network.items()} == {
        "clinic": ["lab", "notary"],
        "lab": ["clinic", "notary"],
        "notary": ["clinic", "lab"],
    }
    assert all(channel.peer == peer and channel.job_id == "j" for held in network.values() for peer, channel in held.items())

    async def party(name: str) -> list[str]:
        for peer, channel in network[name].items():
            await say(channel, f"{name} to {peer}")
        return [await hear(channel) for channel in network[name].values()]

    results = run_together(*((party(name), network[name].values()) for name in NAMES))
    assert results == [[f"{peer} to {name}" for peer in network[name]] for name in NAMES]


@pytest.mark.parametrize("fails", [True, False])
def test_where_a_party_ends_all_its_channels_end(fails: bool) -> None:
    network = memory_network(*NAMES)

    async def ends() -> str:
        for channel in network["clinic"].values():
            await say(channel, "last")
        if fails:
            raise ValueError("of its own")
        return "ended"

    async def listens(name: str) -> Any:
        assert await hear(network[name]["clinic"]) == "last"
        return await hear(network[name]["clinic"])

    listening = [(listens(name), network[name].values()) for name in ("lab", "notary")]
    first, *others = run_together((ends(), network["clinic"].values()), *listening)
    assert isinstance(first, ValueError) if fails else first == "ended"
    assert all(isinstance(error, PeerLost) for error in others)


def test_one_party_may_run_a_protocol_for_each_channel() -> None:
    network = memory_network(*NAMES)

    async def serve(channel: Channel) -> None:
        await say(channel, (await hear(channel)).upper())

    async def ask(name: str) -> str:
        await say(network[name]["notary"], name)
        return await hear(network[name]["notary"])

    asking = ((ask(name), list(network[name].values())) for name in ("clinic", "lab"))
    serving = ((serve(channel), channel) for channel in network["notary"].values())
    assert run_together(*asking, *serving) == ["CLINIC", "LAB", None, None]


def test_a_protocol_that_waits_for_another_of_its_party_ends_with_it() -> None:
    """Though its own peer still has something to say, as over gRPC."""
    network = memory_network(*NAMES)
    notary = network["notary"]

    async def waits(channel: Channel) -> None:
        while True:
            await channel.pause()

    async def fails() -> None:
        await hear(notary["lab"])
        for channel in notary.values():
            channel.close()
        raise ValueError("of its own")

    saying = [(say(network[name]["notary"], "last"), network[name]["notary"]) for name in ("clinic", "lab")]
    waiting, failing, *_ = run_together((waits(notary["clinic"]), notary["clinic"]), (fails(), notary["lab"]), *saying)
    assert isinstance(waiting, PeerLost)
    assert isinstance(failing, ValueError)


def test_a_circle_of_parties_that_all_wait_is_noticed() -> None:
    network = memory_network(*NAMES)
    circle = {"clinic": "lab", "lab": "notary", "notary": "clinic"}
    waiting = [(hear(network[name][peer]), network[name].values()) for name, peer in circle.items()]
    with pytest.raises(RuntimeError, match="every party waits"):
        run_together(*waiting)
