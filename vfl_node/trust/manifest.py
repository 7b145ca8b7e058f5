"""The manifest of a job: what the owner of each party is asked to allow, in words, and bound to the job byte by byte.

The submitter's node makes it and sends it with the job. Every other node reads it, and finds out for itself what the job
reveals: so a manifest that leaves something out is refused, and no text of a peer is shown. Whoever approves a job names the
manifest's digest, and so nothing else.

What the peer learns of a manifest: the job, which it gets anyway; when it was submitted; and whose cards the submitter has.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vfl_node.configuration.registry import load
from vfl_node.errors import PolicyError
from vfl_node.job import Job, JobId, Name
from vfl_node.ledger import UNDECLARED, Declaration
from vfl_node.roles import Role
from vfl_node.transport.bounds import MOST_MANIFEST_BYTES
from vfl_node.version import PROTOCOL_VERSION, VERSION

VALID_DAYS = 7
"""How long a job may wait for its owners; once it has begun it may take any time."""

DIGITS = 8
"""So many of the digest's first hexadecimal digits name a manifest that an owner has seen."""

OF_THIS_RUN = ("id", "nonce", "created", "expires", "requested_by", "software")
"""Fields without which two submissions of the same job have the same :attr:`Manifest.terms`."""

_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ManifestParty(BaseModel):
    """A party of the job.

    Attributes:
        name: of it.
        role: in the job.
        card_sha256: digest of its card, as the submitter has it; None where the submitter has none, and no answer is signed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    role: Role
    card_sha256: _Sha256 | None = None


class Requester(BaseModel):
    """Who asks: a party, and where its node knows people, one of them by a pseudonym."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    party: Name
    person: Annotated[str, StringConstraints(max_length=64)] | None = None


class Manifest(BaseModel):
    """What is asked of every party's owner.

    Attributes:
        v: version of this form.
        federation: of the parties.
        id: of this run of the job.
        nonce: 16 random bytes, in hex.
        name: of the job.
        purpose: of the job, as its submitter says it.
        job: canonical JSON of the job, the bytes that are offered.
        parties: in the order of the job.
        reveals: what each party may learn at most.
        requested_by: who asks.
        created: when, UTC.
        expires: until when an owner may answer.
        software: release of the submitter's node.
        protocol_version: of the messages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    federation: Name
    id: JobId
    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    name: Name
    purpose: str | None
    job: str
    parties: tuple[ManifestParty, ...]
    reveals: tuple[Declaration, ...]
    requested_by: Requester
    created: AwareDatetime
    expires: AwareDatetime
    software: Annotated[str, StringConstraints(max_length=32)]
    protocol_version: int = Field(ge=1)

    def to_bytes(self) -> bytes:
        """Canonical JSON: keys sorted, UTF-8, no spaces."""
        return _encode(self.model_dump(mode="json"))

    @property
    def digest(self) -> str:
        """SHA-256 of :meth:`to_bytes`, in hex: what an owner approves."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def terms(self) -> str:
        """The same without what is of this run alone: two submissions of one job have the same."""
        document = self.model_dump(mode="json")
        return hashlib.sha256(_encode({key: value for key, value in document.items() if key not in OF_THIS_RUN})).hexdigest()

    @property
    def signers(self) -> dict[str, str]:
        """Party that signs its answer → digest of its card, in the order of the job."""
        return {party.name: party.card_sha256 for party in self.parties if party.card_sha256}

    @property
    def active(self) -> str:
        """The active party."""
        return self.parties[0].name

    @property
    def passive(self) -> list[str]:
        """The passive parties, in the order of the job."""
        return [party.name for party in self.parties if party.role == "passive"]

    def has_expired(self, now: datetime | None = None) -> bool:
        """Whether it is too late to answer."""
        return (now or datetime.now(timezone.utc)) > self.expires


