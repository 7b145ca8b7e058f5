"""The authority of one federation, and the certificates that it signs for the parties.

Each party holds an ECDSA P-256 key (gRPC refuses Ed25519 leaves) and a certificate with the names of
:mod:`~vfl_node.transport.identity`.

Source: RFC 5280.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vfl_node.errors import UsageError
from vfl_node.transport.credentials import private_key, unusable
from vfl_node.transport.identity import MALFORMED, alternative_names, dns_of, party_in, uri_names, uri_of

CLOCK_SKEW = timedelta(hours=1)
"""New certificates are valid from this long ago, for peers whose clocks are behind."""

_AUTHORITY_DAYS = 3650
_ORGANIZATION, _NAME = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME


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


def shorten(authority: bytes, authority_key: bytes, until: datetime) -> bytes:
    """The certificate of ``authority`` again, PEM, ending earlier: whatever it has signed is trusted only ``until`` then."""
    former = x509.load_pem_x509_certificate(authority)
    builder = x509.CertificateBuilder(
        issuer_name=former.issuer,
        subject_name=former.subject,
        public_key=former.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=former.not_valid_before_utc,
        not_valid_after=min(until, former.not_valid_after_utc),
    )
    for extension in former.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    certificate = builder.sign(private_key(authority_key, "the authority's key"), hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


def make_key_and_request(name: str, federation: str) -> tuple[bytes, bytes]:
    """A new private key for party ``name`` and the request for its certificate, both PEM."""
    key = _pem_of(ec.generate_private_key(ec.SECP256R1()))
    return key, request_for(name, federation, key)


def request_for(name: str, federation: str, key: bytes) -> bytes:
    """The request for a certificate of party ``name`` with the private ``key``, both PEM."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name, federation))
        .add_extension(x509.SubjectAlternativeName(_names(name, federation)), critical=False)
        .sign(private_key(key, "the party's key"), hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM)


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
        federation = ",".join(uri_names(issuer)).removeprefix("spiffe://")
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except MALFORMED:
        raise unusable("the authority's certificate cannot be read", hint="make a new authority: vfl-node certify") from None
    try:
        decoded = x509.load_pem_x509_csr(request)
        valid, key = decoded.is_signature_valid, decoded.public_key()
    except MALFORMED:
        raise UsageError("this is not a certificate request", code="E_REQUEST") from None
    if not valid or not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
        raise UsageError("the request is not signed by its own ECDSA P-256 key", code="E_REQUEST")
    name = _requested_name(decoded, federation)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_subject(name, federation))
        .issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(_names(name, federation)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(private_key(authority_key, "the authority's key"), hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def describe(certificate: bytes) -> str:
    """Whose ``certificate`` (one of this module's, PEM) it is, of which federation, and the day on which it ends."""
    issued = x509.load_pem_x509_certificate(certificate)
    federation, name = (str(issued.subject.get_attributes_for_oid(attribute)[0].value) for attribute in (_ORGANIZATION, _NAME))
    return f"{name} of federation {federation}, valid until {issued.not_valid_after_utc:%Y-%m-%d}"


def _requested_name(request: x509.CertificateSigningRequest, federation: str) -> str:
    """The party of a request, if its names are exactly the two required ones."""
    try:
        names = list(alternative_names(request))
    except MALFORMED:
        names = []
    for name in names:
        party = party_in(name.value, federation) if isinstance(name, x509.UniformResourceIdentifier) else None
        if party and sorted(map(str, names)) == sorted(map(str, _names(party, federation))):
            return party
    raise UsageError(
        f"the request must name one party of federation {federation!r}: {uri_of('NAME', federation)} and "
        f"{dns_of('NAME', federation)}, and nothing else",
        code="E_REQUEST",
        hint="write it with `vfl-node init` with this federation's name",
    )


def _names(party: str, federation: str) -> list[x509.GeneralName]:
    """The two names of a party's certificate."""
    return [x509.UniformResourceIdentifier(uri_of(party, federation)), x509.DNSName(dns_of(party, federation))]


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
