"""``vfl-node audit`` at a node: find the job, whether the node runs or not, and audit its kept half of the model."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import closing

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import StateError, UsageError
from vfl_node.execution import feature_audit
from vfl_node.execution.feature_audit import FeatureAuditResult
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input, select_records
from vfl_node.job import Job, parse_job
from vfl_node.node.client import Client
from vfl_node.node.partners import Partner
from vfl_node.node.states import STANDING
from vfl_node.node.store import Store
from vfl_node.session.memory import join_memories
from vfl_node.settings.node import Settings, role_in
from vfl_node.settings.protection import FeatureAuditSettings

KNOWN_SHARE = float(FeatureAuditSettings.model_fields["known_share"].default)


def audit(
    settings: Settings, job_id: str, columns: Sequence[str] | None = None, known_share: float | None = None
) -> FeatureAuditResult:
    """Repeat the feature audit of an ended job with fresh decoders on the half that this node has kept.

    It only reads what the job has left, so the node may be running.

    Args:
        settings: of this node.
        job_id: the job.
        columns: that are rebuilt; none: all that can be; None: as ``audit.features`` of the settings says, else all.
        known_share: likewise, else :data:`KNOWN_SHARE`.

    Raises:
        UsageError: there is no such job (``E_UNKNOWN_JOB``), or this node is not its passive party (``E_ROLE``); as
            :func:`vfl_node.execution.feature_audit.audit`.
        StateError: the job has not ended well, or trained nothing that sends embeddings (``E_NO_MODEL``); likewise.
        DataError: the table cannot be used.
    """
    wished = settings.audit.features
    names = (wished.names if wished else ()) if columns is None else tuple(columns)
    share = (wished.known_share if wished else KNOWN_SHARE) if known_share is None else known_share
    job, folder = _load_ended(settings, job_id)
    table = _part(settings, job)
    return feature_audit.audit(settings, job, folder, table, names, share, Randomness(secrets.token_bytes(32)))


def _load_ended(settings: Settings, job_id: str) -> tuple[Job, JobFolder]:
    """A job that has left a half of a model here, and its folder."""
    if settings.role != "passive":
        raise UsageError(
            f"{settings.name} is {settings.role} and sends no embeddings, from which columns could be rebuilt",
            code="E_ROLE",
            hint="audit at a passive node",
        )
    state = _state(settings, job_id)
    if state != "done":
        raise _nothing(job_id, f"it is {state}", "audit it when it is done" if state in STANDING else "train again")
    path = settings.state_dir / "jobs" / job_id
    if not path.is_dir():  # which JobFolder would make
        raise StateError(f"{path} is gone", code="E_STATE_LOST", hint="restore it from a backup, or train again")
    folder = JobFolder(path)
    report = json.loads(folder.artefact("report.json").read_bytes())
    job = parse_job(json.dumps(report["job"]["spec"]), source=f"job {job_id}")
    if role_in(job.parties, settings.name) != "passive":
        raise UsageError(f"{settings.name} is no passive party of job {job_id}", code="E_ROLE", hint="audit at its own node")
    if job.train is None or not job.train.parts.embedded:
        does = f"its trainer {job.train.algorithm!r} sends no embeddings" if job.train else "it trained nothing"
        raise _nothing(job_id, does, "audit a job of split training")
    return job, folder


def _state(settings: Settings, job_id: str) -> str:
    """How the job is, by the running node or by its index. Raises UsageError (``E_UNKNOWN_JOB``)."""
    try:
        return str(Client.from_settings(settings).job(job_id)["state"])
    except UsageError as error:
        if error.code != "E_NOT_RUNNING":
            raise
    with closing(Store(settings.state_dir)) as store:
        return store.record(job_id).state


def _part(settings: Settings, job: Job) -> Table:
    """The records of this party that took part in the job."""
    table = read_input(settings, job)
    if job.align.at_most is None or len(table) <= job.align.at_most:
        return table
    partners = [Partner(settings.state_dir / "partners", name) for name in job.parties.others(settings.name)]
    return select_records(table, job.align, join_memories(partners), settings.limits_for(job), settings.name)


def _nothing(job_id: str, why: str, hint: str) -> StateError:
    return StateError(f"job {job_id} has no half of a model to audit: {why}", code="E_NO_MODEL", hint=hint)
