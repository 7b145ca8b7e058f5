"""What a machine on the way sees of a node: packets at the network's interfaces, without any tool (Linux, as root).

Source: packet(7), RFC 8446 (ClientHello and ServerHello), the pcap format (libpcap, link type 101: raw IP).
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vfl_node.errors import StateError, UsageError
from vfl_node.execution.planted import PlantedValues

MOST_BYTES = 1 << 30
"""Largest capture: all of it is looked through in memory."""

_ALL_PROTOCOLS, _PACKET_STATISTICS, _OUTGOING, _SOL_PACKET = 3, 6, 4, 263
_BUFFER_BYTES, _SO_RCVBUFFORCE = 64 << 20, 33
_TLS_1_3 = 0x0304
_RAW_IP, _SYN = 101, 2

Address = tuple[str, int]


@dataclass
class Connection:
    """One way of one TCP connection.

    Attributes:
        sender: address and port.
        receiver: likewise.
        segments: sequence number → bytes.
        opens: whether its first packet was seen.
    """

    sender: Address
    receiver: Address
    segments: dict[int, bytes] = field(default_factory=dict)
    opens: bool = False

    @property
    def stream(self) -> bytes:
        """Its bytes in order."""
        return b"".join(data for _, data in sorted(self.segments.items()))


class Packet(NamedTuple):
    """A packet of TCP.

    Attributes:
        sender: address and port.
        receiver: likewise.
        sequence: number of its first byte.
        opens: whether it opens a connection, one way.
        body: its bytes.
    """

    sender: Address
    receiver: Address
    sequence: int
    opens: bool
    body: bytes


class Capture(threading.Thread):
    """Writes the TCP packets of some ports to a file while it runs.

    Args:
        file: a new file; pcap.
        ports: a packet that comes from one of them, or goes there, is taken.

    Raises:
        UsageError: this process may not (``E_ROOT``), or the file cannot be written (``E_FILE``).
    """

    def __init__(self, file: Path, ports: Collection[int]) -> None:
        super().__init__(name="capture", daemon=True)
        self._ports, self._ending, self._taken = set(ports), threading.Event(), 0
        self.dropped = 0
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PROTOCOLS))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        except (AttributeError, PermissionError):
            hint = "run it as root, or leave --pcap out"
            raise UsageError("only root may look at packets, on Linux", code="E_ROOT", hint=hint) from None
        self._socket.settimeout(0.2)
        try:
            self._file: BinaryIO = file.open("xb")
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror}", code="E_FILE", hint="name a new file") from None
        file.chmod(0o600)
        self._file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, _RAW_IP))

    def run(self) -> None:
        """Until :meth:`end`."""
        while not self._ending.is_set():
            try:
                packet, (interface, _, kind, _, _) = self._socket.recvfrom(1 << 18)
            except TimeoutError:
                continue
            twice = interface == "lo" and kind == _OUTGOING  # it arrives there, too
            parsed = None if twice else parse_packet(packet)
            if parsed and self._ports & {parsed.sender[1], parsed.receiver[1]} and self._taken < MOST_BYTES:
                now = time.time()
                self._file.write(struct.pack("<IIII", int(now), int(now % 1 * 1e6), len(packet), len(packet)) + packet)
                self._taken += len(packet)

    def end(self) -> None:
        """End it. Raises StateError if packets were lost, or there were too many (``E_CAPTURE``)."""
        time.sleep(0.5)  # what was sent last may not have passed the interface
        self._ending.set()
        self.join()
        _, dropped = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._socket.close()
        self._file.close()
        if dropped or self._taken >= MOST_BYTES:
            what = f"{dropped} packets were lost" if dropped else "there were more packets than can be looked through"
            raise StateError(f"the capture is not whole: {what}", code="E_CAPTURE", hint="audit a smaller job")


def read_connections(file: Path) -> list[Connection]:
    """The connections of a capture, each way by itself; not those from before it."""
    found: dict[tuple[Address, Address], Connection] = {}
    data, at = file.read_bytes(), 24
    while at < len(data):
        (length,) = struct.unpack_from("<8xI", data, at)
        packet, at = data[at + 16 : at + 16 + length], at + 16 + length
        if parsed := parse_packet(packet):
            way = parsed.sender, parsed.receiver
            connection = found.setdefault(way, Connection(*way))
            connection.opens |= parsed.opens
            if parsed.body:
                connection.segments.setdefault(parsed.sequence, parsed.body)
    return [each for each in found.values() if each.opens and each.segments]


def parse_packet(packet: bytes) -> Packet | None:
    """A packet of TCP over IPv4 or IPv6; None for any other one."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20 and packet[9] == socket.IPPROTO_TCP:
        head, size = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)[0]
        one, other = packet[12:16], packet[16:20]
    elif version == 6 and len(packet) >= 40 and packet[6] == socket.IPPROTO_TCP:
        head, size = 40, 40 + struct.unpack_from("!H", packet, 4)[0]
        one, other = packet[8:24], packet[24:40]
    else:
        return None
    if len(packet) < head + 20:
        return None
    from_port, to_port, sequence = struct.unpack_from("!HHI", packet, head)
    body = packet[head + (packet[head + 12] >> 4) * 4 : size or len(packet)]
    opens = bool(packet[head + 13] & _SYN)
    return Packet((str(ip_address(one)), from_port), (str(ip_address(other)), to_port), sequence, opens, body)


