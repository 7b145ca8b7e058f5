"""Checks 1 to 3: the settings, the state folder, and this party's keys and certificates."""

from __future__ import annotations

import fcntl
import os
import re
import statistics
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from vfl_node.engines.ray.checks import check_engine
from vfl_node.errors import UsageError, VflError
from vfl_node.node.doctor.finding import Finding, fail, failed_by, ok, skip, warn
from vfl_node.settings.connection import Tls
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import Credentials, load_credentials, read_secret
from vfl_node.transport.identity import WARN_BEFORE
from vfl_node.transport.revocations import RevocationLists
from vfl_node.trust.keys import own_card, read_signing_key
from vfl_node.trust.tokens import Tokens

WRITES, WRITE_BYTES = 20, 4 << 10
SLOW_WRITE_MS = 50.0
"""So many blocks of this size are written, and a durable write that takes longer than this is slow."""

REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.glusterfs", "afs", "ceph", "lustre")
"""File systems on another machine, where locks and SQLite's shared memory may not work."""

_MOUNTS = Path("/proc/self/mountinfo")


def check_settings(path: Path) -> tuple[Settings | None, Finding]:
    """Check 1: the settings, or None where they cannot be used, and what was found. Raises UsageError if there is no file."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", code="E_FILE", hint="name the configuration of a node by --config")
    try:
        settings = load_settings(path)
        check_engine(settings.engine)
    except VflError as error:
        return None, failed_by(1, error, "correct the file at this place")
    try:
        people = len(Tokens(settings.state_dir).tokens()) if (settings.state_dir / "tokens").exists() else 0
    except VflError as error:
        return settings, failed_by(1, error, "restore state/tokens from a backup, or remove it")
    preset, connected = settings.rules.preset, len(settings.connected)
    text = f"{settings.name} is {settings.role}, preset {preset}, peers: {connected}, people with tokens: {people}"
    figures = {"party": settings.name, "role": settings.role, "preset": preset, "peers": connected, "people": people}
    if not settings.peers:
        return settings, warn(1, f"{text}; without a peer no job can run", "pair with one: vfl-node invite", **figures)
    return settings, ok(1, text, **figures)


def check_state(settings: Settings) -> Finding:
    """Check 2: whether keys and state are private, on one disk of this machine that locks and writes quickly enough."""
    if settings.tls:
        for secret in (settings.tls.key, settings.tls.signing_key):
            if secret.exists():
                read_secret(secret)
    folder = settings.state_dir
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    if there == folder:
        about = folder.stat()
        if about.st_uid != os.geteuid() and os.geteuid():
            return fail(2, f"{folder} belongs to another user", f"run as the user of the node, or chown {folder}")
        if about.st_mode & 0o077:
            return fail(2, f"other users can enter {folder} (mode {about.st_mode & 0o777:04o})", f"chmod 700 {folder}")
        apart = [path for path in folder.iterdir() if path.is_dir() and path.stat().st_dev != about.st_dev]
        if apart:
            return fail(2, f"{apart[0]} lies on another file system than {folder}", "keep all of state_dir on one file system")
    kind = file_system(there)
    if kind in REMOTE:
        return fail(2, f"{there} lies on another machine ({kind})", "set state_dir to a disk of this machine")
    try:
        took_ms = _write_ms(there)
    except OSError as error:
        return fail(2, f"{there} cannot be written or locked: {error.strerror}", "see to its owner, its mode and its disk")
    absent = "" if there == folder else f"{folder} is not there yet; "
    text = f"{absent}{there} locks, and a durable write takes {took_ms:.1f} ms"
    if took_ms > SLOW_WRITE_MS:
        return warn(2, text, "put state_dir on a quicker disk: each step of a job waits for it", write_ms=took_ms)
    return ok(2, text, write_ms=took_ms, file_system=kind)


def _write_ms(folder: Path) -> float:
    """Median time of a durable write, in ms. Raises OSError, also if a second lock is not refused."""
    took = []
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file, Path(file.name).open("rb") as other:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise OSError(0, "two processes can lock one file")
        except BlockingIOError:
            pass
        for _ in range(WRITES):
            began = time.monotonic()
            file.write(bytes(WRITE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            took.append(1000 * (time.monotonic() - began))
    return statistics.median(took)


def file_system(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Name of the kind of file system that ``folder`` lies on; empty where the system does not tell."""
    found, longest = "", -1
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4]))
        if folder.resolve().is_relative_to(point) and len(point.parts) >= longest:
            found, longest = right.split()[0], len(point.parts)
    return found


def check_certificate(settings: Settings) -> tuple[Credentials | None, Finding]:
    """Check 3: this party's TLS material, None where it cannot be used or there is none, and what was found."""
    files = settings.tls
    if files is None:
        return None, skip(3, "this node speaks plaintext between loopback addresses, and has no certificate")
    try:
        credentials = load_credentials(files, name=settings.name, federation=settings.federation, peers=settings.authorities)
        serial = _card_serial(files, credentials)
    except VflError as error:
        return None, failed_by(3, error, "vfl-node renew --config FILE makes a new certificate")
    now = datetime.now(timezone.utc)
    leaf = x509.load_pem_x509_certificates(credentials.certificate)[0]
    authority = x509.load_pem_x509_certificates(credentials.authority)[0]
    days, authority_days = ((each.not_valid_after_utc - now).days for each in (leaf, authority))
    figures = {"days": days, "authority_days": authority_days, "key": _kind(leaf), "card": serial}
    text = f"the certificate of {settings.name} ({_kind(leaf)}) holds for {days} days, its authority for {authority_days}"
    if now + WARN_BEFORE > min(leaf.not_valid_after_utc, authority.not_valid_after_utc):
        return credentials, warn(3, text, "renew it: vfl-node renew, or vfl-node renew --authority", **figures)
    if late := _late_lists(files, now):
        return credentials, fail(3, late, f"fetch the authority's newest list, and put it into {files.crl}", **figures)
    warnings = [*credentials.warnings, *_unnamed(authority)]
    if warnings:
        return credentials, warn(3, f"{text}; {warnings[0]}", "see docs/explanations/identity.md", **figures)
    return credentials, ok(3, text + (f"; card {serial}" if serial else ""), **figures)


def _card_serial(files: Tls, credentials: Credentials) -> int | None:
    """Number of this party's card, which must be whole; None where it has none. Raises VflError."""
    if files.mode == "shared" or not files.signing_key.exists():
        return None
    read_signing_key(files)
    return own_card(credentials).card.serial


def _late_lists(files: Tls, now: datetime) -> str:
    """That a list of revoked certificates is too old; empty if none is. Raises UsageError."""
    lists = RevocationLists(files.crl).read() if files.crl else []
    due = [each.next_update_utc for each in lists if each.next_update_utc and each.next_update_utc <= now]
    return f"a list in {files.crl} was to be replaced on {min(due):%Y-%m-%d %H:%M} UTC" if due else ""


def _unnamed(authority: x509.Certificate) -> list[str]:
    """What other programs may not accept about an authority's certificate."""
    try:
        authority.extensions.get_extension_for_class(x509.KeyUsage)
    except x509.ExtensionNotFound:
        return ["its authority's certificate has no key usage, which other programs than vfl-node may refuse"]
    return []


def _kind(certificate: x509.Certificate) -> str:
    """The kind of key of a certificate."""
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA {key.curve.name}"
    return f"RSA {getattr(key, 'key_size', '')}".strip()
