"""One party's TLS material: its own certificate and key, checked when they are read, and who vouches for which peer.

Whoever signs certificates can name anybody. So a certificate that says ``lab`` is only taken for lab's if the authority that
this owner has set for lab has signed it. TLS alone does not say which of several authorities did.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from vfl_node.errors import PolicyError, UsageError
from vfl_node.settings.node import Tls
from vfl_node.transport.identity import MALFORMED, Validity, alternative_names, dns_of, owner_of
from vfl_node.transport.revocations import RevocationLists

_P256 = "use ECDSA P-256: vfl-node init makes such a key"


@dataclass(frozen=True)
class Credentials:
    """One party's TLS material, checked.

    Attributes:
        authority: certificates that the federation trusts, PEM.
        peers: peer → file of its own authority; None: ``authority`` vouches for it.
        lists: what its authorities have revoked; None: this owner has no lists.
        pins: peer with an own authority → that, PEM; empty where its file cannot be used any more: nobody vouches for it.
        certificate: own certificate (and intermediate ones), PEM.
        key: own private key, PEM; never shown.
        validity: of the own certificate; None for material that was not checked.
        warnings: what the owner should know, such as an early expiry.
    """

    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    files: Tls
    name: str
    federation: str
    validity: Validity | None = None
    warnings: tuple[str, ...] = ()
    peers: Mapping[str, Path | None] = field(default_factory=dict)
    pins: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    lists: RevocationLists | None = None

    def current(self, now: datetime | None = None) -> Credentials:
        """The material in the files now.

        If the own files cannot be used (for example half replaced), they are as read before. A peer's authority whose file
        cannot be used vouches for nobody: whoever takes it away means that.
        """
        pins = {}
        for peer, path in self.peers.items():
            if path is not None:
                pins[peer] = b""
                with contextlib.suppress(UsageError):
                    pins[peer] = _read_pin(path)
        with contextlib.suppress(UsageError):
            own = self.files.model_copy(update={"crl": None})  # read by whoever checks a peer
            fresh = load_credentials(own, name=self.name, federation=self.federation, now=now)
            return replace(fresh, peers=self.peers, pins=pins, lists=self.lists, files=self.files)
        return replace(self, pins=pins)

    def roots_of(self, peer: str) -> bytes:
        """Who may vouch for ``peer``, PEM; empty: nobody."""
        return self.pins.get(peer, self.authority)

    @property
    def roots(self) -> bytes:
        """Who may vouch for anybody: what a server asks of a certificate before it knows whose it is."""
        return b"\n".join(dict.fromkeys([self.authority, *filter(None, self.pins.values())]))

    def check_peer(
        self, peer: str, chain: Sequence[x509.Certificate], now: datetime | None = None, *, since: datetime | None = None
    ) -> None:
        """Check that the first certificate of ``chain`` is signed by whoever may vouch for ``peer``, and is not revoked.

        Args:
            peer: whom the certificate names.
            chain: it, and intermediate ones.
            now: UTC.
            since: when a stream began that is open: what has ended after that does not matter.

        Raises:
            PolicyError: it is not (``E_IDENTITY``), or is revoked (``E_REVOKED``), or nobody can know that (``E_CRL``).
        """
        now = now or datetime.now(timezone.utc)
        reason = f"the certificate of {peer} is not signed by the authority that {self.name} has for {peer}"
        try:
            roots = x509.load_pem_x509_certificates(self.roots_of(peer))
            verify_chain(roots, chain, since or now)
        except (VerificationError, *MALFORMED):
            raise PolicyError(reason, code="E_IDENTITY", for_peer=reason) from None
        if self.lists:
            self.lists.check(peer, chain, roots, now)


def load_credentials(
    files: Tls, *, name: str, federation: str, now: datetime | None = None, peers: Mapping[str, Path | None] | None = None
) -> Credentials:
    """Read and check a party's own TLS material, and the authorities of its peers.

    Args:
        files: own ones.
        name: of this party.
        federation: its federation.
        now: UTC.
        peers: as :attr:`Credentials.peers`.

    Raises:
        UsageError: a file is missing or unreadable (``E_FILE``), other users can read the key
            (``E_KEY_MODE``), or the certificate is not this party's, does not match the key or
            the authority, or is out of date, or a peer's authority or the lists of revoked certificates cannot be read
            (``E_CERTIFICATE``).
    """
    now = now or datetime.now(timezone.utc)
    authority, certificate, key = _read(files.ca), _read(files.certificate), read_secret(files.key)
    trusted, chain = _certificates(authority, files.ca), _certificates(certificate, files.certificate)
    secret = private_key(key, str(files.key))
    if isinstance(secret, ec.EllipticCurvePrivateKey) and not isinstance(secret.curve, (ec.SECP256R1, ec.SECP384R1)):
        raise unusable(f"{files.key} is on the curve {secret.curve.name}, which gRPC does not accept", hint=_P256)
    try:
        validity = _check(chain, trusted, secret, files, name=name, federation=federation, now=now)
    except MALFORMED:  # an error in a field that is read only now
        raise unusable(f"{files.certificate} or {files.ca} holds a certificate that cannot be read") from None
    peers = {} if peers is None else peers  # one without any may get some
    pins = {peer: _read_pin(path) for peer, path in peers.items() if path is not None}
    warnings = filter(None, [validity.warning(str(files.certificate), now), _warn_bundle(trusted, files.ca, peers)])
    lists = RevocationLists(files.crl) if files.crl else None
    if lists:
        lists.read()
    return Credentials(authority, certificate, key, files, name, federation, validity, tuple(warnings), peers, pins, lists)


def _read_pin(path: Path) -> bytes:
    """A peer's authority, written anew: gRPC stops reading at text that others skip. Raises UsageError."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in _certificates(_read(path), path))


