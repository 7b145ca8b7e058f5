"""What pairing leaves on disk: keys, who was met, who is a peer; and what happens where a file is damaged, old or double."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import structlog
from cryptography import x509

from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.node.renewal import Renewal
from vfl_node.node.setup import init
from vfl_node.process.files import write_checked
from vfl_node.settings.connection import Authorities, Peer, Roster
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.transport.authority import make_authority, sign
from vfl_node.transport.credentials import Credentials, load_credentials, write_private
from vfl_node.trust import pending
from vfl_node.trust.cards import SignedCard, read_card
from vfl_node.trust.keys import LEAF_DAYS, own_card, renew
from vfl_node.trust.succession import give_up, renew_authority

WORDS = ("acorn", "zebra", "acorn", "zebra")


class Own:
    """A party's folder as `vfl-node init` leaves it."""

    def __init__(self, name: str, folder: Path) -> None:
        init(name, "active" if name == "clinic" else "passive", folder)
        self.config = folder / "node.yaml"

    @property
    def settings(self) -> Settings:
        return load_settings(self.config)

    @property
    def credentials(self) -> Credentials:
        settings = self.settings
        assert settings.tls
        return load_credentials(settings.tls, name=settings.name, federation=settings.federation, peers=settings.authorities)

    @property
    def card(self) -> SignedCard:
        return own_card(self.credentials)


@pytest.fixture
def clinic(tmp_path: Path) -> Own:
    return Own("clinic", tmp_path / "clinic")


@pytest.fixture
def lab(tmp_path: Path) -> Own:
    return Own("lab", tmp_path / "lab")


def meet(clinic: Own, lab: Own) -> pending.Pending:
    return pending.keep(clinic.settings, lab.card, "lab.example:7444", "passive", WORDS)


def test_who_was_met_becomes_a_peer_and_goes_again(clinic: Own, lab: Own) -> None:
    met = meet(clinic, lab)
    assert pending.read(clinic.settings, "lab") == met
    pending.accept(clinic.settings, pending.read(clinic.settings, "lab"))
    settings = clinic.settings
    peer = settings.peers["lab"]
    assert (peer.address, peer.words_compared) == ("lab.example:7444", True)
    assert clinic.credentials.roots_of("lab") == lab.credentials.authority
    assert pending.card_of(settings, "lab") == lab.card
    with pytest.raises(UsageError, match="has met no lab"):
        pending.read(settings, "lab")
    with pytest.raises(PolicyError) as caught:
        meet(clinic, lab)
    assert caught.value.code == "E_EXISTS"
    pending.forget(settings, "lab")
    assert clinic.settings.peers == {}
    assert list(settings.peers_dir.iterdir()) == []
    meet(clinic, lab)


def test_a_party_with_this_nodes_name_is_no_peer(clinic: Own, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="own name"):
        meet(clinic, Own("clinic", tmp_path / "other"))


def test_words_are_kept_for_a_day_and_not_if_damaged(clinic: Own, lab: Own) -> None:
    meet(clinic, lab)
    path = clinic.settings.state_dir / "pending" / "lab"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StateError) as caught:
        pending.read(clinic.settings, "lab")
    assert caught.value.code == "E_STATE_CORRUPT"
    met = meet(clinic, lab)
    old = met.model_copy(update={"at": met.at - timedelta(days=2)})
    write_checked(path, old.model_dump_json().encode())
    with pytest.raises(UsageError, match="too long ago"):
        pending.read(clinic.settings, "lab")
    assert not path.exists()


def test_a_pinned_authority_that_was_exchanged_is_noticed(clinic: Own, lab: Own, tmp_path: Path) -> None:
    pending.accept(clinic.settings, meet(clinic, lab))
    pinned = clinic.settings.peers["lab"].authority
    assert pinned
    pinned.write_bytes(Own("bank", tmp_path / "bank").credentials.authority)
    with pytest.raises(PolicyError) as caught:
        pending.card_of(clinic.settings, "lab")
    assert caught.value.code == "E_CARD"


