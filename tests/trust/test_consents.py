"""Signed consents: what counts, and that an answer to one thing is none to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.parties import FEDERATION, Party
from tests.trust.test_manifest import NOW, job_of
from vfl_node.errors import PolicyError
from vfl_node.node import consents as module
from vfl_node.node.consents import Consents, JobConsents
from vfl_node.node.record import MANIFEST, Record
from vfl_node.node.store import Store
from vfl_node.session.preflight import NO_MARKS
from vfl_node.settings.connection import Peer
from vfl_node.settings.policy import Policy, Preset
from vfl_node.transport.generated.vfl.v1.session_pb2 import Offer
from vfl_node.trust import dsse
from vfl_node.trust.cards import Card
from vfl_node.trust.consents import KIND, make_consent, parse_consent, read_consent, sign_consent
from vfl_node.trust.manifest import Manifest, make_manifest
from vfl_node.trust.signers import Signers

JOB = job_of()


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Party]:
    return {name: Party(name, tmp_path_factory.mktemp(name)) for name in ("clinic", "lab", "eve")}


@pytest.fixture
def manifest(parties: dict[str, Party]) -> Manifest:
    return about(parties)


def about(parties: dict[str, Party], job_id: str = "weekly-1", **how: Any) -> Manifest:
    cards = {name: parties[name].card.card.digest for name in ("clinic", "lab")}
    told = {"federation": FEDERATION, "submitter": "clinic", "cards": cards, "trained": None, "now": NOW}
    return make_manifest(JOB, job_id, **(told | how))


def answer(manifest: Manifest, party: Party, *, verdict: Any = "approve", key: Ed25519PrivateKey | None = None) -> bytes:
    return sign_consent(make_consent(manifest, party.name, verdict, "persons", now=NOW), key or party.signing)


def reason(data: bytes, manifest: Manifest, card: Card | None, **how: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        read_consent(data, manifest, card, **({"begun": False, "now": NOW} | how))
    assert caught.value.code == "E_CONSENT"
    return caught.value.message


def test_a_consent_is_a_dsse_envelope_over_its_words(parties: dict[str, Party], manifest: Manifest) -> None:
    lab = parties["lab"]
    data = answer(manifest, lab)
    payload = json.loads(dsse.verify(data, "application/vnd.vfl.consent+json", [lab.signing.public_key()]))
    assert payload == {
        "v": 1,
        "manifest_sha256": manifest.digest,
        "job_id": "weekly-1",
        "party": "lab",
        "verdict": "approve",
        "by": "persons",
        "persons": [],
        "at": "2026-11-29T12:00:00Z",
        "expires": "2026-12-06T12:00:00Z",
    }
    assert read_consent(data, manifest, lab.card.card, begun=False, now=NOW).party == "lab"
    assert len(data) < 1000


def test_what_does_not_count(parties: dict[str, Party], manifest: Manifest) -> None:
    clinic, lab, eve = parties["clinic"], parties["lab"], parties["eve"]
    good, card = answer(manifest, lab), lab.card.card
    assert "is no party that signs" in reason(answer(manifest, eve), manifest, eve.card.card)
    assert "of another manifest" in reason(answer(about(parties), lab), manifest, card)  # the same job, submitted again
    assert "of another manifest" in reason(answer(about(parties, "weekly-2"), lab), manifest, card)
    assert "does not approve" in reason(answer(manifest, lab, verdict="refuse"), manifest, card)
    assert "not signed by the key of its card" in reason(answer(manifest, lab, key=clinic.signing), manifest, card)
    assert "another card of lab" in reason(good, manifest, eve.card.card)
    assert "lacks something" in reason(good.replace(b'"payload":"', b'"payload":"A'), manifest, card)
    assert "not signed" in reason(make_consent(manifest, "lab", "approve", "rule", now=NOW).to_bytes(), manifest, card)
    changed = dsse.sign(KIND, b'{"v":1}', lab.signing)
    assert "lacks something" in reason(changed, manifest, card)
    for other in (b"", b"{}", b"[" * 9000):
        assert "lacks something" in reason(other, manifest, card)


def test_it_expires_unless_the_job_has_begun(parties: dict[str, Party], manifest: Manifest) -> None:
    data, card = answer(manifest, parties["lab"]), parties["lab"].card.card
    soon, late = manifest.expires + timedelta(seconds=119), manifest.expires + timedelta(seconds=121)
    assert read_consent(data, manifest, card, begun=False, now=soon)
    assert "held until 2026-12-06 12:00 UTC" in reason(data, manifest, card, now=late)
    assert read_consent(data, manifest, card, begun=True, now=late)


# What a node keeps of a job's consents.


class Signing:
    """In place of a node's keys and pinned cards."""

    def __init__(self, own: Party, *pinned: Party) -> None:
        self.key: Ed25519PrivateKey | None = own.signing
        self.cards = {party.name: party.card.card for party in (own, *pinned)}
        self.settings: Any = None

    def card(self, name: str) -> Card | None:
        return self.cards.get(name)

    def is_compared(self, name: str) -> bool:
        return Signers(self.settings).is_compared(name)

    def advise(self, name: str) -> str:
        return Signers(self.settings).advise(name)

    def digests(self, names: Any) -> dict[str, str]:
        return {name: self.cards[name].digest for name in names if name in self.cards}


