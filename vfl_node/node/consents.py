"""The manifests of a node's jobs, and this party's answers to them: made, checked, and kept in the index with the job."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from vfl_node.errors import PolicyError, StateError
from vfl_node.job import Job
from vfl_node.node.persons import Yes
from vfl_node.node.predictions import trained_with
from vfl_node.node.record import MANIFEST, NO_DOCUMENTS, Documents, Record
from vfl_node.node.store import Store
from vfl_node.process import failpoints
from vfl_node.process.counters import CONSENTS
from vfl_node.session.preflight import NO_MARKS, ConsentMarks
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import Asked, Decision
from vfl_node.settings.refusals import Why, refusal
from vfl_node.transport.generated.vfl.v1.session_pb2 import Offer
from vfl_node.trust.consents import By, Consent, Verdict, make_consent, parse_consent, read_consent, sign_consent, unusable
from vfl_node.trust.manifest import Manifest, make_manifest, parse_manifest, read_manifest
from vfl_node.trust.relaying import cards_for, hear_cards
from vfl_node.trust.signers import Signers

NOTE = "note"
"""Name of what this owner has noted of a decision, for itself."""

PERSONS = "persons"
"""Name of what this node keeps of who has decided: a salt, and the names."""

TERMS = "terms"
"""Name of the terms of a job that was decided on, by which another job of the same is known."""

YES = "yes "
"""How the names begin of what is kept of persons who have said yes while another one must, too: of each by its token."""

MOST_NOTE = 500
"""Characters of it."""


class Consents:
    """What is agreed on about jobs, beside the jobs themselves.

    Args:
        settings: of this node.
        store: its jobs.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store, self._signers = settings, store, Signers(settings)

    def submit(self, job: Job, job_id: str) -> Documents:
        """Manifest and this owner's consent for a job that this owner submits.

        Raises:
            UsageError: something that the job names cannot be loaded (``E_EXTENSION``).
            PolicyError: the manifest would be too long (``E_MANIFEST``), or the policy wants cards that were compared
                (``E_CONSENT``).
            StateError: the job predicts by a model that is not kept here (``E_NO_MODEL``).
        """
        self._check_compared(job.parties.all)
        manifest = make_manifest(
            job,
            job_id,
            federation=self._settings.federation,
            submitter=self._settings.name,
            cards=self._signers.digests(job.parties.all),
            trained=trained_with(self._store, job, self._settings.name),
        )
        return {MANIFEST: manifest.to_bytes(), **self.answer(manifest, "approve", "persons")}

    def take(self, peer: str, offer: Offer, job: Job) -> tuple[Manifest, Documents] | None:
        """The manifest that came with the job of ``peer``, and what is to be kept: it and consents to it. None without one.

        Raises:
            PolicyError: it is not this job's (``E_MANIFEST``); it is too late to answer it, or a consent or card does not count
                (``E_CONSENT``, ``E_CARD``).
            UsageError: as :meth:`submit`.
            StateError: as :meth:`submit`.
        """
        if not offer.manifest:
            return None
        trained = trained_with(self._store, job, self._settings.name)
        manifest = read_manifest(offer.manifest, job, offer.job_id, federation=self._settings.federation, trained=trained)
        if manifest.has_expired():
            text = f"the job's manifest held until {manifest.expires:%Y-%m-%d %H:%M} UTC"
            raise PolicyError(text, code="E_CONSENT", hint="the other owner submits the job again", for_peer=text)
        hear_cards(self._settings, manifest, peer, offer.cards)
        self._check_cards(manifest)
        self._check_compared(job.parties.all)
        heard = verify_all(self._signers, manifest, peer, offer.consents, NO_DOCUMENTS, begun=False)
        return manifest, {MANIFEST: bytes(offer.manifest), **heard}

    def _check_compared(self, names: Sequence[str]) -> None:
        """Under the preset ``strict`` refuse parties whose consents this node could not verify by a card that was compared.

        Raises:
            PolicyError: there is one (``E_CONSENT``).
        """
        settings = self._settings
        if settings.rules.preset != "strict" or not settings.pairs:
            return
        if bare := [name for name in names if name != settings.name and not self._signers.is_compared(name)]:
            text = f"preset strict: this node has no card of {' and '.join(bare)} whose words were compared"
            hint = f"{self._signers.advise(bare[0])}; or choose another preset"
            raise PolicyError(text, code="E_CONSENT", hint=hint, for_peer="it has no card of a party that was compared")

    def _check_cards(self, manifest: Manifest) -> None:
        """Refuse a manifest in which a party has another card than here, or its submitter (``strict``: any party) has none.

        Raises:
            PolicyError: it is like that (``E_CONSENT``).
        """
        ours, theirs = self._signers.digests([party.name for party in manifest.parties]), manifest.signers
        must = ours if self._settings.rules.preset == "strict" else [manifest.requested_by.party]
        differing = [name for name, digest in theirs.items() if ours.get(name, digest) != digest]
        differing += [name for name in must if name in ours and name not in theirs]
        if self._settings.name in theirs and self._settings.name not in ours:
            differing.append(self._settings.name)
        if differing:
            raise unusable(f"the manifest has another card of {' and '.join(differing)} than this node")

    def decide(self, job: Job, submitter: str, manifest: Manifest | None, stored: Record | None = None) -> Decision:
        """Who says yes to a job of a peer, by the policy of the settings.

        Args:
            job: the job.
            submitter: the peer.
            manifest: of the job; None: it has none.
            stored: the job itself, where it is stored: what was approved before it counts.

        Raises:
            PolicyError: nobody does (``E_POLICY``).
            StateError: what is kept of an earlier job is damaged (``E_STATE_CORRUPT``).
        """
        policy = self._settings.rules
        remembers = manifest is not None and any(line.when.same_as_approved for line in policy.approve)
        known = remembers and manifest is not None and self._was_approved(manifest.terms, stored)
        asker = manifest.requested_by.party if manifest else submitter
        submitters = tuple(dict.fromkeys((submitter, asker)))
        decision = policy.decide(Asked(job, self._settings.name, submitters, known=known))
        if decision.by == "nobody":
            why: Why = "kind" if decision.line.startswith("never") else "partner"
            raise refusal(why, f"this node's policy refuses job {job.name!r} ({decision.line})", f"see {decision.line}")
        return decision

    def _was_approved(self, terms: str, stored: Record | None) -> bool:
        """Whether persons here have approved the job of these terms on which they decided last, of those before ``stored``.

        Jobs that this owner submits do not count: nobody is asked about them.
        """
        for record in filter(None, map(self._store.get, self._store.kept_with(TERMS, terms.encode()))):
            later = stored is not None and (record.id == stored.id or record.submitted > stored.submitted)
            if record.submitter == self._settings.name or later:
                continue
            with suppress(PolicyError, StateError):  # a damaged one counts for nothing
                if (decision := self.decision(record.id)) and decision[0].by == "persons":
                    return decision[0].verdict == "approve"
        return False

    def check_same(self, offer: Offer) -> None:
        """Refuse another manifest under the id of a job of this node.

        Raises:
            PolicyError: it is another one (``E_MANIFEST``).
            StateError: what is kept is damaged (``E_STATE_CORRUPT``).
        """
        if self._store.documents(offer.job_id).get(MANIFEST, b"") != offer.manifest:
            text = "this job has another manifest"
            raise PolicyError(text, code="E_MANIFEST", hint="one job has one manifest: submit it again", for_peer=text)

    def answer(self, manifest: Manifest, verdict: Verdict, by: By, note: str = "", persons: Sequence[str] = ()) -> Documents:
        """This party's answer, signed where it has a card in the manifest; to be kept with the job. Raises UsageError.

        Args:
            manifest: that is answered.
            verdict: the answer.
            by: who gives it.
            note: for this owner alone.
            persons: their names, which stay here.
        """
        salt = secrets.token_hex(16)
        consent = make_consent(manifest, self._settings.name, verdict, by, [_pseudonym(salt, name) for name in persons])
        key = self._signers.key if consent.party in manifest.signers else None
        told = {NOTE: note[:MOST_NOTE].encode()} if note else {}
        who = {PERSONS: json.dumps({"salt": salt, "names": list(persons)}).encode()} if persons else {}
        signed = sign_consent(consent, key) if key else consent.to_bytes()
        CONSENTS.series(verdict, by).inc()
        return {name_of(consent.party): signed, TERMS: manifest.terms.encode(), **told, **who}

    def deciders(self, job_id: str) -> list[str]:
        """Names of the persons who have decided here; none where it was the policy, or an earlier version."""
        data = self._store.documents(job_id).get(PERSONS)
        return list(json.loads(data)["names"]) if data else []

    def said_yes(self, job_id: str) -> list[Yes]:
        """The persons who have said yes here while another one must, too."""
        kept = self._store.documents(job_id)
        said = []
        for name, data in kept.items():
            with suppress(ValueError, TypeError):  # of another release: it counts for nothing
                said += [Yes(**json.loads(data))] if name.startswith(YES) else []
        return sorted(said, key=lambda each: each.at)

    def keep_yes(self, job_id: str, said: Yes) -> None:
        """Keep that a person has said yes. Raises StateError."""
        self._store.keep(job_id, {f"{YES}{said.person} {said.mark}": json.dumps(asdict(said)).encode()})

    def manifest(self, job_id: str) -> Manifest | None:
        """The manifest of a job; None for one of an earlier version. Raises StateError, PolicyError where it is damaged."""
        data = self._store.documents(job_id).get(MANIFEST)
        return parse_manifest(data) if data else None

    def decision(self, job_id: str) -> tuple[Consent, str] | None:
        """This party's answer and what its owner has noted of it; None where nobody has answered yet."""
        documents = self._store.documents(job_id)
        data = documents.get(name_of(self._settings.name))
        return (parse_consent(data), documents.get(NOTE, b"").decode(errors="replace")) if data else None


