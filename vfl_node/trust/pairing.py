"""Pairing: two nodes that share a code of 40 bits, for some minutes, come to know each other's card. Four messages.

Source: SPAKE2 (RFC 9382) over the group of Ed25519, as the package ``spake2`` implements it. A is the party that invites, B the
party that joins. A first commits to a nonce, and then the owners compare short words, as in Vaudenay's SAS protocol (CRYPTO
2005).

::

    1  B → A   X_B, SHA-256(card_B)
    2  A → B   X_A, SHA-256(nonce_A)           K = SPAKE2(code, id_A, id_B, X_A, X_B)
    3  B → A   {card_B, address, role, nonce_B} under K_B
    4  A → B   {card_A, address, role, nonce_A} under K_A

    id_A      SHA-256 of A's certificate. A takes its own certificate; B takes the one that the answering side has shown.
    id_B      SHA-256 of B's card
    K_A, K_B  HKDF-SHA256 of K, one for each direction, each used once (ChaCha20-Poly1305)
    words     HKDF-SHA256 of K, both nonces and both cards: 32 bits

Somebody who relays between the two has a different certificate. So A and B compute different keys K, and neither box opens.
Somebody who guesses the code has one guess for each answer of A. He cannot test further guesses offline, because A sends
nothing encrypted under K before B has sent its box. Somebody who knows the code can stand between the two, and then the words
differ. He cannot search for a case in which the words agree: nonce_A is fixed before nonce_B is shown, and nonce_B is fixed
before nonce_A is shown.

What each party learns: the other's card, address and role. It learns these only if both used the same code. A stranger learns
that an invite is open. Deviation from the RFC: the hash of the transcript is the package's, and keys are confirmed by the
boxes. The package's arithmetic is not constant-time. This is accepted, because a code is valid only for minutes and an element
is used in one try only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from vfl_node.errors import PolicyError, ProtocolError
from vfl_node.roles import Role
from vfl_node.settings.node import Address
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.trust.cards import SignedCard, read_card
from vfl_node.trust.words import COMPARED, spell

Draw = Callable[[int], bytes]
"""Returns the given number of random bytes."""

NONCE_BYTES = 32
ELEMENT_BYTES = 33
_FIRST_NONCE = b"\0" * 12  # each key encrypts one box


class Introduction(BaseModel):
    """What a party tells the other under the key of their pairing.

    Attributes:
        v: version of this form.
        card: its card, as it was signed.
        address: where it can be dialled; None: it only dials.
        role: that its node has.
        nonce: drawn for this pairing, in hex.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")  # a later version may say more

    v: int = Field(ge=1)
    card: str = Field(max_length=12 << 10)
    address: Address | None
    role: Role
    nonce: str = Field(pattern=rf"^[0-9a-f]{{{2 * NONCE_BYTES}}}$")


@dataclass(frozen=True)
class OwnSide:
    """What a party says of itself in a pairing.

    Attributes:
        card: the card of this party.
        address: where the other party can dial it; None: it only dials.
        role: of its node.
    """

    card: SignedCard
    address: str | None
    role: Role

    @property
    def digest(self) -> bytes:
        """SHA-256 of the card."""
        return hashlib.sha256(self.card.envelope).digest()


@dataclass(frozen=True)
class Met:
    """The other party, as a pairing has made it known.

    Attributes:
        card: its card, verified.
        address: where it can be dialled; None: it only dials.
        role: of its node.
        words: the words that the other party's owner must see, too.
    """

    card: SignedCard
    address: str | None
    role: Role
    words: tuple[str, ...]


class Inviter:
    """Party A in one try. Each step is called once, in this order.

    Args:
        code: the secret of the invite.
        own: what this party says of itself.
        leaf: SHA-256 of the certificate with which this node answers.
        draw: gives random bytes.
    """

    def __init__(self, code: bytes, own: OwnSide, *, leaf: bytes, draw: Draw = os.urandom) -> None:
        self._code, self._own, self._leaf, self._draw = code, own, leaf, draw
        self._nonce = draw(NONCE_BYTES)
        self._key, self._card_digest = b"", b""

    def answer(self, first: PairMessage) -> PairMessage:
        """Return message 2, the answer to message 1. Raises ProtocolError if ``first`` is not a valid message 1."""
        self._card_digest = first.card_sha256
        side = SPAKE2_A(
            self._code, idA=_identity(b"A", self._leaf), idB=_identity(b"B", first.card_sha256), entropy_f=self._draw
        )
        element = side.start()
        self._key = _finish(side, first.element)
        return PairMessage(element=element, commitment=_commit(self._nonce))

    def meet(self, third: PairMessage) -> tuple[PairMessage, Met]:
        """Return message 4, the answer to message 3, and the party that has joined.

        Raises:
            PolicyError: the codes differ, or somebody stands between the two (``E_INVITE``); or the other party's card cannot
                be used.
        """
        theirs = _unpack(self._key, b"joiner", third.box)
        if not hmac.compare_digest(hashlib.sha256(theirs.card.encode()).digest(), self._card_digest):
            raise wrong_code()
        card = read_card(theirs.card.encode(), federation=self._own.card.card.federation)
        box = _pack(self._key, b"inviter", self._own, self._nonce)
        words = _words(self._key, self._nonce, bytes.fromhex(theirs.nonce), self._own.digest, self._card_digest)
        return PairMessage(box=box), Met(card, theirs.address, theirs.role, words)


