"""What an authority signs, and for whom."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vfl_node.errors import UsageError
from vfl_node.transport.authority import sign


def test_the_certificate_holds_what_it_should(certificates) -> None:
    leaf = x509.load_pem_x509_certificate(certificates.good("lab").certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://trial/party/lab"]
    assert names.get_values_for_type(x509.DNSName) == ["lab.trial.vfl"]
    assert len(list(names)) == 2
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_agrees(certificates, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.authority)
    (tmp_path / "node.crt").write_bytes(certificates.good("lab").certificate)
    for purpose in ("sslclient", "sslserver"):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", "node.crt"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def request(names: list[x509.GeneralName], key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


URI = x509.UniformResourceIdentifier("spiffe://trial/party/lab")


DNS = x509.DNSName("lab.trial.vfl")


def test_nothing_but_key_and_names_is_taken_from_a_request(certificates) -> None:
    signed = x509.load_pem_x509_certificate(sign(certificates.authority, certificates.authority_key, request([URI, DNS])))
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    "names",
    [
        [URI],
        [DNS],
        [URI, DNS, x509.DNSName("clinic.trial.vfl")],
        [URI, DNS, x509.UniformResourceIdentifier("spiffe://trial/party/clinic")],
        [URI, x509.DNSName("clinic.trial.vfl")],
        [x509.UniformResourceIdentifier("spiffe://other/party/lab"), x509.DNSName("lab.other.vfl")],
        [x509.UniformResourceIdentifier("spiffe://trial/party/Lab"), x509.DNSName("Lab.trial.vfl")],
    ],
)
def test_a_request_for_other_names_is_not_signed(certificates, names: list[x509.GeneralName]) -> None:
    with pytest.raises(UsageError) as caught:
        sign(certificates.authority, certificates.authority_key, request(names))
    assert caught.value.code == "E_REQUEST"


def test_a_request_that_its_key_did_not_sign_is_refused(certificates) -> None:
    der = bytearray(x509.load_pem_x509_csr(request([URI, DNS])).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    for bad in (forged, b"nothing", request([URI, DNS], ec.generate_private_key(ec.SECP384R1()))):
        with pytest.raises(UsageError) as caught:
            sign(certificates.authority, certificates.authority_key, bad)
        assert caught.value.code == "E_REQUEST"