class JobConsents:
    """The consents to one job: which are needed, which are here, and those that peers send. Safe to use from several threads.

    Args:
        settings: of this node.
        store: its jobs.
        job_id: of the job.

    Raises:
        StateError: what is kept with the job is damaged (``E_STATE_CORRUPT``).
        PolicyError: likewise (``E_MANIFEST``).
    """

    def __init__(self, settings: Settings, store: Store, job_id: str) -> None:
        self._settings, self._store, self._id, self._signers = settings, store, job_id, Signers(settings)
        self._kept: Documents = store.documents(job_id)
        self.manifest = self._kept.get(MANIFEST, b"")
        self._read = parse_manifest(self.manifest) if self.manifest else None

    @property
    def signers(self) -> list[str]:
        """The parties that sign, in the order of the job."""
        return list(self._read.signers) if self._read else []

    @property
    def missing(self) -> list[str]:
        """Those whose consent is not here."""
        return [name for name in self.signers if name_of(name) not in self._kept]

    @property
    def envelopes(self) -> list[bytes]:
        """The signed consents that are here, in the order of the parties."""
        kept = self._kept
        return [kept[name_of(name)] for name in self.signers if name_of(name) in kept]

    @property
    def expired(self) -> bool:
        """Whether it is too late to answer."""
        return self._read is not None and self._read.has_expired()

    @property
    def marks(self) -> ConsentMarks:
        """What the parties compare before anything else is sent."""
        if self._read is None:
            return NO_MARKS
        signed = hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in self.envelopes)).digest()
        return ConsentMarks(bytes.fromhex(self._read.digest), signed if self.signers else b"")

    def covers(self, envelopes: Sequence[bytes]) -> bool:
        """Whether these are all that are needed, as they are here."""
        return not self.missing and set(self.envelopes) <= set(envelopes)

    def cards_for(self, peer: str) -> list[bytes]:
        """The cards that go to ``peer`` with the job. Raises PolicyError, UsageError where one is damaged."""
        return cards_for(self._settings, self._read, peer) if self._read else []

    def hear_cards(self, peer: str, envelopes: Sequence[bytes]) -> None:
        """Keep the cards that ``peer`` has sent with the job. Raises as :func:`vfl_node.trust.relaying.hear_cards`."""
        if self._read:
            hear_cards(self._settings, self._read, peer, envelopes)

    def hear(self, peer: str, envelopes: Sequence[bytes], *, begun: bool) -> None:
        """Keep the consents that ``peer`` has sent; of one party the first one counts.

        That of a party whose card is not here counts as the active party passes it on.

        Args:
            peer: who has sent them.
            envelopes: the consents.
            begun: whether the job has begun.

        Raises:
            PolicyError: one does not count (``E_CONSENT``); none is kept then.
            StateError: they cannot be stored.
            UsageError: a card cannot be read.
        """
        if self._read is None:
            return
        new = verify_all(self._signers, self._read, peer, envelopes, self._kept, begun=begun)
        if new:
            failpoints.reach("consents")
            self._store.keep(self._id, new)
            self._kept = {**self._kept, **new}


def verify_all(
    signers: Signers, manifest: Manifest, peer: str, envelopes: Sequence[bytes], kept: Documents, *, begun: bool
) -> Documents:
    """Those of the consents that ``peer`` has sent which are not ``kept``, to be kept. Raises as :meth:`JobConsents.hear`."""
    new: dict[str, bytes] = {}
    for envelope in envelopes:
        party = parse_consent(envelope).party
        if envelope == kept.get(name_of(party)):
            continue
        card = signers.card(party)
        if card is None and peer not in (party, manifest.parties[0].name):
            raise unusable(f"{peer} sends that of {party}, which only {party} and the active party may")
        read_consent(envelope, manifest, card, begun=begun)
        if name_of(party) in kept or name_of(party) in new:
            raise unusable(f"there is another one of {party}")
        new[name_of(party)] = envelope
    return new


def _pseudonym(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt} {name}".encode()).hexdigest()[:16]


def name_of(party: str) -> str:
    """The name under which the answer of ``party`` is kept with a job."""
    return f"consent {party}"