class Joiner:
    """Party B. Each step is called once, in this order.

    Args:
        code: as B's owner heard it.
        own: what this party says of itself.
        leaf: SHA-256 of the certificate that the answering side has shown.
        draw: gives random bytes.
    """

    def __init__(self, code: bytes, own: OwnSide, *, leaf: bytes, draw: Draw = os.urandom) -> None:
        self._own, self._nonce = own, draw(NONCE_BYTES)
        self._side = SPAKE2_B(code, idA=_identity(b"A", leaf), idB=_identity(b"B", own.digest), entropy_f=draw)
        self._key, self._commitment = b"", b""

    def begin(self) -> PairMessage:
        """Return message 1."""
        return PairMessage(element=self._side.start(), card_sha256=self._own.digest)

    def confirm(self, second: PairMessage) -> PairMessage:
        """Return message 3, the answer to message 2. Raises ProtocolError if ``second`` is not a valid message 2."""
        self._key, self._commitment = _finish(self._side, second.element), second.commitment
        return PairMessage(box=_pack(self._key, b"joiner", self._own, self._nonce))

    def meet(self, last: PairMessage) -> Met:
        """Return the party that has invited, as message 4 describes it.

        Raises:
            PolicyError: the codes differ, or somebody stands between the two (``E_INVITE``); or the other party's card cannot
                be used.
        """
        theirs = _unpack(self._key, b"inviter", last.box)
        nonce = bytes.fromhex(theirs.nonce)
        if not hmac.compare_digest(_commit(nonce), self._commitment):
            raise wrong_code()
        card = read_card(theirs.card.encode(), federation=self._own.card.card.federation)
        digest = hashlib.sha256(theirs.card.encode()).digest()
        words = _words(self._key, nonce, self._nonce, digest, self._own.digest)
        return Met(card, theirs.address, theirs.role, words)


def wrong_code() -> PolicyError:
    """The error for a box that does not open; it does not say which of the reasons it was, since nobody can know."""
    text = "the codes of the two sides differ, or somebody stands between them"
    return PolicyError(text, code="E_INVITE", hint="compare the code, or make a new one: vfl-node invite", for_peer=text)


def _identity(side: bytes, digest: bytes) -> bytes:
    return b"vfl-pair " + side + b" " + digest


def _finish(side: SPAKE2_A | SPAKE2_B, element: bytes) -> bytes:
    """The key K. Raises ProtocolError for bytes that are no element of the other side."""
    try:
        if len(element) != ELEMENT_BYTES:  # the package would ignore extra bytes when it decodes an element
            raise ValueError
        return bytes(side.finish(element))
    except (SPAKEError, ValueError, NotOnCurve):
        raise ProtocolError("the other side of the pairing sent no element of the group", code="E_ELEMENT") from None


def _derive(key: bytes, label: bytes, size: int = 32, salt: bytes | None = None) -> bytes:
    return HKDF(hashes.SHA256(), size, salt, b"vfl-pair " + label).derive(key)


def _commit(nonce: bytes) -> bytes:
    return hashlib.sha256(b"vfl-pair nonce " + nonce).digest()


def _words(key: bytes, nonce_a: bytes, nonce_b: bytes, card_a: bytes, card_b: bytes) -> tuple[str, ...]:
    return spell(_derive(key, b"words " + card_a + card_b, COMPARED, salt=nonce_a + nonce_b))


def _pack(key: bytes, whose: bytes, own: OwnSide, nonce: bytes) -> bytes:
    said = Introduction(v=1, card=own.card.envelope.decode(), address=own.address, role=own.role, nonce=nonce.hex())
    return ChaCha20Poly1305(_derive(key, whose)).encrypt(_FIRST_NONCE, said.model_dump_json().encode(), whose)


def _unpack(key: bytes, whose: bytes, box: bytes) -> Introduction:
    try:
        opened = ChaCha20Poly1305(_derive(key, whose)).decrypt(_FIRST_NONCE, box, whose)
    except (InvalidTag, ValueError):
        raise wrong_code() from None
    try:
        return Introduction.model_validate_json(opened)
    except ValidationError:
        raise ProtocolError("the other side of the pairing said what this version does not understand") from None
