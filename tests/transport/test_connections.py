"""Connections that have proven nothing: how many there may be, for how long, and who goes first."""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vfl_node.transport import connections
from vfl_node.transport.channel import run
from vfl_node.transport.connections import UNPROVEN_IN_ALL, UNPROVEN_OF_ADDRESS, most_connections
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame

Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(node: Any) -> Iterator[Connect]:
    made: list[socket.socket] = []
    node.server._connections.stop()  # looked at by the tests
    host, _, port = node.address.rpartition(":")

    def to_node(source: str = "127.0.0.1") -> socket.socket:
        made.append(socket.create_connection((host, int(port)), 5, source_address=(source, 0)))
        made[-1].setblocking(False)
        return made[-1]

    yield to_node
    for one in made:
        one.close()


def taken(node: Any) -> int:
    """How many connections gRPC has taken so far."""
    return len(node.server._connections._open_connections())


def wait_until_taken(node: Any, count: int) -> None:
    while taken(node) != count:
        pass


def is_open(one: socket.socket) -> bool:
    try:
        while one.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def test_of_one_address_the_oldest_beyond_a_number_are_closed(node: Any, connect: Connect) -> None:
    made = []
    for count in range(1, UNPROVEN_OF_ADDRESS + 4):
        made.append(connect())
        wait_until_taken(node, count)
    elsewhere = connect("127.0.0.2")
    wait_until_taken(node, UNPROVEN_OF_ADDRESS + 4)
    node.server._connections.look()
    wait_until_taken(node, UNPROVEN_OF_ADDRESS + 1)
    assert [is_open(one) for one in made] == [False] * 3 + [True] * UNPROVEN_OF_ADDRESS
    assert is_open(elsewhere)


def test_in_all_no_more_than_a_number_stay(node: Any, connect: Connect) -> None:
    for number in range(UNPROVEN_IN_ALL + 6):
        connect(f"127.0.0.{2 + number % 20}")
        wait_until_taken(node, number + 1)
    node.server._connections.look()
    wait_until_taken(node, UNPROVEN_IN_ALL)


def test_one_that_proves_nothing_for_long_is_closed(node: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    one = connect()
    wait_until_taken(node, 1)
    node.server._connections.look()
    assert is_open(one)
    monkeypatch.setattr(connections, "UNPROVEN_S", 0.0)
    node.server._connections.look()
    wait_until_taken(node, 0)
    assert not is_open(one)


def test_what_carries_a_stream_is_never_touched(node: Any, lab: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = node.dialer(lab).converse("job-1")
    serving = node.pipes.get(timeout=5)
    monkeypatch.setattr(connections, "UNPROVEN_S", 0.0)
    connect()
    wait_until_taken(node, 2)
    for _ in range(3):
        node.server._connections.look()
    wait_until_taken(node, 1)
    run(pipe.put(Frame(sequence=5)))
    assert run(serving.get()).sequence == 5
    pipe.close()
    serving.close()


def test_one_that_could_not_be_looked_at_is_the_next_time(node: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood may leave no descriptor to look at it with, for a moment."""

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", refuse)
        connect()
        for _ in range(20):
            assert taken(node) == 0
            time.sleep(0.01)
    wait_until_taken(node, 1)


def test_grpc_takes_no_more_connections_than_leave_half_of_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, serve: Any, clinic: Any, lab: Any
) -> None:
    """However fast they come: this holds before anybody looks."""
    monkeypatch.setattr("vfl_node.transport.server.most_connections", lambda _: 4)
    monkeypatch.setattr(connections, "LOOK_S", 3600)
    node = serve(clinic)
    host, _, port = node.address.rpartition(":")
    made = [socket.create_connection((host, int(port)), 5) for _ in range(12)]
    for one in made:
        one.settimeout(5)
    closed = 0
    for one in made[4:]:
        closed += one.recv(1) == b""
    assert closed == 8
    wait_until_taken(node, 4)  # the last may be closing
    for one in made:
        one.close()


def test_half_of_the_descriptors_stay_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    assert most_connections(1000) == 128
    assert most_connections(32) == 32 + UNPROVEN_IN_ALL
