"""Cards that an active party tells: what is kept, what takes its place, and words by which owners notice another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trust.parties import FEDERATION, Party
from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError, StateError, UsageError, VflError
from vfl_node.job import Job
from vfl_node.settings.connection import Peer
from vfl_node.transport import bounds
from vfl_node.transport.authority import make_authority
from vfl_node.trust import dsse, words
from vfl_node.trust.cards import SignedCard, make_card
from vfl_node.trust.manifest import Manifest, make_manifest
from vfl_node.trust.relaying import cards_for, hear_cards, list_newer
from vfl_node.trust.signers import Signers
from vfl_node.trust.told import find_told, forget_told, keep_told, mark_compared, read_told

JOB = parse("name: t\nparties: {active: clinic, passive: [lab, insurer, shop]}\nalign: {protocol: psi}\n", Job, source="test")


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Party]:
    return {name: Party(name, tmp_path_factory.mktemp(name)) for name in ("insurer", "shop")}


@pytest.fixture(scope="module")
def impostor(tmp_path_factory: pytest.TempPathFactory) -> Party:
    """Another party that says that it is the insurer."""
    return Party("insurer", tmp_path_factory.mktemp("impostor"))


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    peers = {"clinic": Peer(card=Path("clinic.card")), "insurer": Peer(relayed=True), "shop": Peer(relayed=True)}
    return SimpleNamespace(name="lab", federation=FEDERATION, state_dir=tmp_path / "state", peers=peers, pairs=True)


@pytest.fixture
def manifest() -> Manifest:
    return make_manifest(JOB, "t-1", federation=FEDERATION, submitter="clinic", cards={}, trained=None)


def successor(party: Party, *, revoked: bool = False) -> SignedCard:
    """A card that follows on that of ``party``: of a new authority, which the former one has signed."""
    if revoked:
        return make_card(party.credentials, party.signing, party.authority_key, serial=2, revoked=True)
    authority, key = make_authority(FEDERATION)
    both = replace(party.credentials, authority=authority + party.credentials.authority)
    return make_card(both, party.signing, key, former=party.authority_key, serial=2)


def code(refused: Callable[[], object]) -> str:
    with pytest.raises(VflError) as caught:
        refused()
    return caught.value.code


def compare(lab: Any, name: str = "insurer") -> None:
    mark_compared(lab, name, find_told(lab, name)[0])


def test_a_card_is_kept_and_verifies_from_then_on(lab: Any, parties: dict[str, Party]) -> None:
    assert (read_told(lab, "insurer"), Signers(lab).card("insurer")) == (None, None)
    assert code(lambda: find_told(lab, "insurer")) == "E_UNKNOWN_PEER"
    told = keep_told(lab, "clinic", parties["insurer"].card)
    assert told
    assert (told.by, told.compared, told.changed) == ("clinic", None, False)
    assert keep_told(lab, "clinic", parties["insurer"].card) is None
    assert Signers(lab).card("insurer") == parties["insurer"].card.card
    assert not Signers(lab).is_compared("insurer")
    compare(lab)
    assert Signers(lab).is_compared("insurer")


def test_before_it_is_compared_another_one_takes_its_place_and_is_shown(
    lab: Any, parties: dict[str, Party], impostor: Party
) -> None:
    """The control: nothing but the words can tell the two apart."""
    keep_told(lab, "clinic", parties["insurer"].card)
    told = keep_told(lab, "clinic", impostor.card)
    assert told
    assert told.changed
    assert Signers(lab).card("insurer") == impostor.card.card
    digests = [card.card.digest for card in (impostor.card, parties["insurer"].card)]
    assert words.spell_card(digests[0]) != words.spell_card(digests[1])


def test_after_it_was_compared_another_one_is_refused(lab: Any, parties: dict[str, Party], impostor: Party) -> None:
    keep_told(lab, "clinic", parties["insurer"].card)
    compare(lab)
    for other in (impostor.card, make_card(impostor.credentials, impostor.signing, impostor.authority_key, serial=9)):
        assert code(lambda other=other: keep_told(lab, "clinic", other)) == "E_CARD"
    assert Signers(lab).card("insurer") == parties["insurer"].card.card
    forget_told(lab, "insurer")
    told = keep_told(lab, "clinic", impostor.card)
    assert told
    assert not told.changed


def test_a_card_that_follows_on_a_compared_one_stays_compared(lab: Any, parties: dict[str, Party]) -> None:
    first, second = parties["insurer"].card, successor(parties["insurer"])
    keep_told(lab, "clinic", first)
    compare(lab)
    told = keep_told(lab, "bank", second)
    assert told
    assert (told.compared is not None, told.changed) == (True, False)
    assert Signers(lab).is_compared("insurer")
    assert code(lambda: keep_told(lab, "clinic", first)) == "E_CARD"  # the former one does not come back


def test_a_party_that_has_given_its_keys_up_counts_no_more(lab: Any, parties: dict[str, Party]) -> None:
    keep_told(lab, "clinic", parties["insurer"].card)
    compare(lab)
    keep_told(lab, "clinic", successor(parties["insurer"], revoked=True))
    assert code(lambda: Signers(lab).card("insurer")) == "E_REVOKED"
    assert code(lambda: keep_told(lab, "clinic", parties["insurer"].card)) == "E_CARD"


def test_who_compares_words_that_are_not_those_of_now_has_compared_nothing(
    lab: Any, parties: dict[str, Party], impostor: Party
) -> None:
    keep_told(lab, "clinic", parties["insurer"].card)
    seen = find_told(lab, "insurer")[0]
    keep_told(lab, "clinic", impostor.card)
    assert code(lambda: mark_compared(lab, "insurer", seen)) == "E_CARD"
    assert not Signers(lab).is_compared("insurer")


def test_a_damaged_or_exchanged_file_is_seen(lab: Any, parties: dict[str, Party]) -> None:
    keep_told(lab, "clinic", parties["insurer"].card)
    file = lab.state_dir / "relayed" / "insurer"
    kept = file.read_bytes()
    (lab.state_dir / "relayed" / "shop").write_bytes(kept)
    with pytest.raises(PolicyError, match="the card of insurer"):
        read_told(lab, "shop")
    file.write_bytes(kept[:-1] + b" ")
    with pytest.raises(StateError) as caught:
        Signers(lab).card("insurer")
    assert "vfl-node card insurer --forget" in caught.value.hint
    forget_told(lab, "insurer")
    assert keep_told(lab, "clinic", parties["insurer"].card)


# With a job.


def test_the_active_party_tells_a_passive_one_the_cards_of_the_others_alone(
    parties: dict[str, Party], manifest: Manifest, tmp_path: Path
) -> None:
    peers = {"lab": Peer(), "stranger": Peer()}
    for name in ("insurer", "shop"):
        files = {"card": tmp_path / f"{name}.card", "authority": tmp_path / f"{name}.crt"}
        files["card"].write_bytes(parties[name].card.envelope)
        files["authority"].write_bytes(parties[name].card.card.authority_pem)
        peers[name] = peers["stranger"] = Peer(**files)
    clinic: Any = SimpleNamespace(name="clinic", federation=FEDERATION, peers=peers)
    insurer, shop = (parties[name].card.envelope for name in ("insurer", "shop"))
    assert cards_for(clinic, manifest, "lab") == [insurer, shop]
    assert cards_for(clinic, manifest, "insurer") == [shop]
    assert cards_for(clinic, manifest, "stranger") == []
    assert list_newer(clinic, "lab", manifest.to_bytes()) == [insurer, shop]
    assert list_newer(clinic, "lab", b"{}") == []
    assert cards_for(SimpleNamespace(name="lab", peers=peers), manifest, "clinic") == []  # type: ignore[arg-type]


def test_who_may_tell_which_cards(lab: Any, parties: dict[str, Party], manifest: Manifest, tmp_path: Path) -> None:
    insurer, stranger = parties["insurer"].card.envelope, Party("bank", tmp_path / "bank").card.envelope
    assert code(lambda: hear_cards(lab, manifest, "shop", [insurer])) == "E_CARD"
    assert code(lambda: hear_cards(lab, manifest, "clinic", [stranger])) == "E_CARD"
    for bad in (b"", b"{}", b"[" * 9000, insurer.replace(b'"payload":"', b'"payload":"A'), insurer + b" " * (13 << 10)):
        assert code(lambda bad=bad: hear_cards(lab, manifest, "clinic", [bad])) in ("E_SIGNATURE", "E_CARD")
    assert not (lab.state_dir / "relayed").exists()
    hear_cards(lab, manifest, "clinic", [insurer])
    assert read_told(lab, "insurer")


@pytest.mark.parametrize("peer", [Peer(), None])
def test_a_card_of_a_party_that_is_not_relayed_is_left(
    lab: Any, parties: dict[str, Party], manifest: Manifest, peer: Peer | None
) -> None:
    lab.peers = {"insurer": peer} if peer else {}
    hear_cards(lab, manifest, "clinic", [parties["insurer"].card.envelope])
    assert read_told(lab, "insurer") is None


def test_a_disk_that_refuses_is_told(lab: Any, parties: dict[str, Party]) -> None:
    lab.state_dir.write_text("no folder")
    with pytest.raises(UsageError) as caught:
        keep_told(lab, "clinic", parties["insurer"].card)
    assert caught.value.code == "E_FILE"


def test_cards_have_room_in_an_offer() -> None:
    assert bounds.MOST_CARD_BYTES == dsse.MOST_BYTES
    assert bounds.MOST_OFFER_BYTES > bounds.MOST_CARDS * dsse.MOST_BYTES + bounds.MOST_MANIFEST_BYTES


# The words.


def test_a_card_has_ten_words_that_follow_from_it_alone(parties: dict[str, Party], monkeypatch: pytest.MonkeyPatch) -> None:
    digest = parties["insurer"].card.card.digest
    assert len(words.spell_card(digest)) == words.COMPARED_OF_CARD == 10
    assert words.spell_card(digest) == words.spell_card(digest)
    assert words.spell_card("00" * 32) == tuple(KNOWN.split())


KNOWN = "oasis storm flamingo teapot omelette magnet cottage avocado gravel orchid"
