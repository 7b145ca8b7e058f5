"""A party's card: its name, the authority that signs its certificates, and the key with which it signs documents.

A TLS certificate cannot have an Ed25519 key, and it changes every few months. So the key that signs documents stands on a card,
which the party's own authority has signed. A node that pins a card can recognise both the certificates and the signatures of
this party.

A later card of the party has a higher number. The authority that a peer has pinned signs it (:func:`check_newer`), so a party
can bring in a new authority, or say that its keys are given up, without a new pairing.

What the peer learns of a card: name, federation, both public keys, and the days on which they were made.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.verification import VerificationError
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vfl_node.errors import PolicyError
from vfl_node.job import Name
from vfl_node.transport.credentials import Credentials, private_key, verify_chain
from vfl_node.transport.identity import MALFORMED, owner_of
from vfl_node.trust import dsse

KIND = "application/vnd.vfl.card+json"

MOST_AUTHORITIES = 4

_Pem = Annotated[str, StringConstraints(max_length=4096)]


class Card(BaseModel):
    """What a party says of itself, under a signature.

    Attributes:
        v: version of this form.
        federation: the trust domain of its certificates.
        name: of the party.
        authority: certificates of the authority that signs its certificates, PEM. If the authority is the party's own, the
            first one is; those after it were, and end soon.
        certificate: if the authority does not belong to the party: the certificate whose key signed this card, and intermediate
            certificates, PEM. Empty if the authority is the party's own; then the authority's key signed this card.
        signing_key: Ed25519 public key of the documents that the party signs, base64.
        serial: number of the card; a later one is higher.
        issued: when it was made.
        expires: until when it holds.
        revoked: whether the party has given its keys up, because others may have them. It takes part in nothing any more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    federation: Name
    name: Name
    authority: tuple[_Pem, ...] = Field(min_length=1, max_length=MOST_AUTHORITIES)
    certificate: tuple[_Pem, ...] = Field(default=(), max_length=MOST_AUTHORITIES)
    signing_key: str = Field(pattern=r"^[A-Za-z0-9+/]{43}=$")
    serial: int = Field(ge=1, le=2**53)
    issued: AwareDatetime
    expires: AwareDatetime
    revoked: bool = False

    @property
    def authority_pem(self) -> bytes:
        """The certificates of the authority in one PEM file, written anew: what a node pins."""
        return "".join(_pems(x509.load_pem_x509_certificates("".join(self.authority).encode()))).encode()

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of whose card it is, and of the authority and the key on it: of none of its dates, nor its number.

        Where an authority outside signs, the card is made anew whenever it is shown, and means the same. Authorities that were
        a party's own, and end soon, do not count.
        """
        authority = self.authority if self.certificate else self.authority[:1]
        bound = {"federation": self.federation, "name": self.name, "authority": authority, "key": self.signing_key}
        return hashlib.sha256(json.dumps(bound, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def verifying_key(self) -> Ed25519PublicKey:
        """The key that verifies documents of this party."""
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(self.signing_key))


@dataclass(frozen=True)
class SignedCard:
    """A card that was verified, and the envelope in which it came.

    Attributes:
        card: what it says.
        envelope: as it was signed.
    """

    card: Card
    envelope: bytes

    def says_what(self, other: SignedCard) -> bool:
        """Whether it says what the ``other`` one does, leaving aside their numbers and dates, and whose certificates signed."""
        ours, theirs = (each.card.model_dump(exclude={"serial", "issued", "certificate"}) for each in (self, other))
        return ours == theirs and bool(self.card.certificate) == bool(other.card.certificate)

    @property
    def fingerprints(self) -> tuple[str, str]:
        """SHA-256 of the authority's certificate, and of the signing key, in hex, as ``openssl x509 -fingerprint`` has them."""
        authority, key = self._authorities[0].fingerprint(hashes.SHA256()), base64.b64decode(self.card.signing_key)
        return authority.hex(":").upper(), hashlib.sha256(key).digest().hex(":").upper()

    @property
    def former(self) -> list[tuple[datetime, str]]:
        """The authorities that were the party's own: when each ends, and its fingerprint."""
        rest = [] if self.card.certificate else self._authorities[1:]
        return [(each.not_valid_after_utc, each.fingerprint(hashes.SHA256()).hex(":").upper()) for each in rest]

    @property
    def _authorities(self) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(self.card.authority_pem)


def make_card(
    credentials: Credentials,
    signing: Ed25519PrivateKey,
    signer: bytes,
    *,
    former: bytes = b"",
    serial: int = 0,
    revoked: bool = False,
    now: datetime | None = None,
) -> SignedCard:
    """This party's card, signed.

    Args:
        credentials: of this party; ``authority`` signs its certificate.
        signing: the key with which it signs documents.
        signer: private key that signs the card, PEM: the authority's own, or else that of the certificate.
        former: private key of the authority before this one, PEM, which signs the card, too; empty: there is none.
        serial: number of the card; 0: the time, in seconds, for one that is made whenever it is shown.
        revoked: whether the party gives its keys up.
        now: UTC.

    Raises:
        UsageError: a key or certificate cannot be read (``E_CERTIFICATE``).
        PolicyError: ``signer`` is neither the authority's key nor the certificate's (``E_SIGNATURE``), or the card cannot be
            used (``E_CARD``).
    """
    now = now or _utc_now()
    keys = [private_key(pem, "the key that signs the card") for pem in (signer, former) if pem]
    signing_cards = [key for key in keys if isinstance(key, ec.EllipticCurvePrivateKey)]
    if signing_cards != keys:
        raise _unusable(credentials.name, "the key that signs it must be on P-256")
    authority = x509.load_pem_x509_certificates(credentials.authority)
    own = keys[0].public_key() == authority[0].public_key()
    raw = signing.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    card = Card(
        federation=credentials.federation,
        name=credentials.name,
        authority=_pems(authority),
        certificate=() if own else _pems(x509.load_pem_x509_certificates(credentials.certificate)),
        signing_key=base64.b64encode(raw).decode(),
        serial=serial or int(now.timestamp()),
        issued=now.replace(microsecond=0),
        expires=authority[0].not_valid_after_utc,
        revoked=revoked,
    )
    document = card.model_dump(mode="json", exclude_defaults=True) | {"v": card.v}
    payload = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return read_card(dsse.sign(KIND, payload, *signing_cards), federation=credentials.federation, now=now)


