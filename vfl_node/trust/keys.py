"""The keys of a party that is its own authority: made once, read when they are needed, and its certificate renewed.

The authority's key may lie elsewhere, on another machine or none, and is needed to renew the certificate only. A renewed
certificate has the same key as before: so one file changes, at once, and a crash leaves either the old or the new one.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.verification import VerificationError

from vfl_node.errors import PolicyError, UsageError
from vfl_node.process.files import write_whole
from vfl_node.settings.connection import Tls
from vfl_node.settings.node import Settings
from vfl_node.transport.authority import make_authority, make_key_and_request, request_for, sign
from vfl_node.transport.credentials import Credentials, load_credentials, read_secret, verify_chain, write_private
from vfl_node.transport.identity import MALFORMED
from vfl_node.trust.cards import SignedCard, make_card, read_card

LEAF_DAYS = 90
"""How long a certificate holds that a party's own authority signs."""

RENEW_DAYS = 30
"""A running node renews its certificate when it holds for no longer, if the authority's key is here."""


def make_own(name: str, federation: str, files: Tls) -> list[Path]:
    """Make and write authority, certificate, signing key and card of a party, each of which is not there yet.

    Raises:
        UsageError: a secret is there already; none is ever overwritten (``E_EXISTS``).
    """
    authority, authority_key = make_authority(federation)
    key, request = make_key_and_request(name, federation)
    write_private(files.authority_key, authority_key)
    write_private(files.key, key)
    files.ca.write_bytes(authority)
    files.certificate.write_bytes(sign(authority, authority_key, request, days=LEAF_DAYS))
    make_signing_key(files)
    credentials = load_credentials(files, name=name, federation=federation)
    files.card.write_bytes(make_card(credentials, read_signing_key(files), authority_key, serial=1).envelope)
    return [files.authority_key, files.ca, files.key, files.certificate, files.signing_key, files.card]


def make_signing_key(files: Tls) -> None:
    """Make and write the key with which a party signs documents. Raises UsageError if there is one (``E_EXISTS``)."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(files.signing_key, pem)


def own_card(credentials: Credentials) -> SignedCard:
    """This party's card: as it lies beside its keys, or signed by its certificate's key now if an authority outside signs that.

    Raises:
        UsageError: this party has none (``E_CONFIG``), or a file of it cannot be read.
        PolicyError: it is not what was signed, or not of the authority that signs this party's certificates (``E_CARD``); or
            this party has given its keys up (``E_REVOKED``).
    """
    signed = shown_card(credentials)
    if signed.card.revoked:
        text = f"the keys of {credentials.name} were given up on {signed.card.issued:%Y-%m-%d}"
        raise PolicyError(text, code="E_REVOKED", hint="make new ones: vfl-node init NAME --role ROLE FOLDER, in a new folder")
    return signed


def shown_card(credentials: Credentials) -> SignedCard:
    """As :func:`own_card`, also after this party has given its keys up, to tell peers so."""
    files, federation = credentials.files, credentials.federation
    if files.mode == "shared":
        raise UsageError(
            "under tls.mode shared nobody pairs: one authority vouches for all parties",
            code="E_CONFIG",
            hint="for an authority of this party alone: vfl-node init NAME --role ROLE FOLDER, in a new folder",
        )
    if files.mode == "outside":
        return make_card(credentials, read_signing_key(files), credentials.key)
    try:
        envelope = files.card.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {files.card}: {error.strerror}", code="E_FILE") from None
    signed = read_card(envelope, federation=federation)
    if signed.card.name != credentials.name or signed.card.authority_pem.strip() != credentials.authority.strip():
        text = f"{files.card} is not the card of {credentials.name} with the authority in {files.ca}"
        raise PolicyError(text, code="E_CARD", hint="put back the one that vfl-node init or vfl-node renew has written")
    return signed


def renew(settings: Settings, *, now: datetime | None = None) -> datetime:
    """Sign a new certificate for this party's key and write it; a running node uses it from the next handshake on.

    Returns:
        Until when it holds.

    Raises:
        UsageError: this party has no authority of its own (``E_CONFIG``), or the authority's key is not here (``E_FILE``).
    """
    files = own_files(settings)
    if files.next_certificate.exists():
        raise UsageError(
            f"{files.next_certificate} takes the place of this certificate when peers have learnt of the new authority",
            code="E_EXISTS",
            hint="a running node does that by itself; vfl-node card says when",
        )
    key, own = read_authority_key(files), read_secret(files.key)
    request = request_for(settings.name, settings.federation, own)
    try:
        authority = files.ca.read_bytes()
        fresh = sign(authority, key, request, days=LEAF_DAYS, now=now)
        check_renewed(files, authority, fresh, now)
        write_whole(files.certificate, fresh)
    except OSError as error:
        raise UsageError(f"cannot renew {files.certificate}: {error.strerror or error}", code="E_FILE") from None
    renewed = load_credentials(files, name=settings.name, federation=settings.federation, now=now)
    assert renewed.validity  # it was checked
    return renewed.validity.until


def own_files(settings: Settings) -> Tls:
    """The files of a party that is its own authority. Raises UsageError (``E_CONFIG``) where it is not."""
    files = settings.tls
    if files is None or files.mode != "own":
        raise UsageError(
            "this party's certificate is signed by an authority that is not its own",
            code="E_CONFIG",
            hint="have that authority sign a new one, and replace tls.certificate",
        )
    return files


def read_authority_key(files: Tls) -> bytes:
    """The key of this party's own authority, PEM. Raises UsageError where it is not here (``E_FILE``) or not private."""
    if not files.authority_key.exists():
        raise UsageError(
            f"the key of this party's authority is not in {files.authority_key}",
            code="E_FILE",
            hint="bring it back there (mode 0600), run the command again, and take it away afterwards if it is kept elsewhere",
        )
    return read_secret(files.authority_key)


def check_renewed(files: Tls, authority: bytes, fresh: bytes, now: datetime | None) -> None:
    """Raise UsageError (``E_CERTIFICATE``) before a certificate that nobody vouches for takes the place of one that holds."""
    try:
        trusted, chain = (x509.load_pem_x509_certificates(pem) for pem in (authority, fresh))
        verify_chain(trusted, chain, now or datetime.now(timezone.utc))
    except (VerificationError, *MALFORMED):
        raise UsageError(
            f"{files.authority_key} is not the key of {files.ca}",
            code="E_CERTIFICATE",
            hint="bring back the key that was made together with that certificate",
        ) from None


def is_due(settings: Settings, until: datetime, now: datetime) -> bool:
    """Whether a node should renew its certificate, which holds ``until`` then, by itself, and can."""
    files = settings.tls
    due = (until - now).days < RENEW_DAYS
    alone = files is not None and files.mode == "own" and not files.next_certificate.exists()
    return files is not None and alone and due and files.authority_key.exists()


def read_signing_key(files: Tls) -> Ed25519PrivateKey:
    """The key with which this party signs documents. Raises UsageError if it cannot be read (``E_CERTIFICATE``, ``E_FILE``)."""
    try:
        key = serialization.load_pem_private_key(read_secret(files.signing_key), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{files.signing_key} is no Ed25519 key in PEM form", code="E_CERTIFICATE")
    return key
