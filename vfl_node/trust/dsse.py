"""Signed envelopes: some bytes, what kind of document they are, and who signed both.

What is signed is the pre-authentication encoding of kind and bytes, so that a document of one kind never passes for one of
another. The bytes are verified as they were sent, and parsed only after that: no canonical form is needed.

Source: DSSE v1.0.2 (github.com/secure-systems-lab/dsse); ECDSA on P-256 with SHA-256, and Ed25519 (RFC 8032).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vfl_node.errors import PolicyError

MOST_BYTES = 12 << 10
"""Largest envelope that is read; a card has about two thousand bytes."""

MOST_SIGNATURES = 4

PublicKey = ec.EllipticCurvePublicKey | Ed25519PublicKey
PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey

_Base64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$", max_length=MOST_BYTES)]


class DsseSignature(BaseModel):
    """One signature of an envelope, and a hint by whose key it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # as DSSE asks of unknown keys

    keyid: str = Field(default="", max_length=128)
    sig: _Base64


class Envelope(BaseModel):
    """A document and its signatures, as they stand in JSON. Nothing of it is to be believed before :func:`verify`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    payloadType: str = Field(max_length=128)  # noqa: N815 - the name that DSSE gives it
    payload: _Base64
    signatures: tuple[DsseSignature, ...] = Field(min_length=1, max_length=MOST_SIGNATURES)


def encode(kind: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: what is signed of a ``payload`` of this ``kind``."""
    named = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(named), named, len(payload), payload)


def sign(kind: str, payload: bytes, *keys: PrivateKey) -> bytes:
    """An envelope with a signature of each of ``keys``, as JSON."""
    encoded = encode(kind, payload)
    signatures = []
    for key in keys:
        proof = key.sign(encoded) if isinstance(key, Ed25519PrivateKey) else key.sign(encoded, ec.ECDSA(hashes.SHA256()))
        signatures.append({"keyid": key_id(key.public_key()), "sig": base64.b64encode(proof).decode()})
    document = {"payloadType": kind, "payload": base64.b64encode(payload).decode(), "signatures": signatures}
    return json.dumps(document, separators=(",", ":")).encode()


def parse(envelope: bytes, kind: str) -> bytes:
    """The payload of an envelope of this ``kind``, not verified: to find in it who must have signed.

    Raises:
        PolicyError: it is too long, no envelope, or of another kind (``E_SIGNATURE``).
    """
    return base64.b64decode(_read(envelope, kind).payload)


def verify(envelope: bytes, kind: str, keys: Iterable[PublicKey]) -> bytes:
    """The payload of an envelope of this ``kind`` that one of ``keys`` has signed.

    Raises:
        PolicyError: none of them has (``E_SIGNATURE``); or as :func:`parse`.
    """
    read = _read(envelope, kind)
    payload, keys = base64.b64decode(read.payload), tuple(keys)
    encoded = encode(kind, payload)
    for signature in read.signatures:
        proof = base64.b64decode(signature.sig)
        if any(_is_signed(key, proof, encoded) for key in keys):
            return payload
    raise _unusable("it is not signed by the key that it must be signed by")


def list_signers(envelope: bytes, kind: str) -> list[str]:
    """By which keys (:func:`key_id`) an envelope says that it is signed; not verified. Raises as :func:`parse`."""
    return [signature.keyid for signature in _read(envelope, kind).signatures]


def key_id(key: PublicKey) -> str:
    """A name of a public key: SHA-256 of its SubjectPublicKeyInfo, in hex."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _read(envelope: bytes, kind: str) -> Envelope:
    if len(envelope) > MOST_BYTES:
        raise _unusable(f"it has {len(envelope)} bytes, at most {MOST_BYTES} are read")
    try:
        read = Envelope.model_validate_json(envelope)
        for text in (read.payload, *(signature.sig for signature in read.signatures)):
            base64.b64decode(text, validate=True)
    except (ValidationError, ValueError):
        raise _unusable("it is no signed envelope") from None
    if read.payloadType != kind:
        raise _unusable("it is a document of another kind")
    return read


def _is_signed(key: PublicKey, proof: bytes, encoded: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(proof, encoded)
        else:
            key.verify(proof, encoded, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _unusable(what: str) -> PolicyError:
    text = f"a signed document cannot be used: {what}"
    return PolicyError(text, code="E_SIGNATURE", for_peer=text)
