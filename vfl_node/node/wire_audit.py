"""A look at a node from outside while a job runs, and controls that say whether the search sees anything at all."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.execution.planted import PlantedValues, Value
from vfl_node.node.running import running
from vfl_node.node.wire import plant
from vfl_node.node.wire_capture import Address, Capture, find_strangers, judge, list_connections, read_connections
from vfl_node.settings.node import Settings

CONTROL = "a planted value of the control"

LOOK_S = 0.2
"""How often the connections of the node are listed."""

RESTART_S = 600.0
"""How long the owner has for a restart of the node."""


@contextmanager
def look_outside(settings: Settings, pcap: Path | None, outside: list[str], say: Callable[[str], None]) -> Iterator[list[int]]:
    """A context in which packets of the running node are captured, and then judged.

    Args:
        settings: of the node.
        pcap: where packets are kept; None: nothing is captured.
        outside: gets what is wrong with them.
        say: tells the owner what to do now.

    Yields:
        The bytes that were seen, one number, when the context has ended.

    Raises:
        UsageError: the node is not running, or was not restarted in time (``E_NOT_RUNNING``); or as :class:`Capture`.
        StateError: as :meth:`Capture.end`.
    """
    size = [0]
    if pcap is None:
        yield size
        return
    about, peers = running(settings), [peer.address for peer in settings.connected.values() if peer.address]
    servers = {int(address.rpartition(":")[2]) for address in (about["listen"], *peers) if address}
    capture, connections, ending = Capture(pcap, servers), set[tuple[Address, Address]](), threading.Event()
    capture.start()
    if any({own[1], other[1]} & servers for own, other in list_connections(int(about["pid"]))):
        say("its connections are from before the capture: restart the node now, and the job begins")
        about = _await_restart(settings, about["pid"])

    def look() -> None:
        while not ending.wait(LOOK_S):
            connections.update(list_connections(int(about["pid"])))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield size
    finally:
        ending.set()
        watching.join()
        capture.end()
    streams = read_connections(pcap)
    size[0] = sum(len(each.stream) for each in streams)
    outside += judge(streams, servers, plant(settings, None))
    own_ports = {int(about[key].rpartition(":")[2]) for key in ("listen", "http") if about[key]}
    hosts = {host for address in peers for host in _resolve(address)}
    outside += [f"this node also talks with {place}" for place in find_strangers(connections, own_ports, hosts)]


def _await_restart(settings: Settings, pid: int) -> dict[str, Any]:
    """Where the node runs once it was restarted."""
    limit = time.monotonic() + RESTART_S
    while time.monotonic() < limit:
        with suppress(UsageError):  # while it starts
            if (about := running(settings))["pid"] != pid:
                return about
        time.sleep(LOOK_S)
    raise UsageError(
        "the node was not restarted", code="E_NOT_RUNNING", hint="run the command again, and restart the node then"
    )


def _resolve(address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        return [str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)]
    return []


def list_controls(*, outer: bool) -> dict[str, bool]:
    """What the search must find: a value in a message; as root also one on the way, in plaintext and under an old TLS."""
    planted = PlantedValues([Value("control", CONTROL)])
    message = bytes(1000) + CONTROL.encode() + bytes(1000)
    seen = {"a planted value in a message": planted.find(message) == Counter(control=1)}
    if not outer:
        return seen
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
        capture = Capture(Path(folder) / "control.pcap", [port])
        capture.start()
        time.sleep(LOOK_S)
        with socket.create_connection(("127.0.0.1", port)) as sender, listening.accept()[0] as receiver:
            sender.sendall(b"PRI * HTTP/2.0\r\n" + message)
            receiver.recv(1 << 16)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        hello = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            old.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="control").do_handshake()
        with socket.create_connection(("127.0.0.1", port)) as sender, listening.accept()[0] as receiver:
            sender.sendall(hello.read())
            receiver.recv(1 << 16)
            receiver.sendall(_OLD_HELLO)
            sender.recv(1 << 16)
        capture.end()
        faults = list(judge(read_connections(Path(folder) / "control.pcap"), [port], planted))
    seen["plaintext on the way"] = any("HTTP/2 in plaintext" in fault for fault in faults)
    seen["a planted value on the way"] = any("in clear (control)" in fault for fault in faults)
    seen["TLS 1.2 on the way"] = any("version 0x0303" in fault for fault in faults)
    return seen


_OLD_HELLO = bytes.fromhex("160303002c" + "02000028" + "0303") + bytes(32) + bytes.fromhex("00" + "c02f" + "00" + "0000")
"""What a server of TLS 1.2 says first: record, ServerHello, version, random bytes; no session, a cipher, no extensions."""