def read_card(envelope: bytes, *, federation: str, stored: bool = False, now: datetime | None = None) -> SignedCard:
    """Read and verify a card.

    The first authority named on the card must have signed it, or the holder of a certificate which that authority has issued.

    The signature proves that the whole card comes from one party. It does not prove which party this is. A code, the compared
    words or a pinned authority prove that.

    Args:
        envelope: as it came.
        federation: in which it must be.
        stored: whether this node has kept it since it was verified. Then the certificate that signed it may have ended.
        now: UTC.

    Raises:
        PolicyError: it is signed by anybody else, of another federation, or out of date (``E_SIGNATURE``, ``E_CARD``).
    """
    now = now or _utc_now()
    card = _parse(dsse.parse(envelope, KIND))
    try:
        authority = x509.load_pem_x509_certificates(card.authority_pem)
        if card.authority != _pems(authority):
            raise _unusable(card.name, "its authority's certificates have more around them")
        chain = x509.load_pem_x509_certificates("".join(card.certificate).encode()) if card.certificate else authority
        if card.certificate:
            verify_chain(authority, chain, card.issued if stored else now)
            if owner_of(chain[0], federation) != card.name:
                raise _unusable(card.name, "the certificate that signed it is another party's")
        if not all(each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for each in authority):
            what = "the certificate given for its authority may not sign certificates (it is not a CA certificate)"
            raise _unusable(card.name, what)
        key = chain[0].public_key()
    except (VerificationError, *MALFORMED):
        raise _unusable(card.name, "a certificate on it cannot be read") from None
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1))):
        raise _unusable(card.name, "the key that signs it must be on P-256 or P-384")
    dsse.verify(envelope, KIND, [key])
    if card.federation != federation:
        raise _unusable(card.name, f"it is of federation {card.federation!r}, expected {federation!r}")
    if not card.issued.timestamp() - 3600 <= now.timestamp() < card.expires.timestamp():  # clocks may be an hour apart
        said = f"{card.issued:%Y-%m-%d %H:%M} to {card.expires:%Y-%m-%d} UTC"
        raise _unusable(card.name, f"it holds from {said}, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC")
    return SignedCard(card, envelope)


def check_newer(pinned: Card, shown: SignedCard, *, now: datetime | None = None) -> None:
    """Refuse a card that does not follow on the ``pinned`` one of the same party.

    The authority that is first on the pinned card must have signed it. Where that authority is not the party's own, it signs no
    cards. Whoever holds a certificate of the party can then say that its keys are given up, and cannot bring in other ones.

    Args:
        pinned: the card that this node has.
        shown: what the party shows now; it was verified by itself.
        now: UTC.

    Raises:
        PolicyError: it is another party's, or no later one (``E_CARD``), or nobody signed it whom this node trusts with that
            (``E_SIGNATURE``).
    """
    card, name = shown.card, pinned.name
    if card.name != name:
        raise _unusable(name, f"it is the card of {card.name}")
    if card.serial <= pinned.serial:
        raise _unusable(name, f"its number is {card.serial}, and a card {pinned.serial} of {name} is here already")
    if bool(card.certificate) != bool(pinned.certificate):
        raise _unusable(name, "another kind of authority signs it: tls.mode was changed there")
    if card.certificate and not card.revoked:
        raise _unsigned(name)
    try:
        authority = x509.load_pem_x509_certificates(pinned.authority_pem)
        if card.certificate:
            verify_chain(authority, x509.load_pem_x509_certificates("".join(card.certificate).encode()), now or _utc_now())
        else:
            key = authority[0].public_key()
            dsse.verify(shown.envelope, KIND, [key] if isinstance(key, ec.EllipticCurvePublicKey) else [])
    except (VerificationError, PolicyError):
        raise _unsigned(name) from None


def _unsigned(name: str) -> PolicyError:
    text = f"the card of {name} cannot be used: the authority that {name} was paired with has not signed it"
    hint = f"ask {name}'s owner by telephone; if its keys are new: vfl-node revoke {name}, then pair again"
    return PolicyError(text, code="E_SIGNATURE", hint=hint, for_peer=text)


def _parse(payload: bytes) -> Card:
    try:
        return Card.model_validate_json(payload)
    except ValidationError:
        raise _unusable("a party", "a field is missing, unknown or has a wrong value") from None


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


def _pems(certificates: list[x509.Certificate]) -> tuple[str, ...]:
    return tuple(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


def _unusable(name: str, what: str) -> PolicyError:
    text = f"the card of {name} cannot be used: {what}"
    return PolicyError(text, code="E_CARD", for_peer=text)
