"""TLS for the HTTP port: its certificate, and a bounded number of handshakes.

A handshake that takes too long ends, and so does the oldest one if there are too many. So a browser that shakes hands at once
is answered, however many strangers have opened a connection and say nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509

from vfl_node.errors import UsageError
from vfl_node.transport.credentials import read_secret
from vfl_node.web.connections import HEAD_S, BoundedProtocol

MOST = 128
"""Number of handshakes at a time."""

MOST_PER_ADDRESS = 32
"""Number of handshakes of one address."""


def load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 with this certificate.

    Args:
        certificate: PEM file, with the certificates of the authorities between, if there are any.
        key: PEM file of its key, without a password, which only this user reads.

    Raises:
        UsageError: a file cannot be read (``E_FILE``), other users can read the key (``E_KEY_MODE``), or one of the two is no
            PEM file, or they do not belong together (``E_CERTIFICATE``).
    """
    read_secret(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nothing comes before the answer: a client may wait for that by looking at its socket
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=b"")
    except ssl.SSLError as error:
        raise _unusable(certificate, key, error.reason or "it is no PEM file") from None
    except OSError as error:
        raise UsageError(f"cannot read {certificate}: {error.strerror}", code="E_FILE", hint="see http_tls") from None
    return context


def list_names(certificate: Path) -> list[str]:
    """Names of hosts in the certificate that :func:`load_context` has loaded: those that the port answers to."""
    leaf = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name for name in names.get_values_for_type(x509.DNSName) if "*" not in name]


def serve_tls(context: ssl.SSLContext) -> Callable[..., asyncio.Protocol]:
    """What makes the protocol of each connection of one server."""
    waiting: dict[Handshake, None] = {}  # in the order of their arrival

    def make(**given: Any) -> asyncio.Protocol:
        return Handshake(context, BoundedProtocol(**given), waiting)

    return make


class Handshake(asyncio.Protocol):
    """The beginning of one connection, until HTTP begins.

    Args:
        context: of TLS.
        http: what follows.
        waiting: all handshakes of the server, the oldest first.
    """

    def __init__(self, context: ssl.SSLContext, http: asyncio.Protocol, waiting: dict[Handshake, None]) -> None:
        self._context, self._http, self._waiting = context, http, waiting
        self._held = _Held()
        self._task: asyncio.Task[None] | None = None
        self.address = ""

    def connection_made(self, transport: Any) -> None:
        """Shake hands, before anything is read. If there are too many handshakes, end the oldest one."""
        self._transport = transport
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._waiting[self] = None
        own = [other for other in self._waiting if other.address == self.address]
        for crowd, most in ((own, MOST_PER_ADDRESS), (list(self._waiting), MOST)):
            if len(crowd) > most:
                crowd[0].end()
        self._task = asyncio.ensure_future(self._shake())

    def end(self) -> None:
        """Close the connection."""
        self._waiting.pop(self, None)
        self._transport.abort()

    async def _shake(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                self._transport, self._held, self._context, server_side=True, ssl_handshake_timeout=HEAD_S
            )
        except (OSError, RuntimeError):  # no TLS, an older one, too slow, or the other side went
            secured = None
        finally:
            self._waiting.pop(self, None)
        if secured is None:
            self._transport.abort()
            return
        self._held.pass_on(secured, self._http)


class _Held(asyncio.Protocol):
    """What comes between the handshake and the moment when HTTP takes over."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended = False

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self._data += data

    def eof_received(self) -> bool:
        """Nothing more will come."""
        self._ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._ended = True

    def pass_on(self, transport: Any, http: asyncio.Protocol) -> None:
        """Let ``http`` have the connection, with what has come so far."""
        if self._ended:
            transport.abort()
            return
        transport.set_protocol(http)
        http.connection_made(transport)
        if self._data:
            http.data_received(bytes(self._data))


def _unusable(certificate: Path, key: Path, reason: str) -> UsageError:
    return UsageError(
        f"{certificate} and {key} cannot be used for https: {reason.lower().replace('_', ' ')}",
        code="E_CERTIFICATE",
        hint="http_tls names a PEM file with the certificate, and one with its key, without a password",
    )
