"""Each party with an authority of its own: nobody else's can name it, whoever calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.transport.conftest import FEDERATION, PEM, Certificates, Node
from vfl_node.errors import PeerError, UsageError, VflError
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import resolve_paths
from vfl_node.transport.authority import make_key_and_request, sign
from vfl_node.transport.credentials import Credentials, load_credentials

Serve = Callable[..., Node]


class Parties:
    """Authorities of clinic, lab and bank, and what each of them signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = {name: Certificates(folder / name) for name in ("clinic", "lab", "bank")}
        for name, own in self.made.items():
            (folder / name).mkdir()
            self.pin(name).write_bytes(own.authority)

    def pin(self, name: str) -> Path:
        """The file that the other parties have of a party's authority."""
        return self.folder / f"{name}-ca.crt"

    @property
    def bundle(self) -> bytes:
        """All authorities in one file, none of which is any party's own."""
        return b"".join(own.authority for own in self.made.values())

    def party(self, name: str, *, by: str = "", pins: tuple[str, ...] = (), ca: bytes = b"") -> Credentials:
        """A party with a certificate of its own authority, or of another's, that knows these peers' authorities."""
        signer = self.made[by or name]
        key, request = make_key_and_request(name, FEDERATION)
        files = signer.files(ca or signer.authority, sign(signer.authority, signer.authority_key, request), key)
        peers = dict.fromkeys(("clinic", "lab", "bank")) | {peer: self.pin(peer) for peer in pins}
        del peers[name]
        return load_credentials(files, name=name, federation=FEDERATION, peers=peers)


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties(tmp_path)


def outcome(node: Node, caller: Credentials) -> str:
    """The code with which a caller's conversation fails; empty if it is accepted."""
    try:
        node.dialer(caller, own=caller.name).converse("job-1").close()
    except VflError as error:
        return error.code
    return ""


def test_another_partys_authority_cannot_name_a_caller(parties: Parties, serve: Serve) -> None:
    """It can where the settings say nothing but a bundle of authorities."""
    true, forged = parties.party("lab", pins=("clinic",)), parties.party("lab", by="bank", pins=("clinic",))
    careless = serve(parties.party("clinic", ca=parties.bundle))
    assert [outcome(careless, caller) for caller in (true, forged)] == ["", ""]
    careful = serve(parties.party("clinic", pins=("lab", "bank")))
    assert [outcome(careful, caller) for caller in (true, forged)] == ["", "E_IDENTITY"]
    with pytest.raises(PeerError, match="lab is not signed by the authority that clinic has for lab"):
        careful.dialer(forged).link()
    half = serve(parties.party("clinic", pins=("bank",), ca=parties.made["clinic"].authority))
    assert outcome(half, forged) == "E_IDENTITY"  # bank's authority vouches for bank, and lab has none but clinic's


def test_another_partys_authority_cannot_name_who_answers(parties: Parties, serve: Serve) -> None:
    forged = serve(parties.party("clinic", by="bank", pins=("lab",)))
    assert outcome(forged, parties.party("lab", ca=parties.bundle)) == ""
    with pytest.raises(PeerError, match="not signed by an authority that this node trusts"):
        forged.dialer(parties.party("lab", pins=("clinic", "bank"))).link()


def test_an_authority_that_is_taken_away_or_replaced_holds_from_the_next_call_on(parties: Parties, serve: Serve) -> None:
    node, lab = serve(parties.party("clinic", pins=("lab", "bank"))), parties.party("lab", pins=("clinic",))
    assert outcome(node, lab) == ""
    kept = parties.pin("lab").read_bytes()
    for replaced in (parties.made["bank"].authority, b"", b"no certificate"):
        parties.pin("lab").write_bytes(replaced)
        assert outcome(node, lab) in ("E_IDENTITY", "E_UNREACHABLE")
    parties.pin("lab").unlink()
    assert outcome(node, lab) == "E_UNREACHABLE"  # nobody whom this node knows has signed it: the handshake fails
    parties.pin("lab").write_bytes(kept)
    assert outcome(node, lab) == ""


