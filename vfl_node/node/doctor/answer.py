"""Checks 7, 8 and 14: who answers at a peer's port, whether it lets this node in, and which release it runs."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from vfl_node.crypto.kernels import kernel
from vfl_node.errors import PeerLost, UsageError, VflError, peer_text
from vfl_node.node.doctor.finding import Finding, fail, ok, skip, warn
from vfl_node.node.doctor.route import PeerRoute
from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.diagnosis import NAMED, client_context, explain_certificate
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Hello
from vfl_node.transport.identity import MALFORMED, dns_of
from vfl_node.version import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, VERSION, common_version

HANDSHAKE_S = 5.0
ANSWER_S = 10.0

LET_IN = ("E_FENCED", "E_CALL_BACK")
"""Codes of refusals of a link for another reason than who calls: this party's running node has one, or is dialled itself."""


@dataclass(frozen=True)
class ServerShown:
    """What a server shows to whoever connects.

    Attributes:
        version: of TLS.
        protocol: that it agreed to speak; empty: none.
        leaf: its certificate, unverified; None if it cannot be read.
    """

    version: str
    protocol: str
    leaf: x509.Certificate | None


def look(plain: socket.socket) -> ServerShown:
    """A handshake that verifies nothing, also with TLS 1.2. Raises OSError (also ssl.SSLError)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(plain) as secure:
        try:
            leaf = x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
        except MALFORMED:
            leaf = None
        return ServerShown(secure.version() or "no TLS", secure.selected_alpn_protocol() or "", leaf)


def check_answer(settings: Settings, peer: str, route: PeerRoute, credentials: Credentials | None) -> Finding:
    """Check 7: whether the peer itself answers: TLS 1.3, HTTP/2, and a certificate that its own authority has signed."""
    if credentials is None:
        return skip(7, "plaintext between loopback addresses: nobody shows a certificate")
    try:
        with route.connect(HANDSHAKE_S) as plain:
            shown = look(plain)
    except ssl.SSLError as error:
        text = f"what answers there speaks no TLS that this node knows ({(error.reason or 'no reason given').lower()})"
        return fail(7, text, "is it another program, or a node with insecure_loopback? Compare the port")
    except (OSError, PeerLost) as error:
        text = f"it accepts the connection, and no handshake comes of it ({_said(error)})"
        return fail(7, text, "something between drops what is no web page: ask who runs the firewalls on the way")
    issuer = _issuer(shown.leaf)
    figures = {"tls": shown.version, "protocol": shown.protocol, "issuer": issuer}
    if shown.version != "TLSv1.3":
        text = f"{shown.version} is spoken there, not TLSv1.3: a device between opens the encryption (issuer {issuer})"
        return fail(7, text, "have the connection excepted from inspection, or let the device speak TLS 1.3", **figures)
    if shown.protocol != "h2":
        hint = "a device or proxy between must pass HTTP/2 on: ask who runs it"
        return fail(7, "what answers there does not speak HTTP/2 (no ALPN h2)", hint, **figures)
    try:
        with (
            route.connect(HANDSHAKE_S) as plain,
            client_context(credentials, peer).wrap_socket(plain, server_hostname=dns_of(peer, settings.federation)),
        ):
            pass
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in NAMED:
            text = explain_certificate(shown.leaf, error, peer, settings.federation)
            return fail(7, text, f"ask the owner of {peer}, or pair with it again", **figures)
        if issuer in _names(credentials.roots_of(peer)):
            text = f"the certificate is by another authority that is also called {issuer}: {peer} has new keys, or is not there"
            return fail(7, text, f"ask the owner of {peer}, and pair again if its keys are new", **figures)
        hint = f"have {route.host}:{route.port} excepted from inspection; if {issuer} is no device, {peer} has a new authority"
        return fail(7, f"a device between opens the encryption (issuer {issuer})", hint, **figures)
    except (OSError, PeerLost, *MALFORMED) as error:
        return fail(7, f"the handshake fails ({_said(error)})", f"ask the owner of {peer}", **figures)
    return ok(7, f"{peer} answers with TLSv1.3 and HTTP/2, certificate by {issuer}", **figures)


def _issuer(leaf: x509.Certificate | None) -> str:
    """The name of who has signed a certificate, for people."""
    if leaf is None:
        return "unknown"
    names = leaf.issuer.get_attributes_for_oid(NameOID.COMMON_NAME) or leaf.issuer.get_attributes_for_oid(
        NameOID.ORGANIZATION_NAME
    )
    return peer_text(str(names[0].value), 80) if names else "without a name"


def _names(roots: bytes) -> set[str]:
    """What the authorities in ``roots``, PEM, are called."""
    try:
        return {_issuer(root) for root in x509.load_pem_x509_certificates(roots)}  # each has signed itself
    except MALFORMED:
        return set()


def _said(error: BaseException) -> str:
    if isinstance(error, VflError):
        return error.message
    if isinstance(error, TimeoutError):
        return f"nothing comes for {HANDSHAKE_S:.0f} s"
    return peer_text(str(getattr(error, "strerror", None) or error), 120).lower()


def check_admission(dialer: Dialer, peer: str) -> tuple[Hello | None, Finding]:
    """Check 8: whether the peer lets this node open a link; its greeting, if it gives one, and what was found.

    This node does not greet, so that the peer does not count it as connected.
    """
    try:
        link = dialer.link(timeout_s=ANSWER_S)
    except VflError as error:
        if error.code in LET_IN:
            why = "this party's running node has the link" if error.code == "E_FENCED" else "it dials this party itself"
            return None, ok(8, f"{peer} knows this node ({why})", code=error.code)
        if error.code == "E_BUSY":
            return None, warn(8, f"{error.message} (E_BUSY)", "try again in a minute", code=error.code)
        hint = error.hint or f"ask the owner of {peer}: its log and vfl-node card say whom it takes"
        return None, fail(8, f"{error.message} ({error.code})", hint, code=error.code)
    try:
        notice = link.receive(ANSWER_S)
        hello = notice.hello if notice is not None and notice.HasField("hello") else None
    except VflError as error:
        return None, fail(8, f"{error.message} ({error.code})", f"ask the owner of {peer}", code=error.code)
    finally:
        link.close()
    if hello is None:
        return None, fail(8, f"{peer} opens a link, and does not greet", f"ask the owner of {peer} which program answers there")
    return hello, ok(8, f"{peer} lets this node in", code=None)


def check_releases(peer: str, hello: Hello | None, their_kernel: str) -> Finding:
    """Check 14: whether both releases speak a version of the protocol in common."""
    if hello is None:
        return skip(14, f"{peer} has not said which release it runs")
    oldest = hello.oldest_protocol_version or hello.protocol_version
    software = peer_text(hello.software_version, 20)
    figures = {
        "own_release": VERSION,
        "own_protocol": [OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION],
        "own_kernel": _own_kernel(),
        "peer_release": software,
        "peer_protocol": [oldest, hello.protocol_version],
        "peer_kernel": their_kernel or None,
    }
    common = common_version(hello.protocol_version, hello.oldest_protocol_version)
    if common is None:
        theirs = f"{peer} runs {software} (protocol {oldest} to {hello.protocol_version})"
        text = f"{theirs}, this node {VERSION} ({OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION})"
        return fail(14, f"no version of the protocol in common: {text}", "upgrade the older one of the two nodes", **figures)
    kernels = f"kernels {_own_kernel()} here, {their_kernel} there" if their_kernel else f"kernel {_own_kernel()} here"
    return ok(14, f"{VERSION} here, {software} at {peer}, protocol {common}; {kernels}", **figures)


def _own_kernel() -> str:
    try:
        return kernel().name
    except UsageError:
        return "unknown"
