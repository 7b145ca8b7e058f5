"""Both parties in one process, over the in-memory channel; and another library, both sides in one process too.

Every row is measured in a process of its own, so that its peak of memory is its own. In memory
the parties take turns, so wall time says little; over a network they compute at the same time
(:mod:`benchmarks.nodes`). Messages wait in memory here, which no node lets them do.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Run, check, ladder_us, length, operations, peak_bytes, sets, shared, spelled, terms
from benchmarks.sessions import BY_ROLE, limits_from, session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.groups import group as group_named
from vfl_node.crypto.kernels.choice import VARIABLE
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.job import Align
from vfl_node.roles import Role
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together

ROLES: tuple[Role, Role] = ("active", "passive")


def protocol_row(kernel: str, protocol: str, group: str, ids: int, start_up: int, threads: int) -> Row:
    """Ours, in a process that has not chosen a kernel yet."""
    os.environ[VARIABLE] = kernel
    return _row("vfl-node", kernel, protocol, group, lambda count: _aligned(protocol, group, count, threads), ids, start_up)


def openmined_row(ids: int, start_up: int) -> Row | None:
    """openmined-psi: Diffie–Hellman over P-256, the client learns which are shared; None where it is not installed."""
    try:
        import private_set_intersection.python as openmined
    except ImportError:
        return None
    return _row(
        f"openmined-psi {openmined.__version__}", "", "psi", "P-256", lambda count: _openmined(openmined, count), ids, start_up
    )


def group_row(kernel: str, name: str) -> dict[str, Any]:
    """Microseconds of one core for a hash, a power and a decode, in a process that has not chosen a kernel yet."""
    os.environ[VARIABLE] = kernel
    count = 5000 if name == "curve25519" else 100
    group, engine = group_named(name), Threads(1)
    scalar = group.draw(Randomness(bytes(32)))
    ladder, times = ladder_us(), [time.process_time()]
    hashed = group.hash_to_group([b"%d" % i for i in range(count)], b"benchmark")
    times.append(time.process_time())
    powers = group.power(hashed, scalar, engine)
    times.append(time.process_time())
    group.decode(powers)
    times.append(time.process_time())
    costs = ((after - before) / count * 1e6 for before, after in pairwise(times))
    return {
        "kernel": kernel,
        "group": name,
        **dict(zip(("hash_us", "power_us", "decode_us"), costs, strict=True)),
        "ladder_us": ladder,
    }


def aligning(role: Role, terms: Align, channel: Channel, folder: Path, *, threads: int) -> Session:
    """The session of a party that keeps its lists in ``folder``; its secrets are the same in every run."""
    secret = Randomness(role.encode().ljust(32))
    return session(
        role,
        {channel.peer: channel},
        secret.derive("job"),
        parties=BY_ROLE,
        align=terms,
        folder=folder,
        memories={channel.peer: MemoryOfOneRun(secret.derive("peer"))},
        workers=Threads(threads),
        limits=limits_from(1),
    )


def _row(system: str, kernel: str, protocol: str, group: str, run: Callable[[int], Run], ids: int, start_up: int) -> Row:
    before = ladder_us()
    few, many = run(start_up), run(ids)
    return Row(system, "memory", None, kernel, protocol, group, (before + ladder_us()) / 2, many, few)


def sides_of(
    protocol: str, group: str, ids: int, threads: int, channels: Sequence[Channel], scratch: Path
) -> list[tuple[Coroutine[Any, Any, Alignment], Channel]]:
    """Both parties' coroutines, with their identifiers, each beside its channel."""
    sides = []
    for role, numbers, channel in zip(ROLES, sets(ids), channels, strict=True):
        own = aligning(role, terms(protocol, group, ids), channel, Path(scratch, role), threads=threads)
        records = OwnRecords(Identifiers.from_items(map(str.encode, spelled(numbers))))
        sides.append((align(own, records), channel))
    return sides


def _aligned(protocol: str, group: str, ids: int, threads: int) -> Run:
    channels = memory_channels(*ROLES)
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as scratch:
        sides = sides_of(protocol, group, ids, threads, channels, Path(scratch))
        wall, cpu = time.perf_counter(), time.process_time()
        results = run_together(*sides)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for result in results:
        if isinstance(result, Exception):
            raise result
        check(protocol, len(result), length(protocol, ids))
    sent = {role: channel.traffic["align"].bytes_sent for role, channel in zip(ROLES, channels, strict=True)}
    return _run(ids, wall, cpu, sent, operations(protocol, ids))


def _openmined(openmined: Any, ids: int) -> Run:
    ours, theirs = (list(spelled(numbers)) for numbers in sets(ids))
    wall, cpu = time.perf_counter(), time.process_time()
    client, server = openmined.client.CreateWithNewKey(True), openmined.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(1e-9, ids, theirs, openmined.DataStructure.RAW)
    request = client.CreateRequest(ours)
    response = server.ProcessRequest(request)
    found = client.GetIntersection(setup, response)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    check("openmined-psi", len(found), shared(ids))
    return _run(ids, wall, cpu, {"active": request.ByteSize(), "passive": setup.ByteSize() + response.ByteSize()}, None)


def _run(ids: int, wall: float, cpu: float, sent: Mapping[Role, int], operations: int | None) -> Run:
    both = {"both": cpu}
    return Run(ids, wall, wall, both, both, {"both": peak_bytes()}, sent, operations)
