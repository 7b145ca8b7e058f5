"""What this node's owner is asked about jobs of peers, and what it answers."""

from __future__ import annotations

import re
from typing import Any

import structlog

from vfl_node.errors import UsageError, VflError, peer_text
from vfl_node.execution.allowed import check_allowed
from vfl_node.node.asked_words import describe
from vfl_node.node.consents import Consents
from vfl_node.node.endings import REFUSED, conclude
from vfl_node.node.record import Record
from vfl_node.node.spending import check_budget
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.process import failpoints
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import Settings
from vfl_node.trust.manifest import DIGITS, Manifest
from vfl_node.trust.refusal import RefusalReason

log = structlog.get_logger()

_DIGITS = re.compile(rf"[0-9a-f]{{{DIGITS},64}}")


class Approvals:
    """The owner's side of jobs in state ``asked``.

    Args:
        settings: of this node.
        store: its jobs.
        works: those under way.
    """

    def __init__(self, settings: Settings, store: Store, works: Works) -> None:
        self._settings, self._store, self._works = settings, store, works
        self._consents = Consents(settings, store)

    def asks(self) -> list[dict[str, Any]]:
        """The jobs that wait for the owner, oldest first: id, name, submitter, submitted, purpose, digest, expires, error.

        The error says why the manifest of a job cannot be read; then purpose, digest and expires are None.
        """
        return [self._describe_ask(record) for record in reversed(self._store.asked())]

    def show(self, job_id: str) -> dict[str, Any]:
        """What a job asks for, in plain words (:func:`vfl_node.node.asked_words.describe`).

        Raises:
            UsageError: there is no such job (``E_UNKNOWN_JOB``), or it has no manifest (``E_NO_MANIFEST``).
            StateError: what is stored is damaged (``E_STATE_CORRUPT``).
        """
        record = self._store.record(job_id)
        manifest = self._manifest(record)
        return describe(self._settings, self._store, record, manifest, self._consents.decision(job_id))

    def approve(self, job_id: str, digits: str, note: str = "") -> Record:
        """Let a job run, now.

        Args:
            job_id: of the job.
            digits: the first digits of its manifest's digest, eight at least, as the owner has seen them.
            note: for this node's owner alone.

        Raises:
            UsageError: the job does not wait for the owner (``E_NOT_ASKED``), or its digest is another one (``E_STALE``); it is
                too late (``E_CONSENT``).
            PolicyError: the settings do not allow the job by now, or there is no room for it.
            VflError: it cannot begin.
        """
        with self._works.beginning():
            record = self._asked(job_id)
            manifest = self._manifest(record)
            if not (_DIGITS.fullmatch(digits) and manifest.digest.startswith(digits)):
                hint = f"look at it, then say its digest: vfl-node show {job_id}"
                raise UsageError(f"{digits[:64]!r} is not the digest of what job {job_id} asks for", code="E_STALE", hint=hint)
            if manifest.has_expired():
                self._end(record, manifest, "time", f"nobody has answered until {manifest.expires:%Y-%m-%d %H:%M} UTC")
                raise UsageError(f"it is too late to approve job {job_id}", code="E_CONSENT", hint="it must be submitted again")
            check_allowed(self._settings, record.job, by_peer=True)
            check_budget(self._settings, record.job)
            self._works.check_room(record.submitter, serves=record.is_service, stored=True)
            failpoints.reach("decide")
            record = self._store.update(record, self._consents.answer(manifest, "approve", "persons", note), state="waiting")
            log.info("job approved", job=job_id, peer=record.submitter, digest=manifest.digest)
            failpoints.reach("decided")
            self._works.begin(record)
        return record

    def refuse(self, job_id: str, reason: str, note: str = "") -> Record:
        """Refuse a job. Its other parties are told the reason, and not the note.

        Raises:
            UsageError: the job does not wait for the owner (``E_NOT_ASKED``), or this is no reason (``E_REQUEST``).
            StateError: the answer cannot be stored.
        """
        if reason not in (reasons := [each.value for each in RefusalReason]):
            raise UsageError(f"a reason is one of {', '.join(reasons)}", code="E_REQUEST")
        with self._works.beginning():
            record = self._asked(job_id)
            return self._end(record, self._manifest(record), reason, note)

    def expire(self) -> None:
        """Refuse the jobs whose owner has not answered in time. Those with a damaged manifest stay. Raises StateError."""
        with self._works.beginning():
            for record in self._store.asked():
                try:
                    manifest = self._manifest(record)
                except VflError as error:  # the owner sees it among those asked about, and can cancel it
                    log.warning("a job that waits for the owner cannot be read", job=record.id, code=error.code)
                    continue
                if manifest.has_expired():
                    self._end(record, manifest, "time", "nobody has answered in time")

    def _end(self, record: Record, manifest: Manifest, reason: str, note: str) -> Record:
        failpoints.reach("decide")
        refused = {"state": "cancelled", "finished": utc_now(), "code": REFUSED, "message": f"its owner's reason: {reason}"}
        record = self._store.update(record, self._consents.answer(manifest, "refuse", "persons", note), **refused)
        log.info("job refused by the owner", job=record.id, peer=record.submitter, reason=reason)
        failpoints.reach("decided")
        return conclude(self._settings, self._store, record)

    def _asked(self, job_id: str) -> Record:
        record = self._store.record(job_id)
        if record.state != "asked":
            hint = "vfl-node asks lists the jobs that do"
            raise UsageError(f"job {job_id} does not wait for you ({record.state})", code="E_NOT_ASKED", hint=hint)
        return record

    def _manifest(self, record: Record) -> Manifest:
        manifest = self._consents.manifest(record.id)
        if manifest is None:
            raise UsageError(f"job {record.id} has no manifest: it is of an earlier version", code="E_NO_MANIFEST")
        return manifest

    def _describe_ask(self, record: Record) -> dict[str, Any]:
        ask = {"id": record.id, "name": record.name, "submitter": record.submitter, "submitted": record.submitted}
        try:
            manifest = self._manifest(record)
        except VflError as error:
            return ask | {"purpose": None, "digest": None, "expires": None, "error": error.message}
        purpose = manifest.purpose and peer_text(manifest.purpose, 200)
        return ask | {"purpose": purpose, "digest": manifest.digest, "expires": manifest.expires.isoformat(), "error": None}
