"""A trial federation's certificates, nodes over gRPC, and the two worlds of the conformance suite."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vfl_node.errors import VflError
from vfl_node.settings.node import Tls
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.credentials import Credentials, load_credentials, write_private
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.identity import dns_of
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.probes import ProbeStream
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import Stream, StreamPipe

FEDERATION = "trial"
PEM = serialization.Encoding.PEM


class Certificates:
    """An authority and what it (or a rogue one) signs, good and bad."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.authority, self.authority_key = make_authority(FEDERATION)

    def files(self, authority: bytes, certificate: bytes, key: bytes) -> Tls:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        files = Tls(ca=folder / "ca.crt", certificate=folder / "node.crt", key=folder / "node.key")
        files.ca.write_bytes(authority)
        files.certificate.write_bytes(certificate)
        write_private(files.key, key)
        return files

    def good(self, name: str) -> Credentials:
        """What `vfl-node init` and the authority give party ``name``."""
        key, request = make_key_and_request(name, FEDERATION)
        certificate = sign(self.authority, self.authority_key, request)
        return load_credentials(self.files(self.authority, certificate, key), name=name, federation=FEDERATION)

    def unchecked(self, name: str, certificate: bytes, key: bytes, authority: bytes | None = None) -> Credentials:
        """Credentials that a careful node would not load; an attacker does."""
        files = self.files(authority or self.authority, certificate, key)
        return Credentials(authority or self.authority, certificate, key, files, name, FEDERATION)

    def dated(self, name: str, *, signed: datetime, days: int) -> Credentials:
        key, request = make_key_and_request(name, FEDERATION)
        return self.unchecked(name, sign(self.authority, self.authority_key, request, days=days, now=signed), key)

    def rogue(self, name: str, *, trusts: bytes | None = None) -> Credentials:
        """Signed by another authority of the same federation name."""
        authority, authority_key = make_authority(FEDERATION)
        key, request = make_key_and_request(name, FEDERATION)
        return self.unchecked(name, sign(authority, authority_key, request), key, trusts or authority)

    def named(self, name: str, uris: list[str]) -> Credentials:
        """Signed by the authority with URI names that :func:`sign` would refuse."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(self.authority)
        now = datetime.now(timezone.utc)
        names = [*(x509.UniformResourceIdentifier(uri) for uri in uris), x509.DNSName(dns_of(name, FEDERATION))]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        signer = serialization.load_pem_private_key(self.authority_key, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(signer, hashes.SHA256())
        )
        pem = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self.unchecked(name, certificate.public_bytes(PEM), pem)


@dataclass
class Node:
    """A serving node of party ``clinic`` and what has reached it."""

    server: NodeServer
    address: str
    pipes: queue.Queue[StreamPipe] = field(default_factory=queue.Queue)
    links: queue.Queue[LinkStream] = field(default_factory=queue.Queue)
    probes: queue.Queue[ProbeStream] = field(default_factory=queue.Queue)
    refuse: list[VflError] = field(default_factory=list)

    def dialer(self, credentials: Credentials | None, *, own: str = "lab", peer: str = "clinic") -> Dialer:
        return Dialer(self.address, own=own, peer=peer, federation=FEDERATION, credentials=credentials)

    @property
    def reached(self) -> int:
        """How many streams of any kind have reached it and were not taken from its queues."""
        return self.pipes.qsize() + self.links.qsize() + self.probes.qsize()


def open_stream(dialer: Dialer, method: str) -> Stream[Any]:
    """A stream by one of :data:`METHODS`, which only a peer may call."""
    return dialer.converse("job-1") if method == "converse" else getattr(dialer, method)()


METHODS = ("converse", "link", "probe")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def clinic(certificates: Certificates) -> Credentials:
    return certificates.good("clinic")


@pytest.fixture(scope="session")
def lab(certificates: Certificates) -> Credentials:
    return certificates.good("lab")


Serve = Callable[..., Node]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start nodes that accept every stream, unless ``node.refuse`` holds an error."""
    servers: list[NodeServer] = []

    def start(credentials: Credentials | None, *, address: str = "127.0.0.1:0") -> Node:
        def converse(party: str, job_id: str, pipe: StreamPipe) -> None:
            if node.refuse:
                raise node.refuse[0]
            node.pipes.put(pipe)

        def link(party: str, stream: LinkStream) -> None:
            if node.refuse:
                raise node.refuse[0]
            node.links.put(stream)

        def probe(party: str, stream: ProbeStream) -> None:
            if node.refuse:
                raise node.refuse[0]
            node.probes.put(stream)

        server = NodeServer(
            address,
            own="clinic",
            federation=FEDERATION,
            credentials=credentials,
            peers=frozenset({"lab", "bank"}),
            on_converse=converse,
            on_link=link,
            on_probe=probe,
        )
        node = Node(server, "")
        node.address = server.start()
        servers.append(server)
        return node

    yield start
    for server in servers:
        server.stop(0)


@pytest.fixture
def node(serve: Serve, clinic: Credentials) -> Node:
    return serve(clinic)


@pytest.fixture
def pipes(node: Node, lab: Credentials) -> Iterator[tuple[StreamPipe, StreamPipe]]:
    """Both ends of one conversation: the dialling lab's, the serving clinic's."""
    dialling = node.dialer(lab).converse("job-1")
    serving = node.pipes.get(timeout=240)
    yield dialling, serving
    dialling.cancel(VflError("the test is over"))
    dialling.close()
    serving.close()


class World:
    """Two channels, and a way to run a protocol at each."""

    def __init__(self, name: str, first: Channel, second: Channel) -> None:
        self.name, self.first, self.second = name, first, second

    def play(self, at_first: Coroutine[Any, Any, Any], at_second: Coroutine[Any, Any, Any]) -> list[Any]:
        """Results in order; a protocol that failed gives its error."""
        if self.name == "memory":
            return run_together((at_first, self.first), (at_second, self.second))
        results: list[Any] = [None, None]

        def work(index: int, protocol: Coroutine[Any, Any, Any], channel: Channel) -> None:
            try:
                results[index] = run(protocol)
            except Exception as error:  # noqa: BLE001 - it is the result
                results[index] = error
            channel.close()

        threads = [
            threading.Thread(target=work, args=args, daemon=True)
            for args in ((0, at_first, self.first), (1, at_second, self.second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
            assert not thread.is_alive(), "a party hangs"
        return results


@pytest.fixture(params=["memory", "grpc dials", "grpc serves"])
def world(request: pytest.FixtureRequest) -> World:
    """The first channel is the memory's, the dialling or the serving one."""
    if request.param == "memory":
        return World("memory", *memory_channels("clinic", "lab", job_id="job-1"))
    dialling, serving = request.getfixturevalue("pipes")
    lab_end, clinic_end = Channel(dialling, peer="clinic", job_id="job-1"), Channel(serving, peer="lab", job_id="job-1")
    return World("grpc", *((lab_end, clinic_end) if request.param == "grpc dials" else (clinic_end, lab_end)))
