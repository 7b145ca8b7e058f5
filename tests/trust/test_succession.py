"""A new authority, and keys that are given up: what follows on a card that is pinned, and what never does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.thorough import every
from tests.trust.test_kept import WORDS, Own
from vfl_node.errors import PolicyError, UsageError
from vfl_node.node.setup import init
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.trust import cards, newer, pending
from vfl_node.trust.cards import make_card, read_card
from vfl_node.trust.keys import is_due, read_signing_key, renew, shown_card
from vfl_node.trust.newer import take_newer
from vfl_node.trust.succession import BOTH_DAYS, follow_up, give_up, renew_authority, switches_at

DAY = timedelta(days=1)


@pytest.fixture
def clinic(tmp_path: Path) -> Own:
    return Own("clinic", tmp_path / "clinic")


@pytest.fixture
def lab(tmp_path: Path, clinic: Own) -> Own:
    """It is paired with the clinic."""
    made = Own("lab", tmp_path / "lab")
    pending.accept(made.settings, pending.keep(made.settings, clinic.card, "clinic.example:7443", "active", WORDS))
    return made


def leaf(party: Own) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(party.credentials.certificate)


def card(party: Own) -> bytes:
    return shown_card(party.credentials).envelope


def pinned(party: Own) -> tuple[int, bytes]:
    """Number of the card, and authorities, that a party has of the clinic."""
    return pending.card_of(party.settings, "clinic").card.serial, party.credentials.roots_of("clinic")


def files(party: Own) -> dict[str, bytes]:
    folder = party.config.parent
    return {path.name: path.read_bytes() for part in ("keys", "peers") for path in (folder / part).glob("*")}


def test_a_new_authority_is_pinned_by_the_former_one_and_both_count_for_a_month(clinic: Own, lab: Own) -> None:
    now, before = datetime.now(timezone.utc), leaf(clinic)
    renew_authority(clinic.settings)
    lab.credentials.check_peer("clinic", leaf(clinic))  # it has not heard of it yet
    taken = take_newer(lab.settings, "clinic", card(clinic))
    assert taken
    assert (taken.card.serial, len(taken.card.authority), len(taken.former)) == (2, 2, 1)
    here = {"clinic.2.card", "clinic.2.crt", "clinic.yaml"}
    before_it = {"clinic.card", "clinic.crt"}  # for whoever has just read the file that named them
    assert {path.name for path in lab.settings.peers_dir.iterdir()} == here | before_it
    peer = lab.settings.peers["clinic"]
    assert (peer.address, peer.words_compared) == ("clinic.example:7443", True)
    late = now + (BOTH_DAYS + 2) * DAY
    for chain in (before, leaf(clinic)):
        lab.credentials.check_peer("clinic", chain)
        with pytest.raises(PolicyError):
            lab.credentials.check_peer("clinic", chain, late)
    assert take_newer(lab.settings, "clinic", card(clinic)) is None
    settings = clinic.settings
    assert settings.tls
    assert not follow_up(settings, now + (BOTH_DAYS - 1) * DAY)
    assert follow_up(settings, now + BOTH_DAYS * DAY + DAY)
    lab.credentials.check_peer("clinic", leaf(clinic), late)
    assert is_due(settings, now + 10 * DAY, now)
    renew(settings)
    renew_authority(settings)
    assert take_newer(lab.settings, "clinic", card(clinic))
    assert pinned(lab)[0] == 3
    assert {path.name for path in lab.settings.peers_dir.iterdir()} == here | {"clinic.3.card", "clinic.3.crt"}


def test_who_was_away_for_longer_pins_nothing_and_trusts_nobody(clinic: Own, lab: Own) -> None:
    for _ in range(2):
        renew_authority(clinic.settings)
        follow_up(clinic.settings, datetime.now(timezone.utc) + (BOTH_DAYS + 1) * DAY)
    with pytest.raises(PolicyError, match="that clinic was paired with has not signed it") as caught:
        take_newer(lab.settings, "clinic", card(clinic))
    assert caught.value.code == "E_SIGNATURE"
    assert "pair again" in caught.value.hint
    with pytest.raises(PolicyError, match="not signed by the authority"):
        lab.credentials.check_peer("clinic", leaf(clinic))


def test_while_peers_learn_of_an_authority_neither_it_nor_its_certificate_is_renewed(clinic: Own) -> None:
    renew_authority(clinic.settings)
    settings, now = clinic.settings, datetime.now(timezone.utc)
    assert settings.tls
    before = files(clinic)
    for again in (renew_authority, renew):
        with pytest.raises(UsageError) as caught:
            again(settings)
        assert caught.value.code == "E_EXISTS"
    assert not is_due(settings, now + DAY, now)
    assert files(clinic) == before
    assert abs(switches_at(settings.tls) - now - BOTH_DAYS * DAY) < DAY


def forged(clinic: Own, tmp_path: Path) -> bytes:
    """A card of an attacker who has made an authority, and otherwise says what the clinic's card says."""
    authority, key = make_authority("trial")
    own = replace(clinic.credentials, authority=authority)
    tls = clinic.settings.tls
    assert tls
    return make_card(own, read_signing_key(tls), key, serial=9).envelope


