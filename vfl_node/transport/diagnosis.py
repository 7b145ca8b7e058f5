"""Why a peer cannot be reached: gRPC only says "Socket closed", so a separate handshake finds the reason."""

from __future__ import annotations

import contextlib
import socket
import ssl
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from vfl_node.errors import PolicyError, UsageError
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.identity import MALFORMED, dns_of, party_of, uri_of

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty settings (RFC 9113)
_SETTINGS = b"\x04"
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME = NAMED = 10, 9, 62
"""OpenSSL's X509_V_ERR_ numbers of faults that are not about who has signed."""


def diagnose(address: str, *, peer: str, federation: str, credentials: Credentials | None, timeout_s: float = 3.0) -> str:
    """Why this node cannot reach ``peer`` at ``address``, in plain words; empty if it can.

    Args:
        address: ``host:port``.
        peer: the party that should answer there.
        federation: its federation.
        credentials: own TLS material; None for plaintext.
        timeout_s: limit of each step.
    """
    host, _, port = address.rpartition(":")
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
    except socket.gaierror:
        return f"the name {host!r} is not known to the network"
    except TimeoutError:
        return f"no answer within {timeout_s:.0f} s (wrong address, or a firewall drops the packets)"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    try:
        with plain:
            if credentials is None:
                plain.sendall(_HTTP2_PREFACE)
                return "" if plain.recv(9)[3:4] == _SETTINGS else "it speaks no plaintext HTTP/2 (does that node use TLS?)"
            with client_context(credentials, peer).wrap_socket(plain, server_hostname=dns_of(peer, federation)) as secure:
                # A server that refuses this node's certificate closes the connection only after the handshake.
                return "" if secure.recv(9) else _explain_refusal(credentials)
    except ssl.SSLCertVerificationError as error:
        try:
            said = explain_certificate(certificate_at(address, timeout_s), error, peer, federation)
        except MALFORMED:  # an error in a field that is read only now
            return "its certificate cannot be read"
        paired = credentials is not None and peer in credentials.pins and error.verify_code not in NAMED
        return f"{said}; {_away(peer, 'this node')}" if paired else said
    except ssl.SSLError as error:
        return _explain_alert(error) + _explain_away(credentials)
    except TimeoutError:
        return f"it accepts the connection but says nothing for {timeout_s:.0f} s"
    except OSError:
        return _explain_refusal(credentials) if credentials else "it breaks off the connection"


def _explain_refusal(credentials: Credentials) -> str:
    """The server closed the connection after it got this node's certificate: what this node itself finds wrong with it."""
    try:
        load_credentials(credentials.files, name=credentials.name, federation=credentials.federation)
    except UsageError as error:
        return f"it does not accept this node's certificate: {error.message}"
    said = "it does not accept this node's certificate (it trusts another authority, or its clock differs)"
    return said + _explain_away(credentials)


def _explain_away(credentials: Credentials | None) -> str:
    """What else may have happened where this party has an authority of its own; empty where it has none."""
    own = credentials is not None and credentials.files.mode == "own"
    return f"; {_away(credentials.name, 'the other node')}" if credentials and own else ""


def _away(renewed: str, away: str) -> str:
    return f"if {renewed} has a new authority, and {away} was away for more than 30 days, revoke it and pair again"


def client_context(credentials: Credentials, peer: str) -> ssl.SSLContext:
    """That of a handshake with ``peer`` in which both sides show a certificate, as gRPC's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=credentials.roots_of(peer).decode("ascii", errors="ignore"))
    with contextlib.suppress(OSError):  # the files are being replaced: the rest can still be examined
        context.load_cert_chain(credentials.files.certificate, credentials.files.key)
    return context


def certificate_at(address: str, timeout_s: float = 3.0) -> x509.Certificate | None:
    """The certificate that the server shows, unverified; only to say what is wrong with it."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        contextlib.suppress(OSError, *MALFORMED),
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
    return None


def explain_certificate(shown: x509.Certificate | None, error: ssl.SSLCertVerificationError, peer: str, federation: str) -> str:
    """Why the certificate that was ``shown`` in the place of the peer's was not accepted."""
    if error.verify_code == _EXPIRED:
        return "its certificate has expired" + (f" on {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC" if shown else "")
    if error.verify_code == _NOT_YET_VALID:
        since = f" before {shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC" if shown else " yet"
        now = datetime.now(timezone.utc)
        return f"its certificate is not valid{since}, and this node's clock says {now:%Y-%m-%d %H:%M} UTC"
    if error.verify_code == _OTHER_NAME:
        return f"another party answers there: expected {uri_of(peer, federation)}, got {_party(shown, federation)}"
    return f"its certificate is not signed by an authority that this node trusts ({error.verify_message})"


def _party(shown: x509.Certificate | None, federation: str) -> str:
    if shown is None:
        return "another certificate"
    try:
        return uri_of(party_of(shown.public_bytes(serialization.Encoding.PEM), federation), federation)
    except PolicyError:
        return "a certificate of no party of this federation"


def _explain_alert(error: ssl.SSLError) -> str:
    """What the other side answered to the handshake, or that it does not use TLS."""
    reason = (error.reason or "").upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "it does not speak TLS (is it set to insecure_loopback, or another program?)"
    if "ALERT" in reason:
        alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return f"it refuses this node's certificate or TLS version ({alert})"
    return f"the TLS handshake fails ({reason.replace('_', ' ').lower() or 'no reason given'})"
