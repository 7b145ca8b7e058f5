"""A tap counts and hashes messages and says what it finds; what is seen from outside is judged by how it begins."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from typing import Any

import pytest

from vfl_node.execution.planted import PlantedValues, Value
from vfl_node.node.wire import compare_bytes
from vfl_node.node.wire_capture import Connection, describe_start, find_strangers, judge, parse_packet
from vfl_node.process.counters import MOVED
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.wire_tap import WireTap

PLANTED = PlantedValues([Value("id", "patient-0001")])


def frame(body: bytes) -> Frame:
    return Frame(job_id="j", phase="align", sequence=1, type="vfl.v1.Chunk", body=body)


def test_what_is_sent_is_searched_and_what_is_received_is_not() -> None:
    tap = WireTap(lambda: PLANTED, "j")
    bodies = [b"masked", b"clear patient-0001", b"patient-0001 and patient-0001"]
    for body in bodies:
        tap.add("lab", 1, frame(body), 0, sent=True)
        tap.add("lab", 1, frame(body), 0, sent=False)
    sent, received = tap.tell()["flows"]
    assert (sent["found"], received["found"]) == ({"id": 3}, {})
    assert (sent["messages"], sent["bytes"]) == (3, sum(frame(body).ByteSize() for body in bodies))
    assert sent["sha256"] == received["sha256"] == hashlib.sha256(b"".join(bodies)).hexdigest()
    assert len(tap.messages) == 6  # it is a trace, too


def test_where_there_is_nothing_to_search_for_it_counts() -> None:
    tap = WireTap(lambda: None, "j")
    tap.add("lab", 1, frame(b"x"), 0, sent=True)
    assert (tap.tell()["searched"], tap.tell()["flows"][0]["messages"]) == (None, 1)


def test_it_knows_of_which_others_the_bytes_of_the_metric_were() -> None:
    MOVED.add("lab", "sent", 5, "Frame", "early")
    MOVED.forget("early")
    tap, size = WireTap(lambda: None, "j"), frame(b"x").ByteSize()
    for kind, job, count in (("Notice", "", 7), ("ProbeMessage", "", 1), ("Frame", "other", 30), ("Frame", "j", size)):
        MOVED.add("lab", "received", count, kind, job)
    MOVED.forget("other")
    MOVED.forget("nobody")
    assert compare_bytes(tap.tell()) == size
    tap.add("lab", 1, frame(b"x"), 0, sent=False)
    told = tap.tell()
    assert told["metric"] == {"bytes": 38 + size, "others": {"Notice": 7, "ProbeMessage": 1, "other jobs": 30}}
    assert (compare_bytes(told), compare_bytes({"flows": told["flows"]})) == (0, None)
    MOVED.forget("j")
    assert WireTap(lambda: None, "j").tell()["metric"] == {"bytes": 0, "others": {}}


def test_what_a_peer_says_of_a_message_is_bounded() -> None:
    tap = WireTap(lambda: None, "j")
    tap.add("lab", 1, Frame(phase="a\x1b[2J" * 999, type="x" * 999), 0, sent=False)
    (flow,) = tap.tell()["flows"]
    assert (flow["type"], len(flow["phase"]) < 41, "\x1b" in flow["phase"]) == ("other", True, False)


def hello(kind: int, version: int, *, supported: int | None = None) -> bytes:
    """The first record of a client or a server."""
    extensions = b"" if supported is None else struct.pack("!HHH", 43, 2, supported)
    body = struct.pack("!H", version) + bytes(32) + b"\0" + (b"\0\2\x13\1\1\0" if kind == 1 else b"\x13\1\0")
    body += struct.pack("!H", len(extensions)) + extensions
    shake = bytes([kind]) + len(body).to_bytes(3, "big") + body
    return b"\x16\3\3" + struct.pack("!H", len(shake)) + shake


STARTS = {
    "ClientHello": hello(1, 0x0303),
    "ServerHello of TLS 1.3": hello(2, 0x0303, supported=0x0304),
    "ServerHello of version 0x0303": hello(2, 0x0303),
    "HTTP/2 in plaintext": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no handshake": b"GET / HTTP/1.1\r\n" * 9,
    "no hello": b"\x16\3\3\0\xff" + b"\x0b" + bytes(60),
    "a hello that cannot be read": hello(2, 0x0303, supported=0x0304)[:-4] + b"\xff",
}


@pytest.mark.parametrize("what", STARTS)
def test_a_connection_is_known_by_how_it_begins(what: str) -> None:
    assert describe_start(STARTS[what]) == what
    for cut in range(len(STARTS[what])):
        describe_start(STARTS[what][:cut])  # whatever is cut


def connections(client: bytes, server: bytes) -> list[Connection]:
    one, other = ("10.0.0.1", 50000), ("10.0.0.2", 7443)
    return [Connection(one, other, {7: client[10:], 1: client[:10]}), Connection(other, one, {1: server})]


def test_tls_1_3_is_fine_and_all_else_is_said() -> None:
    good = connections(STARTS["ClientHello"], STARTS["ServerHello of TLS 1.3"])
    assert list(judge(good, [7443], PLANTED)) == []
    old = connections(STARTS["ClientHello"], STARTS["ServerHello of version 0x0303"])
    assert [text[-6:] for text in judge(old, [7443], PLANTED)] == ["0x0303"]
    plain = connections(STARTS["HTTP/2 in plaintext"] + b" patient-0001", b"\0\0\0\4")
    said = list(judge(plain, [7443], PLANTED))
    assert [("plaintext" in text, "in clear (id)" in text) for text in said] == [(True, False), (False, True), (False, False)]


def packet(version: int, body: bytes) -> bytes:
    tcp = struct.pack("!HHIIBBHHH", 1234, 7443, 99, 0, 5 << 4, 2, 0, 0, 0) + body
    if version == 4:
        return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + tcp
    return struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + bytes(15) + b"\1" + bytes(15) + b"\2" + tcp


@pytest.mark.parametrize("version", [4, 6])
def test_packets_are_read_and_what_is_none_is_left(version: int) -> None:
    whole = packet(version, b"hello")
    read = parse_packet(whole + b"padding")
    assert read
    assert (read.sender[1], read.receiver[1], read.sequence, read.opens, read.body) == (1234, 7443, 99, True, b"hello")
    udp: Any = bytearray(whole)
    udp[9 if version == 4 else 6] = 17
    assert parse_packet(bytes(udp)) is None
    assert all(parse_packet(whole[:cut]) is None for cut in range(40))


def test_whoever_is_no_peer_is_named() -> None:
    seen = {(("10.0.0.1", 7443), ("10.0.0.9", 1)), (("10.0.0.1", 5), ("10.0.0.2", 7443)), (("10.0.0.1", 6), ("10.0.0.7", 443))}
    assert find_strangers(seen, {7443}, {"10.0.0.2"}) == ["10.0.0.7:443"]
    assert PLANTED.find(b"patient-0001") == Counter(id=1)


def test_frames_of_no_job_are_not_known() -> None:
    """A conversation that nobody told its job, and that was not looked at."""
    run: dict[str, Any] = {"flows": [{"bytes": 82}], "metric": {"bytes": 6128, "others": {"Frame": 6034, "Notice": 12}}}
    assert compare_bytes(run) == 6034
    del run["metric"]["others"]["Frame"]
    run["metric"]["bytes"] = 94
    assert compare_bytes(run) == 0
