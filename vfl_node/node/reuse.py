"""Which jobs may use the alignment of an earlier one again."""

from __future__ import annotations

from itertools import islice

from vfl_node.errors import UsageError
from vfl_node.execution.evidence import check_noise, evidence_absence_error, read_evidence
from vfl_node.execution.reuse import MOST_OFFERED, REUSE, absence_error
from vfl_node.job import Job, JobId, differing_fields
from vfl_node.job.names import AUTO
from vfl_node.node.store import Store

_AGREED = ("parties", "tables", "align")
"""Sections of a job that say what is aligned."""


def check_reuse(store: Store, job: Job) -> None:
    """Refuse a job that uses an alignment again which is not kept here, or which is of other parties, tables or terms.

    One with ``auto`` is not refused: where there is no such alignment it aligns.

    Raises:
        StateError: it is not kept here (``E_REUSE_ALIGN``), or weights of evidence are not that the job reads (``E_EVIDENCE``).
        UsageError: it is another one (``E_REUSE_ALIGN``), the training goes on from a model that held out other rows
            (``E_SPLIT``), or has an ε and weights without noise (``E_EVIDENCE``).
    """
    name = job.align.reuse
    if name in (None, AUTO):
        return
    record = store.get(name)
    if record is None or record.state != "done" or not store.job_folder(record).keeps_alignment:
        raise absence_error(name)
    earlier = record.job
    if others := _list_differing(job, earlier):
        is_theirs = set(job.parties.data) == set(earlier.parties.data)  # else nobody else may hear that there was such a job
        raise UsageError(
            f"job {job.name!r} cannot use the alignment of job {name} again: {', '.join(others)} differ",
            code=REUSE,
            hint="say the same parties, tables and align as that job, or leave align.reuse out",
            for_peer=f"{', '.join(others)} must be as in job {name}" if is_theirs else absence_error(name).for_peer,
        )
    _check_start(job, earlier)
    if job.train and job.train.reads_evidence:
        if not (evidence := read_evidence(store.job_folder(record), name)):
            raise evidence_absence_error(name)
        check_noise(job, evidence)


def list_kept(store: Store, job: Job) -> list[JobId]:
    """The earlier jobs of the same parties, tables and terms whose alignments are kept here, newest first.

    At most :data:`~vfl_node.execution.reuse.MOST_OFFERED`; none for a job that does not ask for them (``align.reuse: auto``).

    Raises:
        StateError: the index cannot be read.
    """
    if job.align.reuse != AUTO:
        return []
    jobs = store.folder / "jobs"
    done = (record for record in store.records() if record.state == "done" and not record.damaged and not record.predict)
    there = (record for record in done if (jobs / record.id).is_dir() and store.job_folder(record).keeps_alignment)
    return [record.id for record in islice((each for each in there if not _list_differing(job, each.job)), MOST_OFFERED)]


def _list_differing(job: Job, earlier: Job) -> list[str]:
    """The fields of what is aligned, and on which terms, that differ."""
    return [field for field in differing_fields(_terms(job), _terms(earlier)) if field != "align.reuse"]


def _check_start(job: Job, earlier: Job) -> None:
    """Refuse a training that goes on from a model, and would train on rows that the model was measured on.

    Raises:
        UsageError: it holds out other rows (``E_SPLIT``).
    """
    if not getattr(job.train, "start_from", None) or earlier.train is None:
        return
    ours, theirs = job.field_digests(), earlier.field_digests()
    fields = (
        "evaluate.test_fraction",
        "evaluate.validation_fraction",
        "evaluate.hold_out",
        "evaluate.hold_out.last",
        "train.seed",
    )
    if others := [name for name in fields if ours.get(name) != theirs.get(name)]:
        raise UsageError(
            f"job {job.name!r} goes on from the model of job {job.align.reuse}, and would train on rows held out there: "
            f"{', '.join(others)} differ",
            code="E_SPLIT",
            hint="say the same as that job, or leave train.start_from out",
            for_peer=f"{', '.join(others)} must be as in job {job.align.reuse}",
        )


def _terms(job: Job) -> dict[str, bytes]:
    """What is aligned, on which terms. The coordinator of a training takes no part in it."""
    return {
        name: digest
        for name, digest in job.field_digests().items()
        if name.split(".")[0] in _AGREED and name != "parties.coordinator" and not name.startswith("align.expect")
    }