def test_without_a_peers_authority_nobody_is_dialled_whatever_else_the_machine_trusts(
    parties: Parties, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC takes empty roots for the machine's own. Control: with the authority's file there the same party is reached."""
    forged = serve(parties.party("clinic", by="bank", pins=("lab",)))
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(parties.pin("bank")))
    lab = parties.party("lab", pins=("clinic",))
    for said in (b"", b"no certificate", None):
        parties.pin("clinic").unlink(missing_ok=True)
        if said is not None:
            parties.pin("clinic").write_bytes(said)
        with pytest.raises(PeerError, match="nobody vouches for clinic") as caught:
            forged.dialer(lab).converse("job-1")
        assert caught.value.code == "E_IDENTITY"
    parties.pin("clinic").write_bytes(parties.made["bank"].authority)
    assert outcome(forged, lab) == ""


@pytest.mark.parametrize("tail", [b"\0", b"-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n"])
def test_text_around_one_partys_authority_does_not_cut_off_the_others(parties: Parties, serve: Serve, tail: bytes) -> None:
    """gRPC stops reading authorities there."""
    parties.pin("bank").write_bytes(parties.made["bank"].authority + tail)
    node = serve(parties.party("clinic", pins=("bank", "lab")))
    assert outcome(node, parties.party("lab", pins=("clinic",))) == ""


def test_own_files_that_are_half_replaced_leave_peers_their_authorities_of_now(parties: Parties) -> None:
    clinic = parties.party("clinic", pins=("lab",))
    clinic.files.certificate.write_bytes(b"half")
    parties.pin("lab").unlink()
    now = clinic.current()
    assert (now.certificate, now.roots_of("lab")) == (clinic.certificate, b"")
    assert now.roots == clinic.authority


def make_authorities() -> tuple[bytes, bytes, bytes]:
    """A root, an authority that it has signed, and the key of that one: PEM."""
    now, keys = datetime.now(timezone.utc), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    usage = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False) | {"key_cert_sign": True, "crl_sign": True}
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("root", "issuing")]
    made = [
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(names[0])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=length), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{FEDERATION}")]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()), critical=False)
        .sign(keys[0], hashes.SHA256())
        .public_bytes(PEM)
        for name, key, length in zip(names, keys, (1, 0), strict=True)
    ]
    return made[0], made[1], keys[1].private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def test_a_certificate_by_way_of_an_intermediate_authority_is_its_partys(parties: Parties, serve: Serve) -> None:
    """As a bank's own authority issues them."""
    root, issuing, secret = make_authorities()
    key, request = make_key_and_request("lab", FEDERATION)
    files = parties.made["lab"].files(root, sign(issuing, secret, request) + issuing, key)
    lab = load_credentials(files, name="lab", federation=FEDERATION, peers={"clinic": parties.pin("clinic")})
    parties.pin("lab").write_bytes(root)
    node = serve(parties.party("clinic", pins=("lab", "bank")))
    assert outcome(node, lab) == ""
    parties.pin("lab").write_bytes(parties.made["lab"].authority)
    assert outcome(node, lab) == "E_UNREACHABLE"


def test_a_bundle_that_can_name_anybody_is_warned_of(parties: Parties) -> None:
    assert parties.party("clinic").warnings == ()
    assert parties.party("clinic", ca=parties.bundle, pins=("lab", "bank")).warnings == ()
    (warning,) = parties.party("clinic", ca=parties.bundle, pins=("lab",)).warnings
    assert "has 3 authorities, and each of them can sign a certificate of bank: set peers.NAME.authority" in warning


def test_an_authority_that_cannot_be_read_is_named_when_the_node_starts(parties: Parties) -> None:
    parties.pin("lab").write_bytes(b"no certificate")
    with pytest.raises(UsageError, match=r"lab-ca\.crt holds no certificate") as caught:
        parties.party("clinic", pins=("lab",))
    assert caught.value.code == "E_CERTIFICATE"
    parties.pin("lab").unlink()
    with pytest.raises(UsageError, match=r"cannot read .*lab-ca\.crt") as caught:
        parties.party("clinic", pins=("lab",))
    assert caught.value.code == "E_FILE"


def test_settings_name_the_file_relative_to_themselves() -> None:
    given = {"name": "clinic", "role": "active", "insecure_loopback": True, "listen": "127.0.0.1:0"}
    settings = Settings.model_validate({**given, "peers": {"lab": {"authority": "lab-ca.crt"}, "bank": {}}})
    resolved = resolve_paths(settings, Path("/etc/vfl"))
    assert resolved.authorities == {"lab": Path("/etc/vfl/lab-ca.crt"), "bank": None}
    with pytest.raises(ValueError, match="a relayed peer shows this node no certificate"):
        Settings.model_validate(
            {**given, "role": "passive", "peers": {"lab": {}, "insurer": {"relayed": True, "authority": "x.crt"}}}
        )