def _warn_bundle(trusted: Sequence[x509.Certificate], path: Path, peers: Mapping[str, Path | None]) -> str:
    """That several authorities can name one peer; empty if they cannot."""
    open_to_all = [peer for peer, own in peers.items() if own is None]
    if len({certificate.public_bytes(serialization.Encoding.DER) for certificate in trusted}) < 2 or not open_to_all:
        return ""
    return (
        f"{path} has {len(trusted)} authorities, and each of them can sign a certificate of {', '.join(open_to_all)}: "
        "set peers.NAME.authority, so that only the peer's own authority can"
    )


def _check(
    chain: list[x509.Certificate],
    trusted: list[x509.Certificate],
    secret: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    files: Tls,
    *,
    name: str,
    federation: str,
    now: datetime,
) -> Validity:
    """When a party's own certificate, the first of ``chain``, is valid. Raises UsageError if it cannot be used."""
    leaf = chain[0]
    try:
        owner = owner_of(leaf, federation)
    except PolicyError as error:
        raise unusable(f"{files.certificate}: {error.message}") from None
    if owner != name:
        raise unusable(f"{files.certificate} is the certificate of {owner!r}, and this node is {name!r}")
    if dns_of(name, federation) not in alternative_names(leaf).get_values_for_type(x509.DNSName):
        raise unusable(f"{files.certificate} lacks the DNS name {dns_of(name, federation)}")
    if leaf.public_key() != secret.public_key():
        raise unusable(f"{files.certificate} does not belong to the key {files.key}")
    if now < leaf.not_valid_before_utc:
        since = f"{leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise unusable(f"{files.certificate} is valid only from {since}", hint="check this machine's clock")
    if now >= leaf.not_valid_after_utc:
        until = f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        renew = f"vfl-node renew --config FILE, which needs {files.authority_key}; then start the node again"
        hint = renew if files.mode == "own" else "ask the authority for a new one"
        raise unusable(f"{files.certificate} expired on {until}", hint=hint)
    try:
        verify_chain(trusted, chain, now)
    except VerificationError as error:
        text = f"{files.certificate} is not vouched for by the authority in {files.ca} ({error})"
        hint = "ask the authority for a new one; its own certificate must be of a CA, and its key usage, if any, keyCertSign"
        raise unusable(text, hint=hint) from None
    return Validity.from_certificate(leaf)


def verify_chain(trusted: list[x509.Certificate], chain: Sequence[x509.Certificate], now: datetime) -> None:
    """Check that one of ``trusted`` vouches for the first certificate of ``chain``, if need be by way of the others.

    Raises:
        VerificationError: none does.
    """
    policies = PolicyBuilder().store(Store(trusted)).time(now).extension_policies(ca_policy=_AUTHORITY, ee_policy=_PARTY)
    policies.build_client_verifier().verify(chain[0], list(chain[1:]))


def read_secret(path: Path) -> bytes:
    """A file that must be its user's alone.

    A machine's administrator may also give it to a group of this process, as Kubernetes does with secrets (0440, fsGroup), or
    by the service manager (``$CREDENTIALS_DIRECTORY`` of systemd).

    Raises:
        UsageError: it cannot be read (``E_FILE``), or other users can read it (``E_KEY_MODE``).
    """
    secret, status = _read(path), path.stat()
    mode = stat.S_IMODE(status.st_mode)
    given = status.st_uid == 0 and status.st_gid in {os.getegid(), *os.getgroups()}
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    given = given or (bool(folder) and path.resolve().is_relative_to(Path(folder or "/").resolve()))
    if mode & (0o037 if given else 0o077):
        raise UsageError(
            f"{path} can be read by other users of this machine (mode {mode:04o})",
            code="E_KEY_MODE",
            hint=f"chmod 600 {path}",
        )
    return secret


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


def private_key(pem: bytes, what: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """The private key in ``pem``; ``what`` it is, for the error. Raises UsageError (``E_CERTIFICATE``)."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except MALFORMED:
        raise UsageError(f"{what} is not an unencrypted private key in PEM form", code="E_CERTIFICATE") from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise unusable(f"{what} is of a kind that gRPC does not accept", hint=_P256)
    return key


def _may_sign(policy: object, certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    """An authority made without a key usage, as by a plain ``openssl req -x509``, may sign: nothing says that it may not."""
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("its key usage does not let the authority sign certificates")


def _read(path: Path) -> bytes:
    """A file in PEM form, without the mark that editors put before UTF-8 and gRPC does not accept."""
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", code="E_FILE", hint="see tls in this node's configuration"
        ) from None


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except MALFORMED:
        raise unusable(f"{path} holds no certificate in PEM form, or one that cannot be read") from None


_AUTHORITY = ExtensionPolicy.webpki_defaults_ca().may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
_PARTY = ExtensionPolicy.webpki_defaults_ee()


def unusable(message: str, *, hint: str = "") -> UsageError:
    """The error for a certificate that a node cannot use."""
    return UsageError(message, code="E_CERTIFICATE", hint=hint)
