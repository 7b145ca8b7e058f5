"""Lists of certificates that authorities outside have revoked: who is refused, whose streams end, and when nobody can know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.transport.conftest import FEDERATION, METHODS, PEM, Certificates, Node, open_stream
from tests.transport.conftest import serve as serve
from tests.trust.test_new_authority_nodes import LONG, SLOW, Paired
from vfl_node.errors import PolicyError, UsageError, VflError
from vfl_node.node.setup import init
from vfl_node.settings.node import Tls
from vfl_node.transport.authority import make_authority, sign
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.revocations import READ_EVERY_S, RevocationLists

DAY = timedelta(days=1)


def make_list(
    authority: bytes, key: bytes, revoked: Iterable[x509.Certificate] = (), *, days: float = 7, since: datetime | None = None
) -> bytes:
    """A list of an authority, PEM, which promises the next one after so many days."""
    since = since or datetime.now(timezone.utc) - DAY
    builder = x509.CertificateRevocationListBuilder(
        issuer_name=x509.load_pem_x509_certificate(authority).subject, last_update=since, next_update=since + days * DAY
    )
    for each in revoked:
        entry = x509.RevokedCertificateBuilder(each.serial_number, since)
        builder = builder.add_revoked_certificate(entry.build())
    signer = serialization.load_pem_private_key(key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    return builder.sign(signer, hashes.SHA256()).public_bytes(PEM)


class Pair:
    """A clinic that answers and a lab that calls; each has the lists of one authority in its file."""

    def __init__(self, folder: Path) -> None:
        self.made, self.lists = Certificates(folder), folder / "lists.pem"
        self.publish()
        self.clinic, self.lab = self.careful("clinic", "lab"), self.careful("lab", "clinic")

    def careful(self, name: str, peer: str) -> Credentials:
        files = self.made.good(name).files.model_copy(update={"mode": "outside", "crl": self.lists})
        pin = self.lists.with_name("authority.crt")
        pin.write_bytes(self.made.authority)
        return load_credentials(files, name=name, federation=FEDERATION, peers={peer: pin})

    def publish(self, *revoked: Credentials, days: float = 7) -> None:
        leaves = [x509.load_pem_x509_certificate(each.certificate) for each in revoked]
        self.lists.write_bytes(make_list(self.made.authority, self.made.authority_key, leaves, days=days))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def outcome(node: Node, caller: Credentials, method: str = "converse") -> str:
    """The code with which a caller's stream fails; empty if it is accepted."""
    try:
        open_stream(node.dialer(caller, own=caller.name), method).close()
    except VflError as error:
        return error.code
    return ""


def test_who_calls_with_a_revoked_certificate_is_refused_from_the_next_call_on(pair: Pair, serve: Callable[..., Node]) -> None:
    """Control: a clinic without lists takes it."""
    careful, careless = serve(pair.clinic), serve(pair.made.good("clinic"))
    caller = pair.made.unchecked("lab", pair.lab.certificate, pair.lab.key)
    assert [outcome(node, caller) for node in (careful, careless)] == ["", ""]
    pair.publish(pair.lab)
    for method in METHODS:
        assert [outcome(node, caller, method) for node in (careful, careless)] == ["E_REVOKED", ""]


def test_who_answers_with_a_revoked_certificate_is_dialled_no_more(pair: Pair, serve: Callable[..., Node]) -> None:
    """Control: a lab without lists dials it."""
    node, careless = serve(pair.made.unchecked("clinic", pair.clinic.certificate, pair.clinic.key)), pair.made.good("lab")
    assert [outcome(node, caller) for caller in (pair.lab, careless)] == ["", ""]
    pair.publish(pair.clinic)
    assert [outcome(node, caller) for caller in (pair.lab, careless)] == ["E_REVOKED", ""]


@pytest.mark.parametrize("spoil", ["old", "gone", "none", "forged"])
def test_where_nobody_can_know_no_new_stream_begins(pair: Pair, serve: Callable[..., Node], spoil: str) -> None:
    node, caller = serve(pair.clinic), pair.made.unchecked("lab", pair.lab.certificate, pair.lab.key)
    assert outcome(node, caller) == ""
    if spoil == "old":
        pair.publish(days=0.5)
    elif spoil == "gone":
        pair.lists.unlink()
    elif spoil == "none":
        pair.lists.write_bytes(b"soon")
    else:
        _, other = make_authority(FEDERATION)
        pair.lists.write_bytes(make_list(pair.made.authority, other))
    assert outcome(node, caller) == "E_CRL"
    leaf = [x509.load_pem_x509_certificate(pair.lab.certificate)]
    with pytest.raises(PolicyError, match="nobody knows whether the certificate of lab is revoked") as caught:
        pair.clinic.current().check_peer("lab", leaf)
    assert str(pair.lists) in caught.value.hint
    assert str(pair.lists) not in caught.value.for_peer
    pair.publish()
    assert outcome(node, caller) == ""


