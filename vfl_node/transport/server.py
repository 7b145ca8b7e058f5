"""The server of a node: accepts the links and conversations that its peers open, and authorises their callers."""

from __future__ import annotations

import ipaddress
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
from cryptography import x509

from vfl_node.errors import PeerLost, PolicyError, ProtocolError, VflError
from vfl_node.process.counters import CALLS_REFUSED, code_label
from vfl_node.settings.consistent import is_loopback
from vfl_node.transport import calls
from vfl_node.transport.connections import Connections, bind_error, most_connections
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.guests import Entrance, Guests
from vfl_node.transport.identity import party_of, uri_of
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.probes import ProbeStream
from vfl_node.transport.streams import Stream, StreamPipe

STREAMS_PER_PARTY = 32
"""Default number of streams that one party may have open at a server: its link and its conversations."""

REFUSED_FREELY, REFUSED_WITHIN_S, REFUSED_PAUSE_S = 8, 10.0, 1.0
"""How many calls of one party are refused at once within how many seconds; each further refusal is delayed.

A refused call costs this node three threads, and its caller nothing. During the delay it occupies one of its party's streams,
so that other parties never wait for it. All callers that are not peers share the streams of one party.
"""

NEW_PEERS = 4
"""For so many peers that are paired with while it runs a server has streams; for more after its next start."""

STOP_S = 10.0
"""How much longer than its streams' time limit a server may take to stop; if a thread could not start it never stops."""

STRANGERS = ""
"""In place of a name: all callers that are not peers."""

_SERVER_OPTIONS = (
    *calls.OPTIONS,
    (calls.PING_TIMEOUT, calls.FROZEN_S * 1000),
    ("grpc.so_reuseport", 0),  # otherwise two nodes could bind one port without noticing
    ("grpc.max_concurrent_streams", 4),  # per connection; a dialer opens one stream
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # must be below the dialer's keepalive time
    ("grpc.server_handshake_timeout_ms", 10_000),
)

_JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

S = TypeVar("S", bound=Stream[Any])


