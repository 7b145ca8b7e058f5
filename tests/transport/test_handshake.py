"""What a socket that never speaks costs a node: nothing, for long."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from vfl_node.transport import server

HANDSHAKE = "grpc.server_handshake_timeout_ms"


def test_a_socket_that_does_not_greet_is_closed(serve: Any, clinic: Any, lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC itself would hold it for two minutes; here a fiftieth of what the node allows, so that the test need not wait."""
    options = dict(server._SERVER_OPTIONS)
    assert options[HANDSHAKE] <= 10_000
    options[HANDSHAKE] //= 50
    monkeypatch.setattr(server, "_SERVER_OPTIONS", tuple(options.items()))
    node = serve(clinic)
    host, _, port = node.address.rpartition(":")
    with socket.create_connection((host, int(port))) as silent:
        silent.settimeout(60)
        while silent.recv(1 << 16):  # the server's settings may come first
            pass
    node.dialer(lab).converse("job-1").close()  # others are served
