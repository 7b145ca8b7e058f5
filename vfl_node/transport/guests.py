"""The one call that a node takes from somebody it does not know: a pairing, while its owner has an invite open.

gRPC asks for a certificate of every caller, or of none. So there is one for guests, with its key here for everybody to read. A
server trusts it while an invite is open, and at no other time: then a guest fails in the handshake, like any stranger. It says
nothing about who calls. It names no party, so no other method takes it, and it is no authority, so it vouches for nobody. It
ends with the year 9999, so that no clock is too far ahead for it.

A guest does not know yet who should answer. It takes whatever certificate answers, and the pairing is bound to that one.

Source: :mod:`vfl_node.trust.pairing` has the protocol, and what each side learns.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from queue import SimpleQueue
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf.message import DecodeError
from typing_extensions import Self

from vfl_node.errors import PeerError, PeerLost, PolicyError, ProtocolError, VflError, peer_text
from vfl_node.settings.consistent import is_loopback
from vfl_node.transport import bounds, calls
from vfl_node.transport.diagnosis import certificate_at
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.identity import MALFORMED, alternative_names

GUEST = b"""\
-----BEGIN CERTIFICATE-----
MIIBdDCCARqgAwIBAgIBATAKBggqhkjOPQQDAjAnMSUwIwYDVQQDDBx2Zmwtbm9k
ZSBndWVzdDogYSBwdWJsaWMga2V5MCAXDTIwMDEwMTAwMDAwMFoYDzk5OTkxMjMx
MjM1OTU5WjAnMSUwIwYDVQQDDBx2Zmwtbm9kZSBndWVzdDogYSBwdWJsaWMga2V5
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPutG3KEOhxYP1qouh69BFzMfxuM3
ouOmi+/BBw5h9AQp8VUVLplkD6DM0Vc0hWjWMaw6FNtROut11v56BQd3/KM1MDMw
DAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUH
AwIwCgYIKoZIzj0EAwIDSAAwRQIgeJeLrWf9FgjtZsLirLFCZKegNuzGyTTPAwH8
jfBmGiUCIQDjrhKUHCVSKqZUyKOkhIP5kE9UzqcDR9smLEc2jf/7FQ==
-----END CERTIFICATE-----
"""
"""The certificate of every guest."""

GUEST_KEY = b"""\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgPIrhixNVcd6dTrYm
QWJntHdoArEbEOfczl6tnzD+KQ2hRANCAAQ+60bcoQ6HFg/Wqi6Hr0EXMx/G4zei
46aL78EHDmH0BCnxVRUumWQPoMzRVzSFaNYxrDoU21E663XW/noFB3f8
-----END PRIVATE KEY-----
"""
"""Its key, which is no secret."""

_DER = x509.load_pem_x509_certificate(GUEST).public_bytes(serialization.Encoding.DER)


class Guests(Protocol):
    """Whoever at this node talks with guests."""

    @property
    def open(self) -> bool:
        """Whether an invite is open."""

    def answer(self, messages: Iterator[PairMessage], caller: str) -> Iterator[PairMessage]:
        """The answers to one guest.

        Args:
            messages: of the guest; the one after its last raises ProtocolError.
            caller: its address, as gRPC spells it.

        Raises:
            VflError: it is refused; it gets the code and the text for peers.
        """


class Entrance:
    """Lets one guest at a time in to pair, for at most :data:`~vfl_node.transport.bounds.PAIR_S` seconds.

    A guest takes the place by its first message, which costs a try of the invite. So who says nothing keeps nobody out, and who
    says something can do so five times.

    Args:
        guests: who talks with them; None: there are none.
    """

    def __init__(self, guests: Guests | None) -> None:
        self._guests = guests
        self._lock = threading.Lock()
        self._taken_until = 0.0  # monotonic; by then a guest is gone even if nobody said so

    @property
    def roots(self) -> bytes:
        """What a server trusts besides its peers' authorities now, PEM."""
        return GUEST if self._guests is not None and self._guests.open else b""

    def serve(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """The call of one guest.

        Raises:
            VflError: the caller is no guest (``E_IDENTITY``), another one is here (``E_BUSY``), or what its talk ended with.
        """
        if self._guests is None or not is_guest(context):
            text = "only a guest may pair: parties that know each other have done so"
            raise PolicyError(text, code="E_IDENTITY", for_peer=text)
        messages = _messages(incoming)
        with _limit(bounds.GUEST_S, context):
            first = next(messages)
        mine = self._take()
        try:
            with _limit(bounds.PAIR_S, context):
                for answer in self._guests.answer(chain([first], messages), context.peer()):
                    yield answer.SerializeToString()
        finally:
            with self._lock:
                if self._taken_until == mine:
                    self._taken_until = 0.0

    def _take(self) -> float:
        """Take the only place; until when, in monotonic seconds. Raises PolicyError (``E_BUSY``)."""
        with self._lock:
            now = time.monotonic()
            if now < self._taken_until:
                raise PolicyError("another guest is pairing", code="E_BUSY", for_peer="another guest is pairing: try again")
            self._taken_until = now + bounds.PAIR_S + 1
            return self._taken_until


@contextmanager
def _limit(seconds: float, context: Any) -> Iterator[None]:
    """A context that may last for so long; then the call is cancelled."""
    timer = threading.Timer(seconds, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class GuestCall:
    """The other end: calls a node as a guest, to pair with it. A context manager, which hangs up at its end.

    Args:
        address: ``host:port``.

    Attributes:
        leaf: SHA-256 of the certificate that answers, which nobody has vouched for.

    Raises:
        PeerLost: nothing answers there, or nothing that could be a node (``E_UNREACHABLE``).
    """

    def __init__(self, address: str) -> None:
        shown = certificate_at(address)
        names = _names(shown) if shown else []
        if shown is None or len(names) != 1:
            cause = "no node answers there" if shown is None else "what answers there is no node"
            raise PeerLost(f"{address}: {cause}", code="E_UNREACHABLE", hint="compare the address with who has invited you")
        self.leaf = hashlib.sha256(shown.public_bytes(serialization.Encoding.DER)).digest()
        self._address = address
        options: list[tuple[str, Any]] = [*calls.OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        options.append(("grpc.ssl_target_name_override", names[0]))
        if is_loopback(address):
            options.append(("grpc.enable_http_proxy", 0))
        trusted = shown.public_bytes(serialization.Encoding.PEM)
        self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted, GUEST_KEY, GUEST), options=options)
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._channel.stream_stream(f"/{calls.SERVICE}/Pair")
        self._incoming = call(iter(self._outgoing.get, None), timeout=bounds.PAIR_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outgoing.put(None)
        self._incoming.cancel()
        self._channel.close()

    def ask(self, message: PairMessage) -> PairMessage:
        """Send ``message``, and return the answer to it.

        Raises:
            PeerError: the node refuses, with its code.
            PeerLost: it is gone (``E_UNREACHABLE``).
            ProtocolError: its answer is no message of a pairing.
        """
        self._outgoing.put(message.SerializeToString())
        try:
            return _parse(next(self._incoming))
        except StopIteration:
            raise PeerLost(f"the node at {self._address} ended the pairing", code="E_UNREACHABLE") from None
        except grpc.RpcError as failure:
            raise self._explain(failure) from None

    def _explain(self, failure: Any) -> VflError:
        text = peer_text(failure.details() or "")
        code = calls.metadata(failure.trailing_metadata()).get(calls.CODE, "")
        if calls.ERROR_CODE.fullmatch(code):
            return PeerError(f"the node at {self._address} refuses: {text}", code=code)
        if failure.code() is grpc.StatusCode.UNAVAILABLE:
            return PeerError(
                f"the node at {self._address} lets no guest in: it has no invite open",
                code="E_INVITE",
                hint="an invite ends after some minutes, when it was used, or when it was tried too often: ask for a new code",
            )
        return PeerLost(f"no pairing with {self._address}: {text} ({failure.code().name.lower()})", code="E_UNREACHABLE")


def is_guest(context: Any) -> bool:
    """Whether the caller shows the certificate of guests, over TLS 1.3."""
    proven = context.auth_context()
    shown = b"".join(proven.get("x509_pem_cert", []))
    try:
        der = x509.load_pem_x509_certificate(shown).public_bytes(serialization.Encoding.DER)
    except MALFORMED:
        return False
    return der == _DER and proven.get("ssl_tls_version") == [b"TLSv1.3"]


def _messages(incoming: Iterator[bytes]) -> Iterator[PairMessage]:
    """The messages of a guest. Raises ProtocolError where one is none, or there is no more."""
    with suppress(grpc.RpcError):
        for data in incoming:
            yield _parse(data)
    raise ProtocolError("a guest left, or took too long")


def _parse(data: bytes) -> PairMessage:
    """One message. Raises ProtocolError."""
    bounds.check(data, PairMessage)
    try:
        return PairMessage.FromString(data)
    except DecodeError:
        raise ProtocolError("bytes that are no PairMessage") from None


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        return alternative_names(certificate).get_values_for_type(x509.DNSName)
    except MALFORMED:
        return []