def test_a_peer_in_two_places_is_refused(clinic: Own, lab: Own) -> None:
    pending.accept(clinic.settings, meet(clinic, lab))
    text = clinic.config.read_text()
    clinic.config.write_text(text.replace("peers: {}", "peers: {lab: {authority: lab.crt}}"))
    with pytest.raises(UsageError, match=r"peers\.lab stands in the configuration, and pairing wrote") as caught:
        _ = clinic.settings
    assert caught.value.code == "E_CONFIG"
    clinic.config.write_text(text)
    (clinic.config.parent / "peers" / "LAB.yaml").write_text("address: a:1\n")
    with pytest.raises(UsageError, match="no party's name"):
        _ = clinic.settings


def test_where_nodes_pair_a_peer_has_an_authority(clinic: Own) -> None:
    clinic.config.with_name("policy.yaml").write_text("partners: {lab: {tables: [visits]}}\n")  # whom it has not met yet
    assert clinic.settings.rules.limits_of("lab").tables == ("visits",)
    text = clinic.config.read_text()
    clinic.config.write_text(text.replace("peers: {}", "peers: {lab: {}}"))
    with pytest.raises(UsageError, match=r"peers\.lab has no authority"):
        _ = clinic.settings


def test_a_renewed_certificate_has_the_same_key_and_is_verified_by_the_pinned_authority(clinic: Own, lab: Own) -> None:
    pending.accept(lab.settings, pending.keep(lab.settings, clinic.card, None, "active", WORDS))
    before = x509.load_pem_x509_certificate(clinic.credentials.certificate)
    until = renew(clinic.settings, now=datetime.now(timezone.utc) + timedelta(minutes=30))
    after = x509.load_pem_x509_certificate(clinic.credentials.certificate)
    assert (after.public_key(), after.not_valid_after_utc) == (before.public_key(), until)
    assert after.serial_number != before.serial_number
    lab.credentials.check_peer("clinic", [after])


def test_a_key_that_is_not_the_authoritys_renews_nothing(clinic: Own, lab: Own) -> None:
    files, others = clinic.settings.tls, lab.settings.tls
    assert files
    assert others
    before = files.certificate.read_bytes()
    files.authority_key.write_bytes(others.authority_key.read_bytes())
    with pytest.raises(UsageError, match="is not the key of") as caught:
        renew(clinic.settings)
    assert (caught.value.code, files.certificate.read_bytes()) == ("E_CERTIFICATE", before)


def test_a_certificate_that_has_expired_says_how_its_party_renews_it(clinic: Own) -> None:
    settings, later = clinic.settings, datetime.now(timezone.utc) + timedelta(days=LEAF_DAYS + 1)
    assert settings.tls
    for mode, told in (("own", f"vfl-node renew --config FILE, which needs {settings.tls.authority_key}"), ("outside", "ask")):
        files = settings.tls.model_copy(update={"mode": mode})
        with pytest.raises(UsageError, match="expired on") as caught:
            load_credentials(files, name="clinic", federation=settings.federation, now=later)
        assert caught.value.code == "E_CERTIFICATE"
        assert caught.value.hint.startswith(told)


@pytest.mark.parametrize("signs", [renew, renew_authority, give_up])
def test_without_the_authoritys_key_it_is_to_be_brought_back(clinic: Own, signs: Callable[[Settings], object]) -> None:
    files = clinic.settings.tls
    assert files
    key, before = files.authority_key.read_bytes(), files.certificate.read_bytes()
    files.authority_key.unlink()
    with pytest.raises(UsageError) as caught:
        signs(clinic.settings)
    assert caught.value.code == "E_FILE"
    assert str(files.authority_key) in caught.value.message
    assert caught.value.hint.startswith("bring it back there (mode 0600)")
    assert files.certificate.read_bytes() == before
    write_private(files.authority_key, key)
    signs(clinic.settings)


def test_an_owner_who_says_yes_twice_or_to_another_of_that_name_makes_one_peer(clinic: Own, lab: Own, tmp_path: Path) -> None:
    """Settings may have been read before the first yes."""
    early, first = clinic.settings, meet(clinic, lab)
    second = pending.keep(early, Own("lab", tmp_path / "other").card, None, "passive", WORDS)
    with pytest.raises(UsageError, match="another lab was met meanwhile"):
        pending.accept(early, first)
    pending.accept(early, second)
    kept = clinic.credentials.roots_of("lab")
    pending.keep(early, lab.card, None, "passive", WORDS)
    with pytest.raises(PolicyError) as caught:
        pending.accept(early, pending.read(early, "lab"))
    assert (caught.value.code, clinic.credentials.roots_of("lab")) == ("E_EXISTS", kept)


