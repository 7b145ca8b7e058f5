"""A party's own TLS material: what is loaded, and what is refused."""

from __future__ import annotations

import base64
import codecs
import contextlib
import os
import shutil
import subprocess
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from vfl_node.errors import PolicyError, UsageError
from vfl_node.settings.node import Tls
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.transport.credentials import load_credentials, read_secret, write_private
from vfl_node.transport.identity import party_of

NOW = datetime.now(timezone.utc)


OWN_GROUP = os.getegid()
OTHER_GROUP = max(os.getgroups(), default=0) + 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def pem(key: Any) -> bytes:
    """A private key as a file has it."""
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def load(certificates, *, name: str = "lab", key: bytes | None = None, certificate: bytes | None = None, **changes):
    """What :func:`load_credentials` makes of a good party's files after ``changes``."""
    good_key, request = make_key_and_request(changes.pop("requested", "lab"), changes.pop("federation", "trial"))
    signed = sign(certificates.authority, certificates.authority_key, request, days=changes.pop("days", 365))
    files = certificates.files(changes.pop("ca", certificates.authority), certificate or signed, key or good_key)
    return load_credentials(files, name=name, federation="trial", **changes)


def test_a_signed_request_loads_without_warnings(certificates) -> None:
    credentials = load(certificates)
    assert credentials.warnings == ()
    assert "PRIVATE" not in repr(credentials)


RECIPE = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=authority" \\
  -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=lab" -keyout node.key -out node.csr
cat > names <<END
subjectAltName = URI:spiffe://trial/party/lab, DNS:lab.trial.vfl
extendedKeyUsage = clientAuth, serverAuth
authorityKeyIdentifier = keyid
END
openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile names -out node.crt
chmod 600 node.key
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_certificates_made_with_openssl_are_accepted(tmp_path: Path) -> None:
    """An organisation may use its own tools: the recipe in docs/explanations/identity.md."""
    subprocess.run(["sh", "-ec", RECIPE], cwd=tmp_path, check=True, capture_output=True)
    files = Tls(ca=tmp_path / "ca.crt", certificate=tmp_path / "node.crt", key=tmp_path / "node.key")
    load_credentials(files, name="lab", federation="trial")
    page = (Path(__file__).parents[2] / "docs" / "explanations" / "identity.md").read_text()
    assert RECIPE.strip() in page


@pytest.mark.parametrize("usage", ["", "keyCertSign", "cRLSign"])
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_an_authority_needs_no_key_usage_but_may_not_have_another(tmp_path: Path, usage: str) -> None:
    """``openssl req -x509`` alone writes none; TLS itself takes such an authority."""
    recipe = RECIPE.replace("-addext keyUsage=critical,keyCertSign,cRLSign", f"-addext keyUsage={usage}" if usage else "")
    subprocess.run(["sh", "-ec", recipe], cwd=tmp_path, check=True, capture_output=True)
    files = Tls(ca=tmp_path / "ca.crt", certificate=tmp_path / "node.crt", key=tmp_path / "node.key")
    if usage != "cRLSign":
        load_credentials(files, name="lab", federation="trial")
        return
    with pytest.raises(UsageError, match="not vouched for") as caught:
        load_credentials(files, name="lab", federation="trial")
    assert "keyCertSign" in caught.value.hint


def test_a_byte_order_mark_before_a_certificate_or_key_is_passed_over(certificates, serve) -> None:
    files = certificates.good("lab").files
    for path in (files.ca, files.certificate, files.key):
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    marked = load_credentials(files, name="lab", federation="trial")
    serve(certificates.good("clinic")).dialer(marked).converse("job-1").close()