class Lab:
    def __init__(self, folder: Path, parties: dict[str, Party], monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.parties = Store(folder / "state"), parties
        self.signing = Signing(parties["lab"], parties["clinic"])
        monkeypatch.setattr(module, "Signers", lambda settings: self.signing)
        self.peers = {"clinic": Peer(card=Path("clinic.card"), words_compared=True)}
        self.settings: Any = SimpleNamespace(
            name="lab",
            federation=FEDERATION,
            rules=Policy(preset="careful"),
            pairs=True,
            peers=self.peers,
            state_dir=folder / "state",
        )
        self.signing.settings = self.settings
        self.consents = Consents(self.settings, self.store)

    def job(self, manifest: Manifest, **documents: bytes) -> JobConsents:
        record: Record = self.store.add(JOB, submitter="clinic", documents={MANIFEST: manifest.to_bytes()} | documents)
        return JobConsents(self.settings, self.store, record.id)


@pytest.fixture
def lab(tmp_path: Path, parties: dict[str, Party], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(tmp_path, parties, monkeypatch)
    yield lab
    lab.store.close()


@pytest.fixture
def fresh(parties: dict[str, Party]) -> Manifest:
    """A manifest of today: those that are kept are read by today's clock."""
    return about(parties, now=None)


def test_a_job_has_all_consents_once_each_party_has_sent_its_own(lab: Lab, parties: dict[str, Party], fresh: Manifest) -> None:
    kept = lab.consents.answer(fresh, "approve", "rule")
    job, own = lab.job(fresh, **kept), {"consent lab": kept["consent lab"]}
    assert (job.signers, job.missing, len(job.envelopes)) == (["clinic", "lab"], ["clinic"], 1)
    marks = job.marks
    theirs = answer(fresh, parties["clinic"])
    assert not job.covers([theirs, *own.values()])
    job.hear("clinic", [theirs, *own.values()], begun=False)
    job.hear("clinic", [theirs], begun=False)
    assert (job.missing, job.covers([theirs, *own.values()]), job.covers([theirs])) == ([], True, False)
    assert (job.marks.manifest, job.marks.consents == marks.consents) == (bytes.fromhex(fresh.digest), False)
    again = JobConsents(lab.settings, lab.store, job._id)
    assert (again.envelopes, again.marks) == (job.envelopes, job.marks)


def test_a_second_consent_of_a_party_is_refused(lab: Lab, parties: dict[str, Party], fresh: Manifest) -> None:
    job = lab.job(fresh)
    job.hear("clinic", [answer(fresh, parties["clinic"])], begun=False)
    by_rule = sign_consent(make_consent(fresh, "clinic", "approve", "rule"), parties["clinic"].signing)
    with pytest.raises(PolicyError, match="another one of clinic") as caught:
        job.hear("clinic", [by_rule], begun=False)
    assert caught.value.code == "E_CONSENT"


def test_that_of_a_party_without_a_card_here_comes_from_the_active_party_alone(
    lab: Lab, parties: dict[str, Party], fresh: Manifest
) -> None:
    job = lab.job(fresh)
    del lab.signing.cards["clinic"]
    theirs = answer(fresh, parties["clinic"])
    with pytest.raises(PolicyError, match="only clinic and the active party may"):
        job.hear("insurer", [theirs], begun=False)
    assert job.missing == ["clinic", "lab"]
    job.hear("clinic", [theirs], begun=False)
    assert job.missing == ["lab"]


@pytest.mark.parametrize("exchanged", ["clinic", "lab"])
def test_a_manifest_with_an_exchanged_card_is_refused(lab: Lab, parties: dict[str, Party], exchanged: str) -> None:
    cards = {name: parties[name].card.card.digest for name in ("clinic", "lab")} | {exchanged: parties["eve"].card.card.digest}
    assert f"E_CONSENT a consent cannot be used: the manifest has another card of {exchanged}" in offered(
        lab, about(parties, cards=cards, now=None)
    )


def test_a_submitter_with_a_card_must_sign(lab: Lab, parties: dict[str, Party]) -> None:
    assert "another card of clinic" in offered(lab, about(parties, cards={"lab": parties["lab"].card.card.digest}, now=None))
    lab.signing.cards.pop("lab")
    assert "another card of lab" in offered(lab, about(parties, now=None))


def test_under_a_strict_policy_every_party_must_sign(lab: Lab, parties: dict[str, Party]) -> None:
    """Or whoever submits could leave the card of a party out, and nobody would ask for its consent."""
    partial = about(parties, cards={"clinic": parties["clinic"].card.card.digest}, now=None)
    assert offered(lab, partial) == ""
    lab.settings.rules = Policy(preset="strict")
    assert "E_CONSENT a consent cannot be used: the manifest has another card of lab" in offered(lab, partial)


def test_a_node_without_a_key_signs_nothing_and_needs_nothing(lab: Lab, parties: dict[str, Party]) -> None:
    lab.signing.key, lab.signing.cards = None, {}
    plain = about(parties, cards={}, now=None)
    assert offered(lab, plain) == ""
    own = lab.consents.answer(plain, "approve", "rule")
    assert parse_consent(own["consent lab"]).by == "rule"
    job = lab.job(plain, **own)
    assert (job.signers, job.missing, job.envelopes, job.covers([])) == ([], [], [], True)
    assert job.marks.consents == b""
    assert JobConsents(lab.settings, lab.store, lab.store.add(JOB, submitter="clinic").id).marks == NO_MARKS


def offered(lab: Lab, manifest: Manifest) -> str:
    """Why an offer with this manifest is refused; empty if it is not."""
    offer: Any = SimpleNamespace(manifest=manifest.to_bytes(), job_id=manifest.id, consents=[], cards=[])
    try:
        lab.consents.take("clinic", offer, JOB)
    except PolicyError as error:
        return f"{error.code} {error.message}"
    return ""


@pytest.mark.parametrize(
    ("preset", "peer", "refused"),
    [
        ("strict", Peer(card=Path("clinic.card"), words_compared=True), False),
        ("strict", Peer(card=Path("clinic.card")), True),
        ("strict", Peer(relayed=True), True),
        ("careful", Peer(relayed=True), False),
    ],
)
def test_a_strict_owner_takes_no_consent_under_a_card_that_nobody_has_compared(
    lab: Lab, preset: Preset, peer: Peer, refused: bool
) -> None:
    lab.settings.rules, lab.peers["clinic"] = Policy(preset=preset), peer
    about_it = about(lab.parties)
    offer = Offer(job_id=about_it.id, manifest=about_it.to_bytes())
    for use in (lambda: lab.consents.take("clinic", offer, JOB), lambda: lab.consents.submit(JOB, "trial-2")):
        if not refused:
            assert use()
            continue
        with pytest.raises(PolicyError, match="no card of clinic whose words were compared") as caught:
            use()
        assert caught.value.code == "E_CONSENT"
        how = "the active party tells the card of clinic" if peer.relayed else "pair with clinic"
        assert how in caught.value.hint