def anothers(clinic: Own, tmp_path: Path) -> bytes:
    """A card of the bank, which the clinic's authority has signed."""
    tls = clinic.settings.tls
    assert tls
    own = replace(clinic.credentials, name="bank")
    return make_card(own, read_signing_key(tls), tls.authority_key.read_bytes(), serial=9).envelope


def earlier(clinic: Own, tmp_path: Path) -> bytes:
    """Another card with the number of the pinned one."""
    tls = clinic.settings.tls
    assert tls
    return make_card(clinic.credentials, read_signing_key(tls), tls.authority_key.read_bytes(), serial=1, revoked=True).envelope


def outsiders(clinic: Own, tmp_path: Path) -> bytes:
    """A card that the key of the clinic's certificate has signed, and not its authority."""
    tls = clinic.settings.tls
    assert tls
    return make_card(clinic.credentials, read_signing_key(tls), clinic.credentials.key, serial=9).envelope


REFUSED: dict[Callable[[Own, Path], bytes], str] = {
    forged: "E_SIGNATURE",
    anothers: "E_CARD",
    earlier: "E_CARD",
    outsiders: "E_CARD",
    lambda clinic, folder: b"{}": "E_SIGNATURE",
}


@pytest.mark.parametrize(("attack", "code"), REFUSED.items(), ids=["forged", "anothers", "earlier", "outsiders", "none"])
def test_a_card_that_does_not_follow_is_refused_and_never_stored(
    clinic: Own, lab: Own, tmp_path: Path, attack: Callable[[Own, Path], bytes], code: str
) -> None:
    before = files(lab)
    with pytest.raises(PolicyError) as caught:
        take_newer(lab.settings, "clinic", attack(clinic, tmp_path))
    assert (caught.value.code, files(lab)) == (code, before)


def test_a_card_that_was_replaced_does_not_come_back(clinic: Own, lab: Own) -> None:
    first = card(clinic)
    renew_authority(clinic.settings)
    take_newer(lab.settings, "clinic", card(clinic))
    before = files(lab)
    with pytest.raises(PolicyError, match="a card 2 of clinic is here already"):
        take_newer(lab.settings, "clinic", first)
    assert files(lab) == before


