"""The dialer of a node: opens links and conversations to one peer."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from vfl_node.errors import PeerError, PeerLost, PolicyError, ProtocolError, VflError
from vfl_node.settings.consistent import is_loopback
from vfl_node.transport import calls
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.diagnosis import certificate_at, diagnose
from vfl_node.transport.identity import MALFORMED, Validity, dns_of
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.probes import ProbeStream
from vfl_node.transport.streams import Stream, StreamPipe

_DIALER_OPTIONS = (*calls.OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

LOOK_S = 0.1
"""How often a caller looks, while its call is not answered, whether it still wants it."""

REACH_S = 1.0
"""Limit of each step of :meth:`Dialer.reaches`."""

S = TypeVar("S", bound=Stream[Any])


class Dialer:
    """Opens streams to one peer at one address.

    Args:
        address: ``host:port`` of the peer.
        own: this party's name.
        peer: the party that must answer there.
        federation: the federation of both.
        credentials: TLS material; None for plaintext, on loopback only.
        instance: as for :class:`~vfl_node.transport.server.NodeServer`.

    Raises:
        UsageError: plaintext was configured beyond loopback (``E_PLAINTEXT``).
    """

    def __init__(
        self, address: str, *, own: str, peer: str, federation: str, credentials: Credentials | None, instance: str = ""
    ) -> None:
        if credentials is None and not is_loopback(address):
            raise calls.plaintext_error(address)
        self._address = address
        self._own = own
        self._peer = peer
        self._federation = federation
        self._credentials = credentials
        self._instance = instance
        self._channels: weakref.WeakSet[Any] = weakref.WeakSet()

    def converse(self, job_id: str, *, timeout_s: float = 10.0, check: Callable[[], None] = lambda: None) -> StreamPipe:
        """Open the conversation about a job; returns once the peer has accepted it.

        Args:
            job_id: of the job.
            timeout_s: how long the peer may take to answer.
            check: called again and again until then; the call ends with what it raises.

        Raises:
            PeerError: the peer refused, with its code; or it does not know this node or is
                another party (``E_IDENTITY``).
            PeerLost: the peer cannot be reached, with the cause (``E_UNREACHABLE``).
            VflError: what ``check`` raises.
        """
        return self._dial("Converse", StreamPipe(self._peer), [(calls.JOB, job_id)], timeout_s, check)

    def link(self, *, timeout_s: float = 10.0) -> LinkStream:
        """Open the standing link. Raises as :meth:`converse`."""
        return self._dial("Link", LinkStream(self._peer), [], timeout_s, lambda: None)

    def probe(self, *, timeout_s: float = 10.0) -> ProbeStream:
        """Open a probe of the line. Raises as :meth:`converse`."""
        return self._dial("Probe", ProbeStream(self._peer), [], timeout_s, lambda: None)

    def reaches(self) -> bool:
        """Whether the peer answers at its address, and takes this node's certificate; takes some seconds at most."""
        return not self._diagnose(REACH_S)

    def shown(self) -> tuple[x509.Certificate, ...]:
        """The certificate that the peer shows now, by a handshake of its own; none if that does not succeed.

        It is not verified here, only who opens a stream does that.
        """
        shown = certificate_at(self._address) if self._credentials else None
        if shown is None:
            return ()
        try:
            Validity.from_certificate(shown)
        except MALFORMED:
            return ()
        return (shown,)

    def close(self) -> None:
        """Close everything that is still open."""
        for channel in list(self._channels):
            channel.close()

    def _dial(self, method: str, stream: S, about: list[tuple[str, str]], timeout_s: float, check: Callable[[], None]) -> S:
        channel = self._channel(calls.FROZEN_S if method == "Converse" else calls.LOST_S)
        self._channels.add(channel)
        headers = [(calls.PARTY, self._own), (calls.INSTANCE, self._instance), *about]
        call = channel.stream_stream(f"/{calls.SERVICE}/{method}")(stream.outgoing(), metadata=headers)

        def hang_up() -> None:
            call.cancel()
            channel.close()

        stream.attach(hang_up)
        if not call.add_callback(stream.finish):
            stream.finish()
        threading.Thread(target=self._follow, args=(stream, call), name=f"read-{self._peer}", daemon=True).start()
        limit = time.monotonic() + timeout_s
        try:
            while not stream.wait_accepted(LOOK_S):
                check()
                if stream.ended or time.monotonic() > limit:
                    raise stream.ended or self._unreachable(f"no answer within {timeout_s:.0f} s")
        except VflError:
            hang_up()
            raise
        return stream

    def _channel(self, ping_timeout_s: int) -> Any:
        options: list[tuple[str, Any]] = [*_DIALER_OPTIONS, (calls.PING_TIMEOUT, ping_timeout_s * 1000)]
        if is_loopback(self._address):
            options.append(("grpc.enable_http_proxy", 0))
        if self._credentials is None:
            return grpc.insecure_channel(self._address, options=options)
        own = self._credentials.current()
        roots = own.roots_of(self._peer)
        if not roots:  # gRPC would take any authority that this machine trusts
            text = f"nobody vouches for {self._peer}: the file of its authority is gone, or cannot be read"
            raise PeerLost(text, code="E_IDENTITY", hint="pair with it again, or bring the file back")
        if own.lists:
            roots = self._check_shown(own)
        options.append(("grpc.ssl_target_name_override", dns_of(self._peer, self._federation)))
        return grpc.secure_channel(
            self._address, grpc.ssl_channel_credentials(roots, own.key, own.certificate), options=options
        )

    def _check_shown(self, own: Credentials) -> bytes:
        """The certificate that the peer shows, PEM, checked: the only one that may answer. gRPC looks at no list.

        Raises:
            PeerLost: there is none (``E_UNREACHABLE``), or it cannot be accepted (``E_IDENTITY``, ``E_REVOKED``, ``E_CRL``).
        """
        shown = self.shown()
        if not shown:
            raise self._unreachable(self._diagnose() or "it shows no certificate")
        try:
            own.check_peer(self._peer, shown)
        except PolicyError as error:
            raise PeerLost(error.message, code=error.code, hint=error.hint) from None
        return shown[0].public_bytes(serialization.Encoding.PEM)

    def _follow(self, stream: Stream[Any], call: Any) -> None:
        """Receive what the peer sends until the stream ends."""
        accepted = False
        try:
            answer = calls.metadata(call.initial_metadata())
            answering, stream.instance = answer.get(calls.PARTY), answer.get(calls.INSTANCE, "")[: calls.INSTANCE_CHARACTERS]
            accepted = answering == self._peer
            if accepted:
                stream.accept()
            elif answering is not None:
                raise PeerError(f"expected {self._peer} at {self._address}, got {answering[:63]!r}", code="E_IDENTITY")
            stream.arrive(call)
            error: VflError = PeerLost(f"{self._peer} ended the conversation")
        except grpc.RpcError as failure:
            error = self._explain(failure, accepted=accepted)
        except (PeerError, ProtocolError) as refused:
            error = refused
        stream.end(error)

    def _explain(self, failure: Any, *, accepted: bool) -> PeerError:
        """The status that ended a stream, in plain words."""
        text = "".join(character for character in failure.details() or "" if character.isprintable())[:300]
        code = calls.metadata(failure.trailing_metadata()).get(calls.CODE, "")
        if calls.ERROR_CODE.fullmatch(code) and not accepted:
            return PeerError(f"{self._peer} at {self._address} turns this node away: {text}", code=code)
        if accepted:
            return PeerLost(f"the connection with {self._peer} was lost ({text})")
        if failure.code() is grpc.StatusCode.UNAVAILABLE:
            return self._unreachable(self._diagnose() or text)
        return self._unreachable(f"{text} ({failure.code().name.lower()})")

    def _diagnose(self, timeout_s: float = 3.0) -> str:
        own = self._credentials and self._credentials.current()
        return diagnose(self._address, peer=self._peer, federation=self._federation, credentials=own, timeout_s=timeout_s)

    def _unreachable(self, cause: str) -> PeerLost:
        return PeerLost(f"{self._peer} cannot be reached at {self._address}: {cause}", code="E_UNREACHABLE")
