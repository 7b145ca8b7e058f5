"""What parties sign: envelopes and cards, and the words that owners compare."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta, timezone
from itertools import combinations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.parties import FEDERATION, Party
from vfl_node.errors import PolicyError
from vfl_node.trust import dsse
from vfl_node.trust.cards import KIND, make_card, read_card
from vfl_node.trust.words import WORDS, spell

NOTE = "application/vnd.vfl.note+json"
BODY = b'{"v":1}'
KEYS = [Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())]


def test_the_encoding_is_that_of_the_specification() -> None:
    """The vector of DSSE's protocol.md."""
    body = b"hello world"
    assert dsse.encode("http://example.com/HelloWorld", body) == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@pytest.mark.parametrize("key", KEYS, ids=["ed25519", "p256"])
def test_an_envelope_is_verified_by_its_own_key_only(key: dsse.PrivateKey) -> None:
    envelope = dsse.sign(NOTE, BODY, key)
    assert dsse.verify(envelope, NOTE, [key.public_key()]) == BODY
    others = [Ed25519PrivateKey.generate().public_key(), ec.generate_private_key(ec.SECP256R1()).public_key()]
    for wrong in ([], others):
        with pytest.raises(PolicyError, match="not signed by the key") as caught:
            dsse.verify(envelope, NOTE, wrong)
        assert caught.value.code == "E_SIGNATURE"
    with pytest.raises(PolicyError, match="another kind"):
        dsse.verify(envelope, KIND, [key.public_key()])


def test_nothing_of_an_envelope_may_change() -> None:
    key = KEYS[0]
    document = json.loads(dsse.sign(NOTE, BODY, key))
    for change in ({"payload": base64.b64encode(b'{"v":2}').decode()}, {"payloadType": KIND}):
        kind = change.get("payloadType", NOTE)
        with pytest.raises(PolicyError):
            dsse.verify(json.dumps(document | change).encode(), kind, [key.public_key()])


@pytest.mark.parametrize(
    "envelope",
    [b"", b"{}", b"\xff", b"[]", b'{"payloadType":"x","payload":"!","signatures":[]}', b"x" * (dsse.MOST_BYTES + 1)],
)
def test_what_is_no_envelope_is_refused(envelope: bytes) -> None:
    with pytest.raises(PolicyError) as caught:
        dsse.verify(envelope, NOTE, [KEYS[0].public_key()])
    assert caught.value.code == "E_SIGNATURE"


@pytest.mark.parametrize("key", KEYS, ids=["ed25519", "p256"])
def test_another_programs_code_verifies_an_envelope(key: dsse.PrivateKey) -> None:
    library = pytest.importorskip("securesystemslib.dsse", reason="securesystemslib is not installed")
    from securesystemslib.signer import SSlibKey

    document = json.loads(dsse.sign(NOTE, BODY, key))
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    identity = document["signatures"][0]["keyid"]
    if isinstance(key, Ed25519PrivateKey):
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()
        theirs = SSlibKey(identity, "ed25519", "ed25519", {"public": raw})
    else:
        theirs = SSlibKey(identity, "ecdsa", "ecdsa-sha2-nistp256", {"public": pem})
    envelope = library.Envelope.from_dict(document)
    assert list(envelope.verify([theirs], 1)) == [identity]
    envelope.payload = b'{"v":2}'
    with pytest.raises(Exception, match=r"threshold|verif"):
        envelope.verify([theirs], 1)


def test_a_card_names_authority_and_signing_key(lab: Party) -> None:
    card = read_card(lab.card.envelope, federation=FEDERATION).card
    assert (card.name, card.federation, card.serial) == ("lab", FEDERATION, 1)
    assert card.authority_pem == lab.credentials.authority
    document = dsse.sign(NOTE, BODY, lab.signing)
    assert dsse.verify(document, NOTE, [card.verifying_key]) == BODY


def test_a_card_of_an_authority_outside_is_signed_by_the_certificate(lab: Party, bank: Party) -> None:
    made = make_card(lab.credentials, lab.signing, lab.credentials.key)
    assert made.card.certificate == (lab.credentials.certificate.decode(),)
    assert make_card(lab.credentials, lab.signing, lab.authority_key).card.certificate == ()
    with pytest.raises(PolicyError):  # neither the authority's key nor the certificate's
        make_card(lab.credentials, lab.signing, bank.authority_key)


def test_a_card_that_somebody_else_signed_or_changed_is_refused(lab: Party, bank: Party) -> None:
    payload = dsse.parse(lab.card.envelope, KIND)
    key = serialization.load_pem_private_key(bank.authority_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    with pytest.raises(PolicyError, match="not signed by the key"):
        read_card(dsse.sign(KIND, payload, key), federation=FEDERATION)
    document = json.loads(payload)
    own = serialization.load_pem_private_key(lab.authority_key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    for change in (
        {"name": "../x"},
        {"federation": "other"},
        {"v": 2},
        {"signing_key": "x"},
        {"authority": []},
        {"authority": ["x"]},
        {"authority": [lab.credentials.certificate.decode()]},
        {"authority": [document["authority"][0] + "\0"]},
        {"authority": [document["authority"][0] + document["authority"][0].strip()]},
        {"authority": [document["authority"][0], lab.credentials.certificate.decode()]},  # the second one is no authority
        {"certificate": [bank.credentials.certificate.decode()]},
        {"more": 1},
        {"expires": "2020-01-01T00:00:00Z"},
    ):
        with pytest.raises(PolicyError) as caught:
            read_card(dsse.sign(KIND, json.dumps(document | change).encode(), own), federation=FEDERATION)
        assert caught.value.code in ("E_CARD", "E_SIGNATURE"), change


def test_a_card_holds_for_its_time(lab: Party) -> None:
    card, now = lab.card.card, datetime.now(timezone.utc)
    read_card(lab.card.envelope, federation=FEDERATION, now=now - timedelta(minutes=50))  # a clock that is behind
    for moment in (now - timedelta(hours=2), card.expires):
        with pytest.raises(PolicyError, match="this machine's clock says"):
            read_card(lab.card.envelope, federation=FEDERATION, now=moment)


def test_words_are_told_apart_when_badly_heard() -> None:
    assert len(WORDS) == len({word[:4] for word in WORDS}) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 10 for word in WORDS)
    assert [pair for pair in combinations(WORDS, 2) if _differ(*pair) < 2] == []
    assert spell(bytes([0, 255, 0])) == (WORDS[0], WORDS[255], WORDS[0])


def _differ(first: str, second: str) -> int:
    """How many letters have to be changed, added or left out to make one word the other."""
    row = list(range(len(second) + 1))
    for above, letter in enumerate(first, 1):
        following = [above]
        for place, other in enumerate(second, 1):
            following.append(min(row[place] + 1, following[-1] + 1, row[place - 1] + (letter != other)))
        row = following
    return row[-1]
