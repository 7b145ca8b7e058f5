"""Rows 17 to 24: what a network does. The lab reaches the clinic through a proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from proxy import Proxy
from rows import row
from world import World


@contextmanager
def between(world: World) -> Iterator[Proxy]:
    """A proxy on the lab's way to the clinic; gone afterwards."""
    federation = world.federation
    direct = federation.running("clinic")["listen"]
    notary = {"notary": {"address": federation.running("notary")["listen"]}}
    proxy = Proxy(direct)
    try:
        world.clean("split")
        world.again("lab", "updated=slow", peers={"clinic": {"address": proxy.address}} | notary)
        yield proxy
    finally:
        proxy.close()
        world.again("lab", peers={"clinic": {"address": direct}} | notary)


def in_training(world: World, job_id: str) -> None:
    world.federation.wait_until(lambda: world.federation.in_training("lab", job_id))


@row(
    "17",
    "network partition, shorter than `peer_wait_s`",
    must="R",
    how="the proxy drops everything both ways until this is noticed, then forwards again",
)
def short_partition(world: World) -> tuple[str, int, str]:
    return _swallowed(world, frozenset({"to", "from"}))


@row(
    "18",
    "network partition, longer than `peer_wait_s`",
    must="E_PEER_LOST at both, state is kept, R after `resume`",
    how="proxy, `peer_wait_s` of 3",
)
def long_partition(world: World) -> tuple[str, int]:
    federation = world.federation
    with between(world) as proxy:
        world.again("clinic", peer_wait_s=3)
        world.again("lab", "updated=slow", peer_wait_s=3)
        job_id = world.submit("split")
        in_training(world, job_id)
        proxy.refuses = True
        proxy.reset()
        codes = {view["error"]["code"] for view in world.ends("split", job_id).values()}
        if codes != {"E_PEER_LOST"}:
            raise AssertionError(f"ended with {codes}")
        proxy.refuses = False
        federation.wait_until(lambda: federation.connected("lab") and federation.connected("clinic"))
        for name in ("clinic", "lab"):
            federation.client(name).resume(job_id)
        world.same("split", job_id)
        world.again("clinic", peer_wait_s=240)
        world.again("lab", peer_wait_s=240)
    return "E_PEER_LOST, then R", 2


@row(
    "19",
    "one direction is dropped",
    must="noticed within 22 s; R",
    how="the proxy drops everything sent to the clinic, then everything sent by it",
)
def one_way(world: World) -> tuple[str, int, str]:
    _, _, first = _swallowed(world, frozenset({"to"}))
    _, _, second = _swallowed(world, frozenset({"from"}))
    return "R", 2, f"{first}; the other way, {second}"


@row(
    "20",
    "half-open: one machine disappears without closing its connections",
    must="noticed within 22 s; R",
    how="the proxy drops everything both ways, but forwards new connections",
)
def half_open(world: World) -> tuple[str, int, str]:
    return _swallowed(world, frozenset({"to", "from"}))


def _swallowed(world: World, ways: frozenset[str]) -> tuple[str, int, str]:
    with between(world) as proxy:
        job_id = world.submit("split")
        in_training(world, job_id)
        before = len(world.federation.log("clinic")), len(world.federation.log("lab"))
        proxy.swallowed = ways
        began = time.monotonic()
        for name, after in zip(("clinic", "lab"), before, strict=True):
            world.wait_said(name, "peer absent", after=after)
        noticed = time.monotonic() - began
        proxy.swallowed = frozenset()
        proxy.reset()
        world.same("split", job_id)
    if noticed > 22:
        raise AssertionError(f"noticed after {noticed:.0f} s only")
    return "R", 1, f"noticed by both after {noticed:.0f} s"


@row("21", "TCP reset in the middle of a stream", must="R", how="the proxy, three times in a job", bounded=True)
def resets(world: World) -> tuple[str, int]:
    with between(world) as proxy:
        job_id = world.submit("split")
        broken = 0
        for _ in range(3):
            in_training(world, job_id)
            broken += proxy.reset()
            time.sleep(0.5)
        assert broken >= 3
        world.same("split", job_id)
    return "R", broken


@row("22", "a peer at 10 kB/s", must="R, no connection is given up", how="proxy")
def slow_line(world: World) -> tuple[str, int]:
    return _steady(world, bytes_per_s=10_000)


@row(
    "23",
    "300 ms of latency with jitter",
    must="R, no connection is given up",
    how="the proxy delays each piece by 150 ms each way, and by up to 100 ms more",
)
def far_away(world: World) -> tuple[str, int]:
    return _steady(world, delay_s=0.15, jitter_s=0.1)


def _steady(world: World, **line: float) -> tuple[str, int]:
    with between(world) as proxy:
        world.again("lab")
        vars(proxy).update(line)
        before = len(world.federation.log("clinic"))
        world.same("split", world.submit("split"))
        if "peer absent" in world.federation.log("clinic")[before:]:
            raise AssertionError("the link was given up")
    return "R", 1


@row("24", "a middlebox drops an idle connection", must="R", how="the proxy resets the link while no job runs")
def idle_link(world: World) -> tuple[str, int]:
    federation = world.federation
    with between(world) as proxy:
        world.again("lab")
        before = len(federation.log("clinic"))
        assert proxy.reset()
        world.wait_said("clinic", "peer connected", after=before)
        world.same("split", world.submit("split"))
    return "R", 1
