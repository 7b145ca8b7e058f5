"""Which certificates their authorities have revoked: the lists that an owner has put into one file (``tls.crl``).

A list speaks for the certificates of one authority. A peer whose authority has no list in the file is not covered. A list is
not used after the time by which its authority has promised the next one. Then nobody can know what was revoked since, and no
new link with the peers of that authority begins.

Source: RFC 5280, section 5.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from vfl_node.errors import PolicyError, UsageError
from vfl_node.transport.identity import MALFORMED

READ_EVERY_S = 3600.0
"""A file that seems unchanged is read again after so long."""

MOST_BYTES = 64 << 20

_LIST = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


class RevocationLists:
    """The lists in one file. Safe to use from several threads.

    Args:
        path: of the file, PEM.
        clock: monotonic seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._read_at = 0.0
        self._lists: list[x509.CertificateRevocationList] = []

    def read(self) -> list[x509.CertificateRevocationList]:
        """The lists, as they are in the file now.

        Raises:
            UsageError: it cannot be read (``E_FILE``), or holds no list (``E_CERTIFICATE``).
        """
        with self._lock:
            try:
                about = self._path.stat()
                seen = (about.st_mtime_ns, about.st_ino, about.st_size)
                if seen != self._seen or self._clock() - self._read_at >= READ_EVERY_S:
                    if about.st_size > MOST_BYTES:
                        raise UsageError(f"{self._path} has more than {MOST_BYTES >> 20} MiB", code="E_FILE")
                    self._lists = [x509.load_pem_x509_crl(pem) for pem in _LIST.findall(self._path.read_bytes())]
                    self._seen, self._read_at = seen, self._clock()
            except OSError as error:
                text = f"cannot read {self._path}: {error.strerror or error}"
                raise UsageError(text, code="E_FILE", hint="see tls.crl in this node's configuration") from None
            except MALFORMED:
                self._lists = []
            if not self._lists:
                text = f"{self._path} holds no list of revoked certificates (X509 CRL) in PEM form, or one that cannot be read"
                raise UsageError(text, code="E_CERTIFICATE", hint="put the lists of your peers' authorities into it")
            return self._lists

    def check(
        self, peer: str, chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate], now: datetime
    ) -> None:
        """Refuse a peer one of whose certificates is revoked.

        Args:
            peer: whose they are.
            chain: its certificate, and intermediate ones.
            authorities: who may vouch for it.
            now: UTC.

        Raises:
            PolicyError: one is revoked (``E_REVOKED``); or the list of its authority is too old, not signed by it, or the file
                cannot be read (``E_CRL``).
        """
        try:
            lists = self.read()
        except UsageError as error:
            raise self._unusable(peer, error.message) from None
        for certificate in chain:
            named = [each for each in lists if each.issuer == certificate.issuer]
            issuers = [each for each in (*authorities, *chain) if each.subject == certificate.issuer]
            signed = [each for each in named if any(_is_signed(each, issuer) for issuer in issuers)]  # names may be the same
            if named and not signed:
                raise self._unusable(peer, f"the authority of {peer} has not signed the list that names it")
            for each in signed:
                revoked = each.get_revoked_certificate_by_serial_number(certificate.serial_number)
                if revoked is not None:
                    day = f"{revoked.revocation_date_utc:%Y-%m-%d}"
                    text = f"the certificate of {peer} was revoked by its authority on {day}"
                    hint = f"{peer}'s owner needs a new certificate, and to tell you why the old one was revoked"
                    raise PolicyError(text, code="E_REVOKED", hint=hint, for_peer=text)
            due = [each.next_update_utc for each in signed if each.next_update_utc]
            if due and now >= max(due):
                promised = f"the next list of the authority of {peer} was due on {max(due):%Y-%m-%d %H:%M} UTC"
                raise self._unusable(peer, promised)

    def _unusable(self, peer: str, what: str) -> PolicyError:
        text = f"nobody knows whether the certificate of {peer} is revoked: {what}"
        hint = f"fetch the authority's newest list, and put it into {self._path}: the node reads it at once"
        return PolicyError(text, code="E_CRL", hint=hint, for_peer="its list of revoked certificates is too old, or unusable")


def _is_signed(each: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    key = issuer.public_key()
    return isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)) and each.is_signature_valid(key)