def judge(connections: list[Connection], ports: Collection[int], planted: PlantedValues | None) -> Iterator[str]:
    """What is wrong with connections whose server has one of ``ports``: not TLS 1.3, or a value of the table in clear."""
    for each in connections:
        stream = each.stream
        to_server = each.receiver[1] in ports
        place = f"{each.sender[0]}:{each.sender[1]} to {each.receiver[0]}:{each.receiver[1]}"
        what = describe_start(stream)
        if what != ("ClientHello" if to_server else "ServerHello of TLS 1.3"):
            yield f"{place} is not TLS 1.3: it begins with {what}"
        for kind, count in sorted((planted.find(stream) if planted else {}).items()):
            yield f"{place}: {count} times a value of this node's table in clear ({kind})"


def describe_start(stream: bytes) -> str:
    """With what a connection begins, as seen from outside."""
    if stream.startswith(b"PRI * HTTP/2.0"):
        return "HTTP/2 in plaintext"
    if len(stream) < 44 or stream[0] != 22:
        return "no handshake"
    try:
        hello, at = stream[5:], 38
        kind = hello[0]
        at += 1 + hello[at]
        if kind == 1:
            return "ClientHello"
        if kind != 2:
            return "no hello"
        at += 3
        end = at + 2 + struct.unpack_from("!H", hello, at)[0]
        version, at = struct.unpack_from("!H", hello, 4)[0], at + 2
        while at < end:
            extension, size = struct.unpack_from("!HH", hello, at)
            if extension == 43:
                version = struct.unpack_from("!H", hello, at + 4)[0]
            at += 4 + size
    except (struct.error, IndexError):
        return "a hello that cannot be read"
    return "ServerHello of TLS 1.3" if version == _TLS_1_3 else f"ServerHello of version {version:#06x}"


def list_connections(pid: int) -> set[tuple[Address, Address]]:
    """Own and other address of each TCP connection that a process has now."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()))
        except OSError:  # closed by now
            continue
    found = set()
    for table, width in (("tcp", 8), ("tcp6", 32)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if f"socket:[{columns[9]}]" in sockets and columns[3] == "01":
                found.add((_address(columns[1], width), _address(columns[2], width)))
    return found


def _address(text: str, width: int) -> Address:
    host, port = text[:width], int(text[width + 1 :], 16)
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, width, 8)]
    address = ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), port


def find_strangers(seen: Collection[tuple[Address, Address]], own_ports: Collection[int], known: Collection[str]) -> list[str]:
    """Addresses with which a node talks that are not known.

    Args:
        seen: own and other address of its connections.
        own_ports: on which it listens.
        known: addresses of its peers.
    """
    return sorted({f"{host}:{port}" for (_, own), (host, port) in seen if own not in own_ports and host not in known})