class NodeServer:
    """Accepts the links and conversations that peers open.

    Args:
        address: ``host:port`` to bind; port 0 lets the system choose.
        own: this party's name.
        federation: its federation.
        credentials: TLS material; None for plaintext, which is allowed on loopback only.
        peers: names of the parties that may call; may grow while the server runs.
        on_converse: called with (party, job, pipe) for each conversation. If it returns, the conversation is
            accepted, and the pipe lives until it is closed. If it raises a VflError, the conversation is refused, and the
            caller gets the error's code and ``for_peer`` text.
        on_link: called with (party, link) for each link; may serve it before it returns. Its
            first notice accepts the link.
        instance: id of this process, so that a peer can distinguish two nodes with one identity.
        streams_per_party: how many streams one party may have open; each takes three threads until it ends.
        guests: whoever talks with guests that want to pair; None: there are none.
        on_probe: called with (party, stream) for each probe of the line, as ``on_link``; None: nobody may probe.
    """

    def __init__(
        self,
        address: str,
        *,
        own: str,
        federation: str,
        credentials: Credentials | None,
        peers: Collection[str],
        on_converse: Callable[[str, str, StreamPipe], None],
        on_link: Callable[[str, LinkStream], None],
        instance: str = "",
        streams_per_party: int = STREAMS_PER_PARTY,
        guests: Guests | None = None,
        on_probe: Callable[[str, ProbeStream], None] | None = None,
    ) -> None:
        self._on_probe = on_probe
        self._entrance = Entrance(guests)
        self._room = NEW_PEERS if guests else 0
        self._streams_per_party = streams_per_party
        self._address = address
        self._instance = instance
        self._own = own
        self._federation = federation
        self._credentials = credentials
        self._peers = peers
        self._on_converse = on_converse
        self._on_link = on_link
        self._streams: Counter[str] = Counter()
        self._refused: dict[str, deque[float]] = {}  # party → times of its last calls
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server: Any = None
        self._connections: Connections | None = None

    def start(self) -> str:
        """Bind and serve; returns ``host:port`` as bound.

        Raises:
            UsageError: the port cannot be bound (``E_PORT``), or plaintext was configured beyond
                loopback (``E_PLAINTEXT``).
        """
        if self._credentials is None and not is_loopback(self._address):
            raise calls.plaintext_error(self._address)
        handlers = {
            "Converse": grpc.stream_stream_rpc_method_handler(self._converse),
            "Link": grpc.stream_stream_rpc_method_handler(self._link),
            "Pair": grpc.stream_stream_rpc_method_handler(self._pair),
        }
        if self._on_probe:
            handlers["Probe"] = grpc.stream_stream_rpc_method_handler(self._probe)
        parties = len(self._peers) + self._room + 1
        workers = self._streams_per_party * parties  # each open stream has one; they start on demand
        most = most_connections(workers)
        server = grpc.server(
            ThreadPoolExecutor(workers, thread_name_prefix="grpc"),
            handlers=[grpc.method_handlers_generic_handler(calls.SERVICE, handlers)],
            options=(*_SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", most)),
            maximum_concurrent_rpcs=workers,
        )
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, self._server_credentials(self._credentials))
        except RuntimeError:
            raise bind_error(self._address) from None
        server.start()
        self._server, self._connections = server, Connections(port, most)
        self._connections.start()
        return f"{self._address.rpartition(':')[0]}:{port}"

    def stop(self, timeout_s: float = 2.0) -> None:
        """Accept no more calls, and end streams that are still open after ``timeout_s``."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop(timeout_s).wait(timeout_s + STOP_S)
        if self._connections is not None:
            self._connections.stop()

    def _converse(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        job_id = calls.metadata(context.invocation_metadata()).get(calls.JOB, "")

        def hand_over(party: str, pipe: StreamPipe) -> None:
            if not _JOB_ID.fullmatch(job_id):
                raise PolicyError(f"{party} names no usable job", code="E_JOB_ID", for_peer="the job's id is not usable")
            self._on_converse(party, job_id, pipe)

        return self._serve("Converse", StreamPipe, hand_over, incoming, context)

    def _link(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        return self._serve("Link", LinkStream, self._on_link, incoming, context)

    def _probe(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        assert self._on_probe
        return self._serve("Probe", ProbeStream, self._on_probe, incoming, context)

    def _pair(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """The call of a guest; those that are refused share the streams of strangers, and are slowed down like them."""
        try:
            with self._place(STRANGERS):
                try:
                    yield from self._entrance.serve(incoming, context)
                    return
                except VflError as error:
                    self._slow_down(STRANGERS)
                    refusal = error.with_traceback(None)
        except VflError as error:
            refusal = error.with_traceback(None)
        _refuse("Pair", context, refusal)

    def _serve(
        self, rpc: str, kind: Callable[[str], S], hand_over: Callable[[str, S], None], incoming: Iterator[bytes], context: Any
    ) -> Iterator[bytes]:
        """One stream: this thread sends its answers; two others receive its messages and run its owner."""
        try:
            party = self._caller_or_slowly(context)
            assert self._connections is not None
            with self._place(party), self._connections.protect(context.peer()):
                stream = kind(party)
                about = calls.metadata(context.invocation_metadata())
                stream.instance = about.get(calls.INSTANCE, "")[: calls.INSTANCE_CHARACTERS]
                stream.shown = _chain(context)
                stream.attach(context.cancel)
                if not context.add_callback(stream.end_by_transport):
                    return
                threading.Thread(target=_read, args=(stream, incoming), name=f"read-{party}", daemon=True).start()
                threading.Thread(target=_offer, args=(stream, hand_over), name=f"serve-{party}", daemon=True).start()
                if stream.wait_accepted():
                    context.send_initial_metadata(((calls.PARTY, self._own), (calls.INSTANCE, self._instance)))
                    yield from stream.outgoing()
                    return
                self._slow_down(party)
                refusal = stream.ended or VflError("the stream ended before it was accepted")
        except VflError as error:
            refusal = error.with_traceback(None)  # which would keep the call alive, and a connection has room for few calls
        _refuse(rpc, context, refusal)

    def _caller_or_slowly(self, context: Any) -> str:
        """As :meth:`_caller`; refusals of unknown callers are delayed if they call often."""
        try:
            return self._caller(context)
        except PolicyError as error:
            with self._place(STRANGERS):
                self._slow_down(STRANGERS)
            raise error from None

    def _slow_down(self, party: str) -> None:
        """Delay the refusal of a party's call, if many of its calls were refused recently."""
        now = time.monotonic()
        with self._lock:
            lately = self._refused.setdefault(party, deque(maxlen=REFUSED_FREELY))
            often = len(lately) == REFUSED_FREELY and now - lately[0] < REFUSED_WITHIN_S
            lately.append(now)
        if often:
            self._stopping.wait(REFUSED_PAUSE_S)

    def _caller(self, context: Any) -> str:
        """The name of the caller: by its certificate, or by its claim on loopback. Raises PolicyError (``E_IDENTITY``)."""
        if self._credentials is None:
            if not _is_loopback_caller(context.peer()):
                raise _refusal("plaintext is accepted from this machine only")
            party = calls.metadata(context.invocation_metadata()).get(calls.PARTY, "")[:63]
        else:
            proven = context.auth_context()
            version = b",".join(proven.get("ssl_tls_version", [b"unknown"])).decode()
            if version != "TLSv1.3":
                raise _refusal(f"expected TLS version TLSv1.3, got {version}")
            party = party_of(_certificate(context), self._federation)
        if party not in self._peers:
            raise _refusal(f"expected a peer of {self._own}, got {uri_of(party, self._federation)}")
        if self._credentials:
            self._credentials.current().check_peer(party, _chain(context))
        return party

    @contextmanager
    def _place(self, party: str) -> Iterator[None]:
        """Take one of the streams that ``party`` may have. Raises PolicyError (``E_BUSY``)."""
        with self._lock:
            if self._streams[party] >= self._streams_per_party:
                reason = f"{party} holds {self._streams_per_party} streams open already"
                raise PolicyError(reason, code="E_BUSY", for_peer=reason)
            self._streams[party] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[party] -= 1

    def _server_credentials(self, held: Credentials) -> Any:
        """Credentials that follow the files: a renewed certificate is used from the next handshake on."""
        roots = held.roots + self._entrance.roots

        def configuration() -> Any:
            return grpc.ssl_server_certificate_configuration([(held.key, held.certificate)], roots)

        def renew() -> Any:
            nonlocal held, roots
            fresh = held.current()
            trusted = fresh.roots + self._entrance.roots
            if (fresh.certificate, trusted) == (held.certificate, roots):
                return None
            held, roots = fresh, trusted
            return configuration()

        return grpc.dynamic_ssl_server_credentials(configuration(), renew, require_client_authentication=True)