def make_manifest(
    job: Job,
    job_id: str,
    *,
    federation: str,
    submitter: str,
    cards: Mapping[str, str],
    trained: Job | None,
    now: datetime | None = None,
) -> Manifest:
    """The manifest of a job that this party's owner submits.

    Args:
        job: the job.
        job_id: of this run.
        federation: of the parties.
        submitter: this party.
        cards: party → digest of its card, of those whose card this party has.
        trained: the job that trained the model by which it predicts; None if it makes no predictions.
        now: UTC.

    Raises:
        UsageError: a protocol or trainer cannot be loaded (``E_EXTENSION``).
        PolicyError: it would be too long (``E_MANIFEST``).
    """
    created = (now or datetime.now(timezone.utc)).replace(microsecond=0)
    manifest = Manifest(
        federation=federation,
        id=job_id,
        nonce=secrets.token_hex(16),
        name=job.name,
        purpose=job.purpose,
        job=job.canonical(),
        parties=tuple(ManifestParty(name=name, role=role, card_sha256=cards.get(name)) for name, role in _roles(job)),
        reveals=tuple(declare(job, trained)),
        requested_by=Requester(party=submitter),
        created=created,
        expires=created + timedelta(days=VALID_DAYS),
        software=VERSION,
        protocol_version=PROTOCOL_VERSION,
    )
    if (size := len(manifest.to_bytes())) > MOST_MANIFEST_BYTES:
        raise _unusable(f"it has {size} bytes, at most {MOST_MANIFEST_BYTES} are sent")
    return manifest


def read_manifest(data: bytes, job: Job, job_id: str, *, federation: str, trained: Job | None) -> Manifest:
    """A manifest that a peer has sent with ``job``, checked against it; other arguments as :func:`make_manifest`.

    Raises:
        PolicyError: it is too long, not canonical, or of another job; or the job reveals other things than it says, as far as
            this node knows (``E_MANIFEST``).
        UsageError: a protocol or trainer cannot be loaded (``E_EXTENSION``).
    """
    manifest = parse_manifest(data)
    if (manifest.federation, manifest.id, manifest.job) != (federation, job_id, job.canonical()):
        raise _unusable("it is of another job")
    told = (manifest.name, manifest.purpose, [(party.name, party.role) for party in manifest.parties])
    if told != (job.name, job.purpose, list(_roles(job))):
        raise _unusable("it says other things than the job")
    if manifest.requested_by.party not in job.parties.all or not manifest.requested_by.party.isprintable():
        raise _unusable("who asks takes no part in the job")
    if manifest.expires - manifest.created > timedelta(days=VALID_DAYS):
        raise _unusable(f"it holds for longer than {VALID_DAYS} days")
    ours, theirs = keywords(declare(job, trained)), keywords(manifest.reveals)
    if ours != theirs:
        named = ", ".join(sorted(f"{what} to {to}" for to, what in ours - theirs)) or "less than it says"
        raise _unusable(f"the job reveals {named}, and the manifest does not say so")
    return manifest


def parse_manifest(data: bytes) -> Manifest:
    """A manifest as it was stored or sent, not checked against a job. Raises PolicyError (``E_MANIFEST``)."""
    if len(data) > MOST_MANIFEST_BYTES:
        raise _unusable(f"it has {len(data)} bytes, at most {MOST_MANIFEST_BYTES} are read")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError:
        raise _unusable("it lacks something, or has what no manifest has") from None
    if manifest.to_bytes() != data:
        raise _unusable("it is not written in the one form that its digest is of")
    return manifest


def declare(job: Job, trained: Job | None) -> Iterator[Declaration]:
    """What each party may learn by a job, as its protocol and its trainer say it; arguments as :func:`make_manifest`."""
    if not job.is_service:  # which goes by the alignment of the training
        spec = job.align.spec
        yield from _ask(spec.reveals, f"align.protocol: {spec.name}", job)
    if job.train:
        yield from _ask(job.train.parts.reveals, f"train.algorithm: {job.train.algorithm}", job)
    if job.export:
        yield from job.export.declare(job.parties, job.label_holder)
    if trained and trained.train:
        yield from _ask(trained.train.parts.serving_reveals, f"predictions of {trained.train.algorithm}", job, trained)


def keywords(declarations: Iterable[Declaration]) -> set[tuple[str, str]]:
    """(Who learns it, keyword) of each."""
    return {(each.to, each.what) for each in declarations}


def _ask(place: str, what: str, job: Job, *further: Job) -> Iterator[Declaration]:
    """What a protocol or trainer says at ``place``; where it says nothing, that."""
    if place:
        yield from load(place, what=f"what {what} reveals")(job, *further)
        return
    for name in job.parties.all:
        yield Declaration(
            name, UNDECLARED, f"whatever is sent by {what}: the package that adds it does not say what that reveals"
        )


def _roles(job: Job) -> Iterator[tuple[str, Role]]:
    """Each party with its role, in the order of the job."""
    parties = job.parties
    yield parties.active, "active"
    yield from ((name, "passive") for name in parties.passive)
    if parties.coordinator:
        yield parties.coordinator, "coordinator"


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _unusable(what: str) -> PolicyError:
    text = f"the job's manifest cannot be used: {what}"
    return PolicyError(text, code="E_MANIFEST", for_peer=text)
