"""Certificates of the parties of one federation.

Each party holds an ECDSA P-256 key (gRPC refuses Ed25519 leaves) and a certificate with
exactly one URI name, ``spiffe://<federation>/party/<name>``, by which it is authorised when
it calls, and one DNS name, ``<name>.<federation>.vfl``, which a caller requires from the party that it dials.

Source: SPIFFE X.509-SVID (one URI name per certificate); RFC 5280.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from pydantic import TypeAdapter, ValidationError

from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Name
from vfl_node.settings import Tls

WARN_BEFORE = timedelta(days=14)
"""There is a warning for a certificate that expires sooner."""

CLOCK_SKEW = timedelta(hours=1)
"""New certificates are valid from this long ago, for peers whose clocks are behind."""

_AUTHORITY_DAYS = 3650

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


@dataclass(frozen=True)
class Credentials:
    """One party's TLS material, checked.

    Attributes:
        authority: certificates that the federation trusts, PEM.
        certificate: own certificate (and intermediate ones), PEM.
        key: own private key, PEM; never shown.
        warnings: what the owner should know, such as an early expiry.
    """

    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    files: Tls
    name: str
    federation: str
    warnings: tuple[str, ...] = ()

    def current(self) -> Credentials:
        """The material in the files now; if they cannot be used (for example half replaced), the material read before."""
        with contextlib.suppress(UsageError):
            return load(self.files, name=self.name, federation=self.federation)
        return self


def uri_of(name: str, federation: str) -> str:
    """The URI by which a party is authorised."""
    return f"spiffe://{federation}/party/{name}"


def dns_of(name: str, federation: str) -> str:
    """The DNS name that a caller requires from the party that it dials."""
    return f"{name}.{federation}.vfl"


def make_authority(federation: str, *, now: datetime | None = None) -> tuple[bytes, bytes]:
    """A new authority for ``federation``: certificate and private key, PEM. Valid for ten years."""
    now = now or datetime.now(timezone.utc)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
            x509.NameAttribute(NameOID.COMMON_NAME, "vfl-node authority"),
        ]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{federation}")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _pem_of(key)


def make_key_and_request(name: str, federation: str) -> tuple[bytes, bytes]:
    """A new private key for party ``name`` and the request for its certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.UniformResourceIdentifier(uri_of(name, federation)), x509.DNSName(dns_of(name, federation))]
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name, federation))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem_of(key), request.public_bytes(serialization.Encoding.PEM)