def test_control_unchecked_a_forged_card_lets_an_attacker_in(
    clinic: Own, lab: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so it is the check that keeps it out."""
    authority, authority_key = make_authority("trial")
    _, request = make_key_and_request("clinic", "trial")
    attackers = x509.load_pem_x509_certificates(sign(authority, authority_key, request))
    tls = clinic.settings.tls
    assert tls
    shown = make_card(replace(clinic.credentials, authority=authority), read_signing_key(tls), authority_key, serial=9).envelope
    with pytest.raises(PolicyError):
        take_newer(lab.settings, "clinic", shown)
    with pytest.raises(PolicyError):
        lab.credentials.check_peer("clinic", attackers)
    monkeypatch.setattr(newer, "check_newer", lambda *_, **__: None)
    take_newer(lab.settings, "clinic", shown)
    lab.credentials.check_peer("clinic", attackers)


def test_keys_that_are_given_up_say_so_and_pair_no_more(clinic: Own, lab: Own) -> None:
    give_up(clinic.settings)
    taken = take_newer(lab.settings, "clinic", card(clinic))
    assert taken
    assert taken.card.revoked
    assert pinned(lab)[0] == 1  # whoever takes leave of it removes it
    for use in (lambda: clinic.card, lambda: give_up(clinic.settings), lambda: renew_authority(clinic.settings)):
        with pytest.raises(PolicyError, match="were given up") as caught:
            use()
        assert caught.value.code == "E_REVOKED"


def hospital(folder: Path) -> tuple[Own, tuple[bytes, bytes]]:
    """A party whose authority is outside, and that authority."""
    init("clinic", "active", folder, mode="outside")
    made = make_authority("trial")
    (folder / "keys" / "ca.crt").write_bytes(made[0])
    (folder / "keys" / "node.crt").write_bytes(sign(*made, (folder / "keys" / "node.csr").read_bytes()))
    party = Own.__new__(Own)
    party.config = folder / "node.yaml"
    return party, made


def test_a_stolen_key_of_a_certificate_brings_in_no_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an authority outside, whose certificates sign cards. Control: unchecked, the thief signs consents from then on."""
    clinic, _ = hospital(tmp_path / "hospital")
    lab = Own("lab", tmp_path / "lab")
    pending.accept(lab.settings, pending.keep(lab.settings, clinic.card, "clinic.example:7443", "active", WORDS))
    before, thief = files(lab), Ed25519PrivateKey.generate()
    stolen = make_card(clinic.credentials, thief, clinic.credentials.key, serial=2**40).envelope
    with pytest.raises(PolicyError, match="has not signed it") as caught:
        take_newer(lab.settings, "clinic", stolen)
    assert (caught.value.code, files(lab)) == ("E_SIGNATURE", before)
    later = datetime.now(timezone.utc) + timedelta(minutes=1)  # by which a card has another number
    given_up = make_card(clinic.credentials, thief, clinic.credentials.key, revoked=True, now=later).envelope
    taken = take_newer(lab.settings, "clinic", given_up)
    assert taken
    assert taken.card.revoked
    monkeypatch.setattr(newer, "check_newer", lambda *_, **__: None)
    take_newer(lab.settings, "clinic", stolen)
    pinned_key, thiefs = pending.card_of(lab.settings, "clinic").card.verifying_key, thief.public_key()
    assert pinned_key.public_bytes_raw() == thiefs.public_bytes_raw()


def test_a_card_that_was_verified_outlives_the_certificate_that_signed_it(tmp_path: Path) -> None:
    """And whoever shows it after that is refused, since its key may be anybody's by then."""
    clinic, made = hospital(tmp_path / "hospital")
    lab = Own("lab", tmp_path / "lab")
    signed = clinic.card
    pending.accept(lab.settings, pending.keep(lab.settings, signed, "clinic.example:7443", "active", WORDS))
    later = datetime.now(timezone.utc) + 400 * DAY
    assert read_card(signed.envelope, federation="trial", stored=True, now=later).card == signed.card
    with pytest.raises(PolicyError) as caught:
        read_card(signed.envelope, federation="trial", now=later)
    assert caught.value.code == "E_CARD"
    tls, before = clinic.settings.tls, files(lab)
    assert tls
    tls.certificate.write_bytes(sign(*made, (tmp_path / "hospital" / "keys" / "node.csr").read_bytes(), days=7))
    assert take_newer(lab.settings, "clinic", card(clinic)) is None  # it says the same
    assert files(lab) == before


RENEW = """
import sys
from pathlib import Path
from vfl_node.process import failpoints
from vfl_node.settings.reading import load_settings
from vfl_node.trust.newer import take_newer
from vfl_node.trust.succession import renew_authority
failpoints.arm(sys.argv[1], local=True)
settings = load_settings(Path(sys.argv[2]))
renew_authority(settings) if len(sys.argv) == 3 else take_newer(settings, "clinic", Path(sys.argv[3]).read_bytes())
"""


def killed(*words: str | Path) -> None:
    done = subprocess.run([sys.executable, "-c", RENEW, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("point", every(2, ["write", "rename", "staged", *(f"succeed@{number}" for number in range(1, 6))]))
def test_a_renewal_that_is_killed_has_happened_or_not(clinic: Own, lab: Own, point: str) -> None:
    before = files(clinic)
    name, _, number = point.partition("@")
    killed(f"{name}=kill@{number or 1}", clinic.config)
    settings = clinic.settings
    lab.credentials.check_peer("clinic", leaf(clinic))  # a node that runs is not cut off in between
    follow_up(settings)
    if point in ("write", "rename"):
        assert {name: data for name, data in files(clinic).items() if not name.endswith(".tmp")} == before
        assert shown_card(clinic.credentials).card.serial == 1
        renew_authority(settings)
    assert "renewal.json" not in files(clinic)
    assert take_newer(lab.settings, "clinic", card(clinic))
    assert pinned(lab)[0] == 2
    assert follow_up(settings, datetime.now(timezone.utc) + (BOTH_DAYS + 1) * DAY)
    lab.credentials.check_peer("clinic", leaf(clinic))


@pytest.mark.parametrize("point", every(2, ["write@1", "write@2", "card@1", "write@3", "rename@3", "carded@1"]))
def test_a_peer_that_is_killed_has_the_one_card_or_the_other(clinic: Own, lab: Own, tmp_path: Path, point: str) -> None:
    renew_authority(clinic.settings)
    shown = tmp_path / "shown"
    shown.write_bytes(card(clinic))
    name, _, number = point.partition("@")
    killed(f"{name}=kill@{number}", lab.config, shown)
    lab.credentials.check_peer("clinic", leaf(clinic))
    assert pinned(lab)[0] == (2 if point == "carded@1" else 1)
    take_newer(lab.settings, "clinic", card(clinic))
    assert pinned(lab)[0] == 2
    pending.forget(lab.settings, "clinic")
    assert list(lab.settings.peers_dir.iterdir()) == []


def test_a_renewal_leaves_no_secret_that_others_may_read(clinic: Own) -> None:
    tls = clinic.settings.tls
    assert tls
    former = tls.authority_key.read_bytes()
    renew_authority(clinic.settings)
    assert tls.authority_key.read_bytes() != former
    assert tls.authority_key.stat().st_mode & 0o777 == 0o600
    shown = json.dumps({name: data.decode() for name, data in files(clinic).items() if name.endswith((".crt", "card.json"))})
    assert "PRIVATE" not in shown


def test_openssl_verifies_the_certificates_of_both(clinic: Own, lab: Own) -> None:
    renew_authority(clinic.settings)
    take_newer(lab.settings, "clinic", card(clinic))
    tls = clinic.settings.tls
    assert tls
    for certificate in (tls.certificate, tls.next_certificate):
        done = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", lab.settings.peers["clinic"].authority, certificate],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_another_programs_code_finds_both_signatures(clinic: Own) -> None:
    renew_authority(clinic.settings)
    envelope = json.loads(card(clinic))
    assert len(envelope["signatures"]) == 2
    authorities = x509.load_pem_x509_certificates(clinic.credentials.authority)
    from vfl_node.trust import dsse

    for each in authorities:
        dsse.verify(card(clinic), cards.KIND, [each.public_key()])  # type: ignore[list-item]
