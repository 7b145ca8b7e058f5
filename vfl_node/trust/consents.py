"""A party's answer to a manifest: whether the job may run with it. Where the party has a card, it signs the answer.

It counts for one manifest, one job and one party: it answers no other job, and not for another party.

What the peer learns: the answer; whether the owner was asked or a rule of the settings said it; and when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vfl_node.errors import PolicyError
from vfl_node.job import JobId, Name
from vfl_node.trust import dsse
from vfl_node.trust.cards import Card
from vfl_node.trust.manifest import Manifest

KIND = "application/vnd.vfl.consent+json"

LEEWAY_S = 120
"""By how much clocks may differ when a consent expires."""

Verdict = Literal["approve", "refuse"]

By = Literal["rule", "persons"]
"""Who answered: the policy, or persons."""


Pseudonym = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Stands for a person, in one job."""


class Consent(BaseModel):
    """One party's answer.

    Attributes:
        v: version of this form.
        manifest_sha256: digest of the manifest that is answered.
        job_id: of the job.
        party: that answers.
        verdict: its answer.
        by: who gave it.
        persons: a pseudonym of each, another one in every job; only their own node knows the names.
        at: when, UTC.
        expires: until when the job must have begun, as the manifest says it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    manifest_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    job_id: JobId
    party: Name
    verdict: Verdict
    by: By
    persons: Annotated[tuple[Pseudonym, ...], Field(max_length=2)] = ()
    at: AwareDatetime
    expires: AwareDatetime

    def to_bytes(self) -> bytes:
        """Canonical JSON: keys sorted, UTF-8, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def make_consent(
    manifest: Manifest, party: str, verdict: Verdict, by: By, persons: Iterable[str] = (), *, now: datetime | None = None
) -> Consent:
    """The answer of ``party`` to ``manifest``, by persons of these pseudonyms."""
    return Consent(
        manifest_sha256=manifest.digest,
        job_id=manifest.id,
        party=party,
        verdict=verdict,
        by=by,
        persons=tuple(persons),
        at=(now or datetime.now(timezone.utc)).replace(microsecond=0),
        expires=manifest.expires,
    )


def sign_consent(consent: Consent, key: Ed25519PrivateKey) -> bytes:
    """The answer in an envelope with the party's signature."""
    return dsse.sign(KIND, consent.to_bytes(), key)


def parse_consent(data: bytes) -> Consent:
    """An answer as it was stored or sent, signed or not; no signature is verified. Raises PolicyError (``E_CONSENT``)."""
    try:
        payload = dsse.parse(data, KIND) if is_signed(data) else data
        return Consent.model_validate_json(payload)
    except (ValidationError, PolicyError):
        raise unusable("it lacks something, or has what no consent has") from None


def is_signed(data: bytes) -> bool:
    """Whether an answer that this node has stored is in an envelope."""
    return b'"payloadType"' in data[:64]


def read_consent(data: bytes, manifest: Manifest, card: Card | None, *, begun: bool, now: datetime | None = None) -> Consent:
    """An approval of ``manifest`` that was sent.

    Args:
        data: as it came.
        manifest: of the job.
        card: of the party that it names, as this node has pinned it; None where it has none, since the active party relays.
        begun: whether the job has begun: then it does not expire.
        now: UTC.

    Raises:
        PolicyError: it is no approval of this manifest by a party that is to sign; or it is signed by another key than that of
            the party's card, or of another card than the manifest's; or it has expired (``E_CONSENT``).
    """
    consent = parse_consent(data)
    now, party = now or datetime.now(timezone.utc), consent.party
    if party not in manifest.signers:
        raise unusable(f"{party} is no party that signs")
    if (consent.manifest_sha256, consent.job_id, consent.expires) != (manifest.digest, manifest.id, manifest.expires):
        raise unusable(f"that of {party} is of another manifest or job")
    if consent.verdict != "approve":
        raise unusable(f"{party} does not approve")
    if card is not None:
        if manifest.signers[party] != card.digest:
            raise unusable(f"the manifest has another card of {party} than this node")
        try:
            dsse.verify(data, KIND, [card.verifying_key])
        except PolicyError:
            raise unusable(f"that of {party} is not signed by the key of its card") from None
    if not begun and (now - consent.expires).total_seconds() > LEEWAY_S:
        raise unusable(f"that of {party} held until {consent.expires:%Y-%m-%d %H:%M} UTC")
    return consent


def unusable(what: str) -> PolicyError:
    """The error of a consent that does not count."""
    text = f"a consent cannot be used: {what}"
    return PolicyError(text, code="E_CONSENT", for_peer=text)
