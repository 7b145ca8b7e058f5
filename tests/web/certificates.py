"""Files with which the HTTP port of a test speaks https."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vfl_node.transport.credentials import write_private


def make_files(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "board")])
    now = datetime.now(timezone.utc)
    known = [x509.DNSName(name) for name in names] + [x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = folder / "board.crt", folder / "board.key"
    files[0].write_bytes(certificate.public_bytes(pem))
    write_private(files[1], key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files