def test_an_old_list_still_says_who_was_revoked(pair: Pair) -> None:
    pair.publish(pair.lab, days=0.5)
    with pytest.raises(PolicyError) as caught:
        pair.clinic.check_peer("lab", [x509.load_pem_x509_certificate(pair.lab.certificate)])
    assert caught.value.code == "E_REVOKED"


def test_lists_are_read_when_the_file_changes_and_every_hour(tmp_path: Path) -> None:
    now, path = [0.0], tmp_path / "lists.pem"
    lists = RevocationLists(path, lambda: now[0])
    with pytest.raises(UsageError, match="cannot read"):
        lists.read()
    first, second = make_authority("one"), make_authority("two")
    path.write_bytes(make_list(*first))
    kept = lists.read()
    assert lists.read() is kept
    now[0] = READ_EVERY_S
    assert lists.read() is not kept
    path.write_bytes(make_list(*first) + b"text\n" + make_list(*second))
    assert len(lists.read()) == 2


def test_a_party_that_is_its_own_authority_has_no_lists() -> None:
    with pytest.raises(ValueError, match="crl is for authorities outside"):
        Tls(mode="own", ca=Path("a"), certificate=Path("b"), key=Path("c"), crl=Path("d"))


class Outside(Paired):
    """Both have an authority of their organisation, and the lists of both authorities."""

    def __init__(self, folder: Path, trial: Any) -> None:
        super().__init__(folder, trial)
        self.authorities: dict[str, tuple[bytes, bytes]] = {}
        for name, role in self.roles.items():
            init(name, role, folder / f"outside-{name}", mode="outside")  # type: ignore[arg-type]
            made, home = folder / f"outside-{name}", folder / name
            self.authorities[name] = make_authority(FEDERATION)
            keys = home / "keys"
            for path in keys.iterdir():
                path.unlink()
            for path in (made / "keys").iterdir():
                path.rename(keys / path.name)
            (keys / "ca.crt").write_bytes(self.authorities[name][0])
            (keys / "node.crt").write_bytes(sign(*self.authorities[name], (keys / "node.csr").read_bytes()))
            tls = yaml.safe_load((made / "node.yaml").read_text())["tls"] | {"crl": "lists.pem"}
            self.configure(name, tls=tls)
        self.publish()

    def leaf(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.folder / name / "keys" / "node.crt").read_bytes())

    def publish(self, *revoked: str) -> None:
        lists = [make_list(*made, [self.leaf(name)] if name in revoked else []) for name, made in self.authorities.items()]
        for name in self.roles:
            (self.folder / name / "lists.pem").write_bytes(b"".join(lists))


@pytest.fixture
def nodes(trial: Any, tmp_path: Path) -> Iterator[Outside]:
    federation = Outside(tmp_path, trial)
    federation.failpoints["lab"] = SLOW
    federation.start_both()
    yield federation
    federation.end_all()


def test_running_nodes_cut_off_a_peer_whose_certificate_is_revoked_and_take_up_its_next(nodes: Outside) -> None:
    job = nodes.submit(LONG)
    nodes.wait_until(lambda: nodes.in_training("clinic", job))
    nodes.publish("lab")
    nodes.wait_until(lambda: not nodes.client("clinic").health()["peers"]["lab"]["online"], 60)
    cause = "the certificate of lab was revoked by its authority"
    nodes.wait_until(lambda: cause in nodes.client("lab").health()["peers"]["clinic"]["cause"], 60)
    nodes.wait_until(lambda: cause in nodes.log("clinic"), 60)
    assert nodes.view("clinic", job)["state"] != "done"
    request = (nodes.folder / "lab" / "keys" / "node.csr").read_bytes()
    nodes.kill("lab", 15)
    (nodes.folder / "lab" / "keys" / "node.crt").write_bytes(sign(*nodes.authorities["lab"], request))
    nodes.failpoints["lab"] = SLOW
    nodes.start("lab")
    nodes.wait_until(lambda: nodes.connected("lab") and nodes.connected("clinic"), 90)
    nodes.wait_until(lambda: nodes.in_training("clinic", job), 90)
    nodes.client("lab").cancel(job)
