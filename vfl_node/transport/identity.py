"""How a certificate names a party of a federation, and when it is valid.

A party's certificate has exactly one URI name, ``spiffe://<federation>/party/<name>``, by which the party is authorised when
it calls, and one DNS name, ``<name>.<federation>.vfl``, which a caller requires from the party that it dials. A handshake
checks once that a certificate is valid, and a link may outlive it.

Source: SPIFFE X.509-SVID (one URI name per certificate).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from pydantic import TypeAdapter, ValidationError

from vfl_node.errors import PolicyError
from vfl_node.job import Name

MALFORMED = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)
"""The exceptions for a malformed certificate, raised when it or one of its fields is read."""

_PARTY = re.compile(r"spiffe://([^/]+)/party/([^/]+)")
_NAME = TypeAdapter(Name)


def uri_of(name: str, federation: str) -> str:
    """The URI by which a party is authorised."""
    return f"spiffe://{federation}/party/{name}"


def dns_of(name: str, federation: str) -> str:
    """The DNS name that a caller requires from the party that it dials."""
    return f"{name}.{federation}.vfl"


def party_of(certificate: bytes, federation: str) -> str:
    """The name of the party whose certificate (PEM) this is.

    Raises:
        PolicyError: it does not have exactly one URI name, or the name does not have ``federation``'s form
            (``E_IDENTITY``); the text says what was expected and found, and may be sent to the peer.
    """
    try:
        return owner_of(x509.load_pem_x509_certificate(certificate), federation)
    except MALFORMED:
        raise _identity_error("the certificate cannot be read") from None


def owner_of(certificate: x509.Certificate, federation: str) -> str:
    """As :func:`party_of`, of a certificate that is decoded. Raises one of :data:`MALFORMED`, too, for a malformed one."""
    expected = uri_of("NAME", federation)
    uris = uri_names(certificate)
    if len(uris) != 1:
        raise _identity_error(f"the certificate has {len(uris)} URI names, expected exactly one, {expected}")
    name = party_in(uris[0], federation)
    if name is None:
        raise _identity_error(f"the certificate is of {uris[0][:200]!r}, expected {expected}")
    return name


def party_in(uri: str, federation: str) -> str | None:
    """The name of the party that ``uri`` names; None if it does not have the form of :func:`uri_of`."""
    parts = _PARTY.fullmatch(uri)
    if parts is None or parts[1] != federation or not _is_name(parts[2]):
        return None
    return parts[2]


def uri_names(certificate: x509.Certificate | x509.CertificateSigningRequest) -> list[str]:
    """The URI names of a certificate or request. Raises one of :data:`MALFORMED` for a malformed one."""
    return alternative_names(certificate).get_values_for_type(x509.UniformResourceIdentifier)


def alternative_names(certificate: x509.Certificate | x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """The alternative names; none if there is no such extension. Raises one of :data:`MALFORMED` for a malformed one."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


def _is_name(text: str) -> bool:
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def _identity_error(message: str) -> PolicyError:
    return PolicyError(message, code="E_IDENTITY", for_peer=message)


WARN_BEFORE = timedelta(days=30)
"""There is a warning for a certificate that expires sooner."""


@dataclass(frozen=True)
class Validity:
    """The time in which a certificate is valid; both ends in UTC."""

    since: datetime
    until: datetime

    @classmethod
    def from_certificate(cls, certificate: x509.Certificate) -> Validity:
        """That of ``certificate``. Raises one of :data:`MALFORMED` for a malformed one."""
        return cls(certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    def fault(self, whose: str, now: datetime, *, clock: str = "this node's clock") -> str:
        """Why the certificate, ``whose`` it is, cannot be used by ``clock``, which says ``now``; empty if it can."""
        if now < self.since:
            return f"{whose} is valid only from {_text(self.since)}, and {clock} says {_text(now)}"
        return f"{whose} expired on {_text(self.until)} ({clock} says {_text(now)})" if now >= self.until else ""

    def warning(self, what: str, now: datetime) -> str:
        """That the certificate, which is ``what``, expires soon; empty if it does not."""
        left = self.until - now
        return f"{what} expires on {_text(self.until)}, in {left.days} days: renew it" if left < WARN_BEFORE else ""


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