def _refuse(rpc: str, context: Any, refusal: VflError) -> None:
    """End a call with the code of ``refusal`` and its text for peers."""
    CALLS_REFUSED.series(rpc, code_label(refusal.code)).inc()
    context.set_trailing_metadata(((calls.CODE, refusal.code),))
    denied = refusal.code == "E_IDENTITY"
    context.abort(grpc.StatusCode.PERMISSION_DENIED if denied else grpc.StatusCode.FAILED_PRECONDITION, refusal.for_peer)


def _read(stream: Stream[Any], incoming: Iterable[bytes]) -> None:
    """Receive what a caller sends, after its stream is accepted. Here a killed caller looks like one that ended."""
    if not stream.wait_accepted():
        return
    try:
        stream.arrive(incoming)
    except ProtocolError as error:
        stream.end(error)
    except grpc.RpcError:
        stream.end(PeerLost(f"the connection with {stream.peer} was lost"))
    stream.end(PeerLost(f"{stream.peer} ended the conversation, or was lost"))


def _offer(stream: S, hand_over: Callable[[str, S], None]) -> None:
    """Run the owner of an accepted stream; an exception ends (or refuses) the stream."""
    try:
        hand_over(stream.peer, stream)
    except VflError as error:
        stream.end(error)
    except BaseException:
        stream.end(VflError("the stream's owner failed"))
        raise
    else:
        stream.accept()


def _is_loopback_caller(peer: str) -> bool:
    """Whether gRPC's ``ipv4:host:port`` or ``ipv6:[host]:port`` is on the loopback interface."""
    _, _, address = unquote(peer).partition(":")
    try:
        host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return (getattr(host, "ipv4_mapped", None) or host).is_loopback


def _certificate(context: Any) -> bytes:
    """The certificate of the caller, PEM; empty in plaintext."""
    return b"".join(context.auth_context().get("x509_pem_cert", []))


def _chain(context: Any) -> tuple[x509.Certificate, ...]:
    """The certificates that the caller showed, its own first; none in plaintext. They were read before."""
    pem = _certificate(context) + b"".join(context.auth_context().get("x509_pem_cert_chain", []))
    return tuple(dict.fromkeys(x509.load_pem_x509_certificates(pem))) if pem else ()  # the chain may have the first one, too


def _refusal(message: str) -> PolicyError:
    return PolicyError(message, code="E_IDENTITY", for_peer=message)
