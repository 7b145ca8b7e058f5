"""A party's answer to a manifest: whether the job may run with it.

What the peer learns: the answer; whether the owner was asked or a rule of the settings said it; and when.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from vfl_node.errors import PolicyError
from vfl_node.job import JobId, Name
from vfl_node.trust.manifest import Manifest

Verdict = Literal["approve", "refuse"]

By = Literal["rule", "persons"]
"""Who answered: the settings (``accept_jobs_from``), or the owner."""


class Consent(BaseModel):
    """One party's answer.

    Attributes:
        v: version of this form.
        manifest_sha256: digest of the manifest that is answered.
        job_id: of the job.
        party: that answers.
        verdict: its answer.
        by: who gave it.
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
    at: AwareDatetime
    expires: AwareDatetime

    def to_bytes(self) -> bytes:
        """Canonical JSON: keys sorted, UTF-8, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def make_consent(manifest: Manifest, party: str, verdict: Verdict, by: By, *, now: datetime | None = None) -> Consent:
    """The answer of ``party`` to ``manifest``."""
    return Consent(
        manifest_sha256=manifest.digest,
        job_id=manifest.id,
        party=party,
        verdict=verdict,
        by=by,
        at=(now or datetime.now(timezone.utc)).replace(microsecond=0),
        expires=manifest.expires,
    )


def parse_consent(data: bytes) -> Consent:
    """An answer as it was stored. Raises PolicyError (``E_CONSENT``)."""
    try:
        return Consent.model_validate_json(data)
    except ValidationError:
        raise unusable("it lacks something, or has what no consent has") from None


def unusable(what: str) -> PolicyError:
    """The error of a consent that does not count."""
    text = f"a consent cannot be used: {what}"
    return PolicyError(text, code="E_CONSENT", for_peer=text)