def sign(authority: bytes, authority_key: bytes, request: bytes, *, days: int = 365, now: datetime | None = None) -> bytes:
    """The certificate for ``request``, PEM. Only the key and the two names are taken from the request.

    Args:
        authority: certificate made by :func:`make_authority`, PEM.
        authority_key: its private key, PEM.
        request: certificate request, PEM.
        days: how long it is valid.
        now: time of signing; by default the present.

    Raises:
        UsageError: the request is not signed by its own key, or its names are not those of
            one party of the authority's federation (``E_REQUEST``).
    """
    now = now or datetime.now(timezone.utc)
    try:
        issuer = x509.load_pem_x509_certificate(authority)
        federation = ",".join(_uris(issuer)).removeprefix("spiffe://")
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except MALFORMED:
        raise _unusable("the authority's certificate cannot be read", hint="make a new authority: vfl-node certify") from None
    try:
        asked = x509.load_pem_x509_csr(request)
        valid, key = asked.is_signature_valid, asked.public_key()
    except MALFORMED:
        raise UsageError("this is not a certificate request", code="E_REQUEST") from None
    if not valid or not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
        raise UsageError("the request is not signed by its own ECDSA P-256 key", code="E_REQUEST")
    name = _requested_name(asked, federation)
    names = [x509.UniformResourceIdentifier(uri_of(name, federation)), x509.DNSName(dns_of(name, federation))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_subject(name, federation))
        .issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(_private_key(authority_key, "the authority's key"), hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def party_of(certificate: bytes, federation: str) -> str:
    """The name of the party whose certificate (PEM) this is.

    Raises:
        PolicyError: it does not have exactly one URI name, or the name does not have ``federation``'s form
            (``E_IDENTITY``); the text says what was expected and found, and may be sent to the peer.
    """
    try:
        return _party(x509.load_pem_x509_certificate(certificate), federation)
    except MALFORMED:
        raise _identity_error("the certificate cannot be read") from None


def _party(certificate: x509.Certificate, federation: str) -> str:
    expected = uri_of("NAME", federation)
    uris = _uris(certificate)
    if len(uris) != 1:
        raise _identity_error(f"the certificate has {len(uris)} URI names, expected exactly one, {expected}")
    found = _PARTY.fullmatch(uris[0])
    if found is None or found[1] != federation or not _is_name(found[2]):
        raise _identity_error(f"the certificate is of {uris[0][:200]!r}, expected {expected}")
    return found[2]


def load(files: Tls, *, name: str, federation: str, now: datetime | None = None) -> Credentials:
    """Read and check a party's own TLS material.

    Raises:
        UsageError: a file is missing or unreadable (``E_FILE``), other users can read the key
            (``E_KEY_MODE``), or the certificate is not this party's, does not match the key or
            the authority, or is out of date (``E_CERTIFICATE``).
    """
    now = now or datetime.now(timezone.utc)
    authority, certificate, key = (_read(path) for path in (files.ca, files.certificate, files.key))
    if (mode := stat.S_IMODE(files.key.stat().st_mode)) & 0o077:
        raise UsageError(
            f"{files.key} can be read by other users of this machine (mode {mode:04o})",
            code="E_KEY_MODE",
            hint=f"chmod 600 {files.key}",
        )
    trusted, chain = _certificates(authority, files.ca), _certificates(certificate, files.certificate)
    secret = _private_key(key, str(files.key))
    try:
        expiry = _checked(chain, trusted, secret, files, name=name, federation=federation, now=now)
    except MALFORMED:  # an error in a field that is read only now
        raise _unusable(f"{files.certificate} or {files.ca} holds a certificate that cannot be read") from None
    warnings = []
    if expiry - now < WARN_BEFORE:
        warnings.append(f"{files.certificate} expires on {expiry:%Y-%m-%d %H:%M} UTC, in {(expiry - now).days} days: renew it")
    return Credentials(authority, certificate, key, files, name, federation, tuple(warnings))


def _checked(
    chain: list[x509.Certificate],
    trusted: list[x509.Certificate],
    secret: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    files: Tls,
    *,
    name: str,
    federation: str,
    now: datetime,
) -> datetime:
    """When a party's own certificate, the first of ``chain``, expires. Raises UsageError if it cannot be used."""
    leaf = chain[0]
    try:
        owner = _party(leaf, federation)
    except PolicyError as error:
        raise _unusable(f"{files.certificate}: {error.message}") from None
    if owner != name:
        raise _unusable(f"{files.certificate} is the certificate of {owner!r}, and this node is {name!r}")
    if dns_of(name, federation) not in _names(leaf).get_values_for_type(x509.DNSName):
        raise _unusable(f"{files.certificate} lacks the DNS name {dns_of(name, federation)}")
    if leaf.public_key() != secret.public_key():
        raise _unusable(f"{files.certificate} does not belong to the key {files.key}")
    if now < leaf.not_valid_before_utc:
        since = f"{leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise _unusable(f"{files.certificate} is valid only from {since}", hint="check this machine's clock")
    expiry = leaf.not_valid_after_utc
    if now >= expiry:
        raise _unusable(f"{files.certificate} expired on {expiry:%Y-%m-%d %H:%M} UTC", hint="ask the authority for a new one")
    try:
        PolicyBuilder().store(Store(trusted)).time(now).build_client_verifier().verify(leaf, chain[1:])
    except VerificationError as error:
        raise _unusable(f"{files.certificate} is not vouched for by the authority in {files.ca} ({error})") from None
    return expiry


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only this user can read (0600).

    Raises:
        UsageError: it exists already; a key is never overwritten (``E_EXISTS``).
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists already", code="E_EXISTS", hint="move it away first") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _uris(certificate: x509.Certificate | x509.CertificateSigningRequest) -> list[str]:
    return _names(certificate).get_values_for_type(x509.UniformResourceIdentifier)


def _names(certificate: x509.Certificate | x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """The alternative names; none if there is no such extension. Raises one of :data:`MALFORMED` for a malformed one."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


def _requested_name(asked: x509.CertificateSigningRequest, federation: str) -> str:
    """The party of a request, if its names are exactly the two required ones."""
    try:
        names = list(_names(asked))
    except MALFORMED:
        names = []
    for name in names:
        found = _PARTY.fullmatch(name.value) if isinstance(name, x509.UniformResourceIdentifier) else None
        if found and _is_name(found[2]):
            both = [x509.UniformResourceIdentifier(uri_of(found[2], federation)), x509.DNSName(dns_of(found[2], federation))]
            if sorted(map(str, names)) == sorted(map(str, both)):
                return found[2]
    raise UsageError(
        f"the request must name one party of federation {federation!r}: {uri_of('NAME', federation)} and "
        f"{dns_of('NAME', federation)}, and nothing else",
        code="E_REQUEST",
        hint="write it with `vfl-node init` with this federation's name",
    )


def _is_name(text: str) -> bool:
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def _subject(name: str, federation: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation), x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _private_key(pem: bytes, what: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except MALFORMED:
        raise UsageError(f"{what} is not an unencrypted private key in PEM form", code="E_CERTIFICATE") from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise UsageError(f"{what} is of a kind that gRPC does not take", code="E_CERTIFICATE", hint="use ECDSA P-256")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", code="E_FILE", hint="see tls in this node's configuration"
        ) from None


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except MALFORMED:
        raise _unusable(f"{path} holds no certificate in PEM form, or one that cannot be read") from None


def _unusable(message: str, *, hint: str = "") -> UsageError:
    return UsageError(message, code="E_CERTIFICATE", hint=hint)


def _identity_error(message: str) -> PolicyError:
    return PolicyError(message, code="E_IDENTITY", for_peer=message)
