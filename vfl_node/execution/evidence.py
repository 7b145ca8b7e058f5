"""Weights of evidence that an earlier job has counted, as they are kept for trainings over its alignment."""

from __future__ import annotations

from contextlib import suppress

from vfl_node.data.evidence import KeptEvidence
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job, JobId
from vfl_node.process.files import read_checked

EVIDENCE = "E_EVIDENCE"


def read_evidence(folder: JobFolder, job_id: JobId) -> KeptEvidence | None:
    """The weights of evidence that belong to the alignment of job ``job_id``, as :func:`read_split` finds the seed.

    Returns:
        None if neither that job nor one whose alignment it used has counted any.

    Raises:
        StateError: they are damaged, or of another version (``E_STATE_CORRUPT``, ``E_STATE_VERSION``).
    """
    path = folder.evidence if folder.path.name == job_id else folder.earlier_evidence
    with suppress(FileNotFoundError):
        return KeptEvidence.from_json(read_checked(path, hint="leave align.reuse out").decode())
    return None


def evidence_absence_error(job_id: JobId | None) -> StateError:
    """No weights of evidence belong to the alignment of this job; None: to none that all parties have kept."""
    alignment = f"the alignment of job {job_id}" if job_id else "an alignment of these records that all parties have kept"
    return StateError(
        f"no weights of evidence are kept here that belong to {alignment}",
        code=EVIDENCE,
        hint="run a job with statistics of the same parties, tables and align first, then this one with align.reuse: auto, or "
        "the id of that job; or say train.transform: none",
        for_peer="it has no weights of evidence (train.transform: woe) that belong to the alignment to be used again",
    )


def check_noise(job: Job, kept: KeptEvidence) -> None:
    """Refuse a training with an ε by weights of evidence without noise, by which one record moves many rows.

    Raises:
        UsageError: it is one (``E_EVIDENCE``). That follows from the two jobs alone.
    """
    if job.train is None or job.train.model_epsilon is None or kept.noised:
        return
    raise UsageError(
        f"job {kept.columns.job} counted weights of evidence without noise (statistics: {{epsilon: null}}): one record moves "
        "the weight of each other one in its bin, which train.epsilon does not cover",
        code=EVIDENCE,
        hint="run statistics with an epsilon, and name that job in align.reuse; or say train.epsilon: null, which each party's "
        "owner must allow (unbounded_models)",
        for_peer="weights of evidence were counted without noise, and train.epsilon does not cover them",
    )