def test_a_node_renews_by_itself_when_a_third_is_left_if_the_authoritys_key_is_here(clinic: Own) -> None:
    settings, now = clinic.settings, datetime.now(timezone.utc)
    assert settings.tls
    renewal, file = Renewal(settings), settings.tls.certificate
    ends, before = now + timedelta(days=LEAF_DAYS), file.read_bytes()
    renewal.renew_if_due(ends, now + timedelta(days=50))
    assert file.read_bytes() == before
    key = settings.tls.authority_key.rename(settings.tls.authority_key.with_suffix(".away"))
    renewal.renew_if_due(ends, now + timedelta(days=61))
    assert file.read_bytes() == before
    key.rename(settings.tls.authority_key)
    settings.tls.authority_key.chmod(0o644)
    with structlog.testing.capture_logs() as logs:
        for hours in (0, 1):
            renewal.renew_if_due(ends, now + timedelta(days=61, hours=hours))
    assert [entry["event"] for entry in logs] == ["the certificate could not be renewed"]
    settings.tls.authority_key.chmod(0o600)
    renewal.renew_if_due(ends, now + timedelta(days=62))
    assert file.read_bytes() != before


def test_an_authority_outside_signs_and_the_card_is_signed_by_the_certificates_key(tmp_path: Path, lab: Own) -> None:
    folder = tmp_path / "hospital"
    init("hospital", "active", folder, mode="outside")
    authority, secret = make_authority("trial")
    (folder / "keys" / "ca.crt").write_bytes(authority)
    (folder / "keys" / "node.crt").write_bytes(sign(authority, secret, (folder / "keys" / "node.csr").read_bytes()))
    hospital = Own.__new__(Own)
    hospital.config = folder / "node.yaml"
    card = hospital.card
    assert card.card.certificate
    assert read_card(card.envelope, federation="trial").card.authority_pem == authority
    pending.accept(lab.settings, pending.keep(lab.settings, card, "hospital.example:7443", "active", WORDS))
    lab.credentials.check_peer("hospital", x509.load_pem_x509_certificates(hospital.credentials.certificate))


def test_one_authority_for_all_pairs_nobody(tmp_path: Path) -> None:
    init("clinic", "active", tmp_path / "shared", mode="shared")
    authority, secret = make_authority("trial")
    (tmp_path / "shared" / "ca.crt").write_bytes(authority)
    request = (tmp_path / "shared" / "node.csr").read_bytes()
    (tmp_path / "shared" / "node.crt").write_bytes(sign(authority, secret, request))
    shared = Own.__new__(Own)
    shared.config = tmp_path / "shared" / "node.yaml"
    with pytest.raises(UsageError, match="nobody pairs") as caught:
        _ = shared.card
    assert caught.value.code == "E_CONFIG"


def test_a_roster_grows_and_shrinks_under_whoever_reads_it() -> None:
    roster = Roster({"lab": Peer(authority=Path("lab.crt")), "insurer": Peer(relayed=True)})
    authorities = Authorities(roster)
    assert dict(authorities) == {"lab": Path("lab.crt")}
    seen = []
    for name in roster:
        seen.append(name)
        roster.admit("bank", Peer())
        roster.dismiss("insurer")
    assert seen == ["lab", "insurer"]
    assert (list(roster), list(authorities), len(authorities)) == (["lab", "bank"], ["lab", "bank"], 2)
    for whole in (roster, authorities):
        roster.admit("guest", Peer())
        for each in whole.items():
            roster.dismiss("guest" if each[0] == "guest" else "")
    assert list(roster.values()) == [roster["lab"], roster["bank"]]
    assert "insurer" not in authorities


def test_a_disk_that_refuses_is_told_and_leaves_no_peer(clinic: Own, lab: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    met = meet(clinic, lab)
    written: list[Path] = []

    def refuse(path: Path, data: bytes) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(data)

    monkeypatch.setattr(pending, "write_whole", refuse)
    with pytest.raises(UsageError, match="No space left") as caught:
        pending.accept(clinic.settings, met)
    assert caught.value.code == "E_FILE"
    assert clinic.settings.peers == {}
    monkeypatch.undo()
    pending.accept(clinic.settings, pending.read(clinic.settings, "lab"))
