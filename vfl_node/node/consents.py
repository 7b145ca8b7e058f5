"""The manifests of a node's jobs, and this party's answers to them: made, checked, and kept in the index with the job."""

from __future__ import annotations

from vfl_node.errors import PolicyError
from vfl_node.job import Job
from vfl_node.node.predictions import trained_with
from vfl_node.node.record import MANIFEST, Documents
from vfl_node.node.store import Store
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Offer
from vfl_node.trust.consents import By, Consent, Verdict, make_consent, parse_consent
from vfl_node.trust.manifest import Manifest, make_manifest, parse_manifest, read_manifest

NOTE = "note"
"""Name of what this owner has noted of a decision, for itself."""

MOST_NOTE = 500
"""Characters of it."""


class Consents:
    """What is agreed on about jobs, beside the jobs themselves.

    Args:
        settings: of this node.
        store: its jobs.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def submit(self, job: Job, job_id: str) -> Documents:
        """Manifest and this owner's consent for a job that this owner submits.

        Raises:
            UsageError: something that the job names cannot be loaded (``E_EXTENSION``).
            PolicyError: the manifest would be too long (``E_MANIFEST``).
            StateError: the job predicts by a model that is not kept here (``E_NO_MODEL``).
        """
        manifest = make_manifest(
            job,
            job_id,
            federation=self._settings.federation,
            submitter=self._settings.name,
            cards={},
            trained=trained_with(self._store, job, self._settings.name),
        )
        return {MANIFEST: manifest.to_bytes(), **self.answer(manifest, "approve", "persons")}

    def take(self, offer: Offer, job: Job) -> Manifest | None:
        """The manifest that came with a peer's job; None without one.

        Raises:
            PolicyError: it is not this job's (``E_MANIFEST``), or it is too late to answer it (``E_CONSENT``).
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
        return manifest

    def check_same(self, offer: Offer) -> None:
        """Refuse another manifest under the id of a job of this node.

        Raises:
            PolicyError: it is another one (``E_MANIFEST``).
            StateError: what is kept is damaged (``E_STATE_CORRUPT``).
        """
        if self._store.documents(offer.job_id).get(MANIFEST, b"") != offer.manifest:
            text = "this job has another manifest"
            raise PolicyError(text, code="E_MANIFEST", hint="one job has one manifest: submit it again", for_peer=text)

    def answer(self, manifest: Manifest, verdict: Verdict, by: By, note: str = "") -> Documents:
        """This party's answer, to be kept with the job."""
        consent = make_consent(manifest, self._settings.name, verdict, by)
        told = {NOTE: note[:MOST_NOTE].encode()} if note else {}
        return {name_of(consent.party): consent.to_bytes(), **told}

    def manifest(self, job_id: str) -> Manifest | None:
        """The manifest of a job; None for one of an earlier version. Raises StateError, PolicyError where it is damaged."""
        data = self._store.documents(job_id).get(MANIFEST)
        return parse_manifest(data) if data else None

    def decision(self, job_id: str) -> tuple[Consent, str] | None:
        """This party's answer and what its owner has noted of it; None where nobody has answered yet."""
        documents = self._store.documents(job_id)
        data = documents.get(name_of(self._settings.name))
        return (parse_consent(data), documents.get(NOTE, b"").decode(errors="replace")) if data else None


def name_of(party: str) -> str:
    """The name under which the answer of ``party`` is kept with a job."""
    return f"consent {party}"
