"""All checks in their order. What needs something that has failed is skipped, so that the cause is named once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vfl_node.errors import DataError, UsageError, VflError
from vfl_node.estimate.totals import PROCESS_BYTES
from vfl_node.job import load_job
from vfl_node.node.doctor.answer import check_admission, check_answer, check_releases
from vfl_node.node.doctor.finding import CHECKS, OF_PEERS, Finding, fail, failed_by, guarded, skip
from vfl_node.node.doctor.judge import check_big_messages, check_clock, check_idle, check_rate, check_way_back
from vfl_node.node.doctor.line import check_name, check_port, check_proxy
from vfl_node.node.doctor.machine import check_disk, check_files, check_memory, is_running
from vfl_node.node.doctor.need import JobNeed, need_of_job, need_of_rows
from vfl_node.node.doctor.own import check_certificate, check_settings, check_state
from vfl_node.node.doctor.past import check_data, check_past
from vfl_node.node.doctor.probe import measure
from vfl_node.node.doctor.route import PROXY_VARIABLES, route_to
from vfl_node.node.doctor.workers import check_workers
from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Hello

IN_ALL_S = 90.0
"""How long the command takes at most, a silence that is asked for and a cluster aside."""

LEAST_DATA_S = 10.0


def examine(
    config: Path,
    *,
    peer: str = "",
    job: Path | None = None,
    rows: tuple[int, int] | None = None,
    idle_s: float = 0,
) -> Iterator[Finding]:
    """Make all checks of the node in the file ``config``.

    Args:
        config: its settings.
        peer: only the line to this one; empty: to all with which it has a link.
        job: a job, for what it would take.
        rows: of this node and of the peer; in place of a job.
        idle_s: for how long the line to each peer is left silent; 0: that is not checked.

    Raises:
        UsageError: there is no such file or peer, or a job that is not for this node.
    """
    limit = time.monotonic() + IN_ALL_S
    settings, first = check_settings(config)
    if settings is None:
        yield first
        yield from (skip(number, "the settings cannot be used") for number in list(CHECKS)[1:])
        return
    if peer and peer not in settings.connected:
        known = ", ".join(settings.connected) or "nobody"
        raise UsageError(f"{settings.name} has no link with {peer}", code="E_UNKNOWN_PEER", hint=f"its peers: {known}")
    names = [peer] if peer else list(settings.connected)
    process_bytes = 0 if is_running(settings) else PROCESS_BYTES
    need, spec = JobNeed(settings, process_bytes=process_bytes), load_job(job) if job else None
    if rows:
        need = need_of_rows(settings, names[0] if names else "peer", *rows, process_bytes)
    elif spec:
        with suppress(DataError):  # which check 15 names
            need = need_of_job(settings, spec, process_bytes)
    yield first
    yield guarded(2, lambda: check_state(settings))
    try:
        credentials, own = check_certificate(settings)
    except VflError as error:
        credentials, own = None, failed_by(3, error, "see to the file that it names")
    yield own
    for name in names:
        if time.monotonic() > limit - LEAST_DATA_S:
            late = (skip(number, f"{IN_ALL_S:.0f} s were over", f"add --peer {name}") for number in OF_PEERS)
            yield from (replace(found, peer=name) for found in late)
            continue
        for found in _examine_peer(settings, name, credentials, own, need, idle_s):
            yield replace(found, peer=name)
    if not names:
        yield from (skip(number, "this node has no peer yet") for number in OF_PEERS)
    yield guarded(15, lambda: check_data(settings, spec, max(LEAST_DATA_S, limit - time.monotonic())))
    yield guarded(16, lambda: check_disk(settings, need))
    yield guarded(17, lambda: check_memory(settings, need))
    yield guarded(18, lambda: check_files(settings))
    yield guarded(19, lambda: check_past(settings))
    yield guarded(20, lambda: check_workers(settings.engine))


def _examine_peer(
    settings: Settings, peer: str, credentials: Credentials | None, own: Finding, need: JobNeed, idle_s: float
) -> Iterator[Finding]:
    """Checks 4 to 14, of one peer."""
    address = settings.connected[peer].address
    if address is None:
        text = f"this node has no address of {peer}, which dials in"
        yield from (skip(number, text, f"run vfl-node doctor at {peer}") for number in OF_PEERS)
        return
    try:
        route = route_to(address)
    except ValueError:
        yield from _skipped((4, 5), "the way to it is not known: see check 6")
        variables = ", ".join(name for name in PROXY_VARIABLES if name in os.environ)
        yield fail(6, f"what the environment says of a proxy cannot be read ({variables})", "write it as http://HOST:PORT")
        yield from _skipped(range(7, 15), "the way to it is not known")
        return
    addresses, named = check_name(route)
    yield named
    if not addresses:
        yield from _skipped(range(5, 15), "the name is not known")
        return
    port = check_port(route, addresses)
    yield port
    if port.status == "FAIL":
        yield from _skipped(range(6, 15), "the port cannot be reached")
        return
    proxy = check_proxy(route)
    yield proxy
    if proxy.status == "FAIL":
        yield from _skipped(range(7, 15), "the proxy lets nothing through")
        return
    if settings.tls and credentials is None:
        yield from _skipped(range(7, 15), f"this node's certificate cannot be used: see check 3 ({own.status})")
        return
    answers = guarded(7, lambda: check_answer(settings, peer, route, credentials))
    yield answers
    if answers.status == "FAIL":
        yield from _skipped(range(8, 15), f"it is not {peer} that answers, or not alone")
        return
    dialer = Dialer(address, own=settings.name, peer=peer, federation=settings.federation, credentials=credentials)
    try:
        hello, admitted = check_admission(dialer, peer)
        yield admitted
        if admitted.status == "FAIL":
            yield from _skipped(range(9, 15), f"{peer} does not let this node in")
            return
        yield from _measure(settings, peer, dialer, hello, need, idle_s)
    finally:
        dialer.close()


def _measure(
    settings: Settings, peer: str, dialer: Dialer, hello: Hello | None, need: JobNeed, idle_s: float
) -> Iterator[Finding]:
    """Checks 9 to 14."""
    try:
        found = measure(dialer, idle_s)
    except VflError as error:
        hint = "try again in a minute" if error.code == "E_BUSY" else "the peer's release may know no probe: see check 14"
        yield from (skip(number, f"{peer} answers no probe ({error.message})", hint) for number in range(9, 14))
        yield guarded(14, lambda: check_releases(peer, hello, ""))
        return
    runs, listens = is_running(settings), settings.listen is not None
    yield guarded(9, lambda: check_clock(peer, found))
    yield guarded(10, lambda: check_rate(peer, found, need))
    yield guarded(11, lambda: check_big_messages(peer, found))
    yield guarded(12, lambda: check_idle(peer, found, idle_s))
    yield guarded(13, lambda: check_way_back(peer, found, listens=listens, runs=runs))
    yield guarded(14, lambda: check_releases(peer, found.hello or hello, found.kernel))


def _skipped(numbers: Sequence[int], reason: str) -> Iterator[Finding]:
    yield from (skip(number, reason) for number in numbers)