def test_a_coming_expiry_is_warned_about(certificates) -> None:
    (warning,) = load(certificates, days=29).warnings
    assert "expires on" in warning
    assert "in 28 days" in warning
    assert load(certificates, days=31).warnings == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"now": NOW + timedelta(days=366)}, "expired on"),
        ({"now": NOW - timedelta(days=2)}, "is valid only from"),
        ({"name": "clinic"}, "is the certificate of 'lab', and this node is 'clinic'"),
        ({"key": make_key_and_request("lab", "trial")[0]}, "does not belong to the key"),
        ({"ca": make_authority("trial")[0]}, "is not vouched for by the authority"),
        ({"ca": b"nothing"}, "holds no certificate"),
        ({"certificate": b"nothing"}, "holds no certificate"),
        ({"key": b"nothing"}, "is not an unencrypted private key"),
        ({"key": pem(ed25519.Ed25519PrivateKey.generate())}, "of a kind that gRPC does not accept"),
        ({"key": pem(ec.generate_private_key(ec.SECP521R1()))}, "on the curve secp521r1, which gRPC does not accept"),
    ],
)
def test_material_that_cannot_serve_is_refused_with_the_reason(certificates, changes, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        load(certificates, **changes)
    assert caught.value.code == "E_CERTIFICATE"


@pytest.mark.parametrize(
    ("mode", "group"), [(0o400, OTHER_GROUP), (0o600, OTHER_GROUP), (0o440, OWN_GROUP), (0o640, OWN_GROUP)], ids=str
)
@as_root
def test_a_key_of_root_may_be_given_to_a_group_of_this_process(certificates, mode: int, group: int) -> None:
    files = certificates.good("lab").files
    files.key.chmod(mode)
    os.chown(files.key, 0, group)
    load_credentials(files, name="lab", federation="trial")


def test_a_key_may_come_from_the_service_manager(certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificates.good("lab").files
    files.key.chmod(0o440)
    os.chown(files.key, *((54_321, OTHER_GROUP) if os.geteuid() == 0 else (-1, -1)))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(files.key.parent))
    load_credentials(files, name="lab", federation="trial")
    files.key.chmod(0o444)
    with pytest.raises(UsageError, match="can be read by other users"):
        load_credentials(files, name="lab", federation="trial")
    files.key.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(files.key.parent / "elsewhere"))
    if os.geteuid() == 0:
        with pytest.raises(UsageError, match="can be read by other users"):
            load_credentials(files, name="lab", federation="trial")


def test_an_encrypted_key_is_refused(certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
    )
    with pytest.raises(UsageError, match="unencrypted"):
        load(certificates, key=locked)


@pytest.mark.parametrize(
    ("mode", "owner", "group"),
    [
        (0o604, os.geteuid(), OWN_GROUP),
        (0o660, os.geteuid(), OWN_GROUP),
        pytest.param(0o440, 0, OTHER_GROUP, marks=as_root),
        pytest.param(0o640, 54_321, OWN_GROUP, marks=as_root),
        pytest.param(0o444, 0, OWN_GROUP, marks=as_root),
        pytest.param(0o450, 0, OWN_GROUP, marks=as_root),
    ],
)
def test_a_key_open_to_others_is_refused(certificates, mode: int, owner: int, group: int) -> None:
    files = certificates.good("lab").files
    files.key.chmod(mode)
    os.chown(files.key, owner, group)
    with pytest.raises(UsageError) as caught:
        load_credentials(files, name="lab", federation="trial")
    assert caught.value.code == "E_KEY_MODE"
    assert caught.value.hint == f"chmod 600 {files.key}"


