"""How gRPC reaches an address: straight, or through an HTTP proxy that the environment names, read as gRPC reads it."""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from vfl_node.errors import PeerLost, peer_text
from vfl_node.settings.consistent import is_loopback

PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
EXEMPT_VARIABLES = ("no_grpc_proxy", "no_proxy")
"""The first of each that is set counts. gRPC does not read the spellings in capitals."""

MOST_ANSWER_BYTES = 4096


@dataclass(frozen=True)
class PeerRoute:
    """The way to an address.

    Attributes:
        host: of the peer.
        port: of the peer.
        proxy: ``host:port`` of the proxy; empty: straight.
        variable: which variable names the proxy.
        login: what the proxy is told of the caller, as its URL says it; empty: nothing.
    """

    host: str
    port: int
    proxy: str = ""
    variable: str = ""
    login: str = ""

    @property
    def first(self) -> tuple[str, int]:
        """Host and port to which this machine itself connects: the proxy's, where there is one."""
        if not self.proxy:
            return self.host, self.port
        host, _, port = self.proxy.rpartition(":")
        return host.strip("[]"), int(port)

    def connect(self, timeout_s: float) -> socket.socket:
        """A connection to the peer's port, by way of the proxy if there is one.

        Raises:
            OSError: it cannot be reached.
            PeerLost: the proxy refuses, with its answer.
        """
        plain = socket.create_connection(self.first, timeout=timeout_s)
        try:
            if self.proxy:
                status = self._ask_proxy(plain)
                if status[9:12] != "200":
                    raise PeerLost(f"the proxy {self.proxy} answers {status!r}", code="E_UNREACHABLE")
        except BaseException:
            plain.close()
            raise
        return plain

    def _ask_proxy(self, plain: socket.socket) -> str:
        """Ask for a tunnel; the first line of the answer. Raises OSError."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        login = f"Proxy-Authorization: Basic {self.login}\r\n" if self.login else ""
        plain.sendall(f"CONNECT {host}:{self.port} HTTP/1.0\r\nHost: {host}:{self.port}\r\n{login}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < MOST_ANSWER_BYTES:
            some = plain.recv(1)  # not a byte of what follows
            if not some:
                break
            answer += some
        return peer_text(answer.split(b"\r\n", 1)[0].decode("latin-1"), 120) or "nothing"


def route_to(address: str, environment: Mapping[str, str] = os.environ) -> PeerRoute:
    """The way to ``host:port`` in this environment."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    variable = next((each for each in PROXY_VARIABLES if environment.get(each)), "")
    if not variable or is_loopback(address) or _is_exempt(host, environment):
        return PeerRoute(host, int(port))
    url = urlsplit(environment[variable] if "://" in environment[variable] else f"http://{environment[variable]}")
    login = base64.b64encode(f"{unquote(url.username)}:{unquote(url.password or '')}".encode()).decode() if url.username else ""
    proxy = f"[{url.hostname}]" if url.hostname and ":" in url.hostname else url.hostname
    return PeerRoute(host, int(port), f"{proxy}:{url.port or 80}", variable, login)


def _is_exempt(host: str, environment: Mapping[str, str]) -> bool:
    """Whether the environment says that this host is reached without the proxy: by the end of its name, or its network."""
    written = next((environment[each] for each in EXEMPT_VARIABLES if environment.get(each)), "")
    for entry in filter(None, (each.strip() for each in written.split(","))):
        if host.lower().endswith(entry.lower()):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False