def modes_accepted(folder: Path, user: int, groups: list[int]) -> set[tuple[int, int, int]]:
    """(mode, owner, group) of the files of ``folder``, whose names say that, which a process of ``user`` takes as secrets."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            for path in sorted(folder.iterdir()):
                with contextlib.suppress(UsageError):
                    read_secret(path)
                    os.write(writing, f"{path.name}\n".encode())
            status = 0
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as said:
        names = said.read().split()
    assert os.waitpid(child, 0)[1] == 0
    mode, owner, group = zip(*(name.split("-") for name in names), strict=True)
    return set(zip((int(each, 8) for each in mode), map(int, owner), map(int, group), strict=True))


@as_root
def test_of_all_modes_and_owners_those_are_accepted_that_nobody_else_can_read(tmp_path: Path) -> None:
    """As in a container: an ordinary user, with the group of the secrets (Kubernetes: fsGroup) beside its own."""
    user, given, foreign = 10_001, 20_001, 30_001
    modes = [0o400, 0o600, 0o440, 0o640, 0o460, 0o660, 0o450, 0o404, 0o444, 0o604, 0o644, 0o402]
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # a folder of pytest is root's alone
        folder = Path(name)
        folder.chmod(0o755)
        for mode in modes:
            for owner in (user, 0, foreign):
                for group in (given, foreign):
                    path = folder / f"{mode:04o}-{owner}-{group}"
                    path.write_bytes(b"secret")
                    os.chown(path, owner, group)
                    path.chmod(mode)
        accepted = modes_accepted(folder, user, [given])
    own = {(mode, user, group) for mode in (0o400, 0o600) for group in (given, foreign)}
    assert accepted == own | {(mode, 0, given) for mode in (0o440, 0o640)}


def test_a_missing_file_is_named(certificates) -> None:
    files = certificates.good("lab").files
    files.ca.unlink()
    with pytest.raises(UsageError, match=r"ca\.crt: No such file") as caught:
        load_credentials(files, name="lab", federation="trial")
    assert caught.value.code == "E_FILE"


def test_renewed_files_are_taken_and_broken_ones_are_not(certificates) -> None:
    held = certificates.good("lab")
    renewed = certificates.good("lab")
    held.files.certificate.write_bytes(renewed.certificate)
    assert held.current().certificate == held.certificate  # the key is still the old one
    held.files.key.write_bytes(renewed.key)
    assert held.current().certificate == renewed.certificate


def test_a_private_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    write_private(path, b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="exists already"):
        write_private(path, b"other")
    assert path.read_bytes() == b"secret"


def reversioned(pem: bytes) -> bytes:
    """The same certificate of X.509 version 6, which does not exist."""
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    assert der.count(V3) == 1
    return as_pem(der.replace(V3, V3[:-1] + b"\x05"))


def as_pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


V3 = bytes.fromhex("a003020102")  # DER of [0] EXPLICIT INTEGER 2, which stands for version 3


def test_a_certificate_of_a_version_that_is_none_is_a_coded_error(certificates) -> None:
    good = load(certificates).certificate
    with pytest.raises(PolicyError) as peer:
        party_of(reversioned(good), "trial")
    assert peer.value.code == "E_IDENTITY"
    for changes in ({"certificate": reversioned(good)}, {"certificate": good + reversioned(good)}):
        with pytest.raises(UsageError) as own:
            load(certificates, **changes)
        assert own.value.code == "E_CERTIFICATE"
    with pytest.raises(UsageError) as own:
        load(certificates, ca=reversioned(certificates.authority))
    assert own.value.code == "E_CERTIFICATE"
    _, request = make_key_and_request("lab", "trial")
    with pytest.raises(UsageError) as signing:
        sign(reversioned(certificates.authority), certificates.authority_key, request)
    assert signing.value.code == "E_CERTIFICATE"


def test_whatever_byte_of_a_certificate_is_another_the_error_is_coded(certificates) -> None:
    """A peer's, its own, its authority's, a request: read, or refused by code; never an error of the library's own."""
    key, request = make_key_and_request("lab", "trial")
    good = sign(certificates.authority, certificates.authority_key, request)
    der = x509.load_pem_x509_certificate(good).public_bytes(serialization.Encoding.DER)
    authority = x509.load_pem_x509_certificate(certificates.authority).public_bytes(serialization.Encoding.DER)
    refused = 0
    for place in range(len(der)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(der)
            changed[place] ^= flip
            try:
                party_of(as_pem(bytes(changed)), "trial")
            except PolicyError:
                refused += 1
    assert refused > 500
    for whose, size in (("certificate", len(der)), ("ca", len(authority))):
        for place in range(size):
            changed = bytearray(der if whose == "certificate" else authority)
            changed[place] ^= 0x81
            with contextlib.suppress(UsageError):
                load_credentials(
                    certificates.files(
                        as_pem(bytes(changed)) if whose == "ca" else certificates.authority,
                        as_pem(bytes(changed)) if whose == "certificate" else good,
                        key,
                    ),
                    name="lab",
                    federation="trial",
                )
