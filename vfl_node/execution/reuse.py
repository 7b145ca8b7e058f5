"""An alignment of an earlier job, used again: the parties say that they have it, and align nothing.

::

    with reuse: auto       each passive ── what it has kept ──►  active
                           each passive ◄── the newest of all ── active        the decision is kept for all later attempts
    if there is such a one, or the job names one
                           digest of it, both ways

What it tells: that the same records are trained on again, which the marks of an alignment would tell, too. The records are
those of then. Where the job names it, a table may have grown since; with ``auto`` it has the same records. Cells may be others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.evidence import KeptEvidence
from vfl_node.data.marks import Marks
from vfl_node.data.tables import Table, prune_levels
from vfl_node.errors import PeerError, ProtocolError, StateError, UsageError
from vfl_node.execution.evidence import EVIDENCE, check_noise, evidence_absence_error, read_evidence
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job, JobId
from vfl_node.job.names import AUTO
from vfl_node.process.files import read_checked, write_checked, write_whole
from vfl_node.session.memory import Memory, mark_secret
from vfl_node.session.session import Session
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

REUSE = "E_REUSE_ALIGN"

_AGREED = "reused"

MOST_OFFERED = 16
"""Alignments of which a party says that it has kept them, the newest ones."""


def earlier_folder(folder: JobFolder, job_id: JobId) -> JobFolder:
    """The folder of the job whose alignment is used again. Raises StateError (``E_REUSE_ALIGN``) if nothing is kept of it."""
    path = folder.path.parent / job_id
    if not path.is_dir() or not (earlier := JobFolder(path, folder.trial)).keeps_alignment:
        raise absence_error(job_id)
    return earlier


def absence_error(job_id: JobId) -> StateError:
    """The alignment of this job is not kept here."""
    return StateError(
        f"the alignment of job {job_id} is not kept here",
        code=REUSE,
        hint="leave align.reuse out; retention.alignments_keep in the settings says of how many jobs it is kept",
        for_peer=f"it has not kept the alignment of job {job_id}",
    )


def select_aligned(table: Table, earlier: JobFolder, memory: Memory) -> Table:
    """The records that took part in an earlier job, in their order then, as they are now.

    Raises:
        StateError: one is gone (``E_REUSE_ALIGN``), or what is kept is damaged (``E_STATE_CORRUPT``).
    """
    then = Marks.from_bytes(read_checked(earlier.rows, hint="leave align.reuse out"))
    places = then.find_in(Marks.from_table(table, mark_secret(memory)))
    if gone := int((places < 0).sum()):
        raise StateError(
            f"{gone:,} of the {len(then):,} records that took part in job {earlier.path.name} are not in the table any more",
            code=REUSE,
            hint="leave align.reuse out",
            for_peer=f"its records are not those of job {earlier.path.name} any more",
        )
    return prune_levels(table.take(places))


def read_split(folder: JobFolder, job_id: JobId) -> bytes | None:
    """The seed by which job ``job_id`` held out rows, as ``folder``, its own or that of a job that uses its alignment, has it.

    Returns:
        None if that job trained nothing.

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``).
    """
    with suppress(FileNotFoundError):
        return read_checked(folder.split if folder.path.name == job_id else folder.earlier_split, hint="leave align.reuse out")
    return None


def check_evidence(session: Session, folder: JobFolder) -> None:
    """Refuse a training by weights of evidence that are not there, or that it may not read.

    Raises:
        StateError: there are none (``E_EVIDENCE``).
        UsageError: they have no noise and the training has an ε, or they know labels of rows that would be measured on
            (``E_EVIDENCE``).
    """
    job, kept = session.job, session.attempt.evidence
    if job.train is None or not job.train.reads_evidence:
        return
    if kept is None:
        raise evidence_absence_error(reused_job(job, folder.path))
    check_noise(job, kept)
    fraction = job.evaluate.test_fraction
    if not kept.spares(fraction, session.attempt.split):
        raise UsageError(
            f"job {kept.columns.job} counted labels of records that this one would hold out (evaluate.test_fraction is "
            f"{fraction:g} here and was {kept.held_out:g} there): this model would be measured on labels that it knows",
            code=EVIDENCE,
            hint=f"say evaluate.test_fraction: {kept.held_out:g} or less; or run statistics again that hold out as much",
            for_peer="evaluate.test_fraction is more than where weights of evidence were counted",
        )


def reused_job(job: Job, path: Path) -> JobId | None:
    """The earlier job whose alignment ``job`` uses, whose folder is at ``path``; None: none, or with ``auto`` not yet.

    Raises:
        StateError: what the parties have agreed on is damaged (``E_STATE_CORRUPT``).
    """
    return (_read_agreed(path) or None) if job.align.reuse == AUTO else job.align.reuse


def _read_agreed(path: Path) -> JobId | None:
    """What the parties have agreed on, for all attempts: a job, or none (an empty text); None: they have not met yet."""
    with suppress(FileNotFoundError):
        return read_checked(path / _AGREED, hint="submit the job again as a new one").decode()
    return None


def _keep_agreed(path: Path, job_id: JobId) -> None:
    write_checked(path / _AGREED, job_id.encode())


@dataclass(frozen=True, eq=False)
class Recalled:
    """What a party has kept of an earlier job whose alignment is used again.

    Attributes:
        table: its records, as they are now.
        split: as :func:`read_split`.
        evidence: as :func:`read_evidence`.
    """

    table: Table
    split: bytes | None
    evidence: KeptEvidence | None


def recall_records(table: Table, folder: JobFolder, job_id: JobId, memory: Memory) -> Recalled:
    """What is kept of an earlier job. Raises StateError as :func:`select_aligned`, and :func:`read_evidence`."""
    source = source_folder(folder, job_id)
    return Recalled(select_aligned(table, source, memory), read_split(source, job_id), read_evidence(source, job_id))


def source_folder(folder: JobFolder, job_id: JobId) -> JobFolder:
    """Where the alignment of an earlier job is: in the ``folder`` of the job that uses it, once that has a copy."""
    return folder if folder.keeps_alignment else earlier_folder(folder, job_id)


def copy_records(earlier: JobFolder, folder: JobFolder) -> None:
    """Keep in ``folder`` which records took part in an earlier job, and what was drawn for them. Raises OSError, StateError."""
    write_checked(folder.rows, read_checked(earlier.rows))
    if earlier.synthetic.exists():
        write_checked(folder.synthetic, read_checked(earlier.synthetic))
    if split := read_split(earlier, earlier.path.name):
        write_checked(folder.earlier_split, split)
    if evidence := read_evidence(earlier, earlier.path.name):
        write_checked(folder.earlier_evidence, evidence.to_json().encode())


def copy_model(job: Job, folder: JobFolder) -> Path | None:
    """This party's half of the model from which ``job`` goes on, copied to ``folder``; None if it begins anew.

    Raises:
        StateError: the half is gone or damaged (``E_STATE_LOST``, ``E_STATE_CORRUPT``).
    """
    if not (name := getattr(job.train, "start_from", None)):
        return None
    path = folder.path / "start.safetensors"
    if not path.exists():
        write_whole(path, earlier_folder(folder, name).artefact("model.safetensors").read_bytes())
    return path


async def agree_reuse(session: Session, folder: JobFolder, table: Table, kept: Sequence[JobId]) -> JobId | None:
    """The newest earlier job whose alignment all data parties have kept, of the same records; kept for all later attempts.

    Args:
        session: this party's, of a job with ``align.reuse: auto``.
        folder: of the job.
        table: this party's records that take part now.
        kept: earlier jobs on the same terms whose alignment this party has kept, newest first.

    Returns:
        None if there is none. Nothing that one party alone lacks, or has damaged, is an error in the first attempt.

    Raises:
        PeerError: a peer has no more what the parties agreed on in an earlier attempt (``E_REUSE_ALIGN``).
        ProtocolError: the active party chooses what this one has not offered (``E_ORDER``).
        StateError: this party has it no more (``E_REUSE_ALIGN``, ``E_STATE_CORRUPT``).

    Leaks: to the active party of which earlier jobs on the same terms this one has kept the alignment, if its records have not
        changed since; for a training by weights of evidence, of which of these it has kept such weights. To a passive one which
        of these all have. By the marks of an alignment each sees, too, whether records have changed.
    """
    before = _read_agreed(folder.path)
    if before:
        offered = {_load(session, source_folder(folder, before), before)[1]: before}
    else:
        offered = _list_equal(session, folder, table, kept) if before is None else {}
    async with session.phase("agreement"):
        if session.role == "active":
            theirs = {
                peer: set((await channel.receive(alignment_pb2.KeptAlignments)).sha256)
                for peer, channel in session.data_peers.items()
            }
            if before and (lacking := [peer for peer, each in theirs.items() if each.isdisjoint(offered)]):
                raise _lack_error(lacking[0], before)
            chosen = next((digest for digest in offered if all(digest in each for each in theirs.values())), b"")
            job_id = offered.get(chosen, "")
            _keep_agreed(folder.path, job_id)  # first: what a peer has heard holds for this party, too
            for channel in session.data_peers.values():
                await channel.send(alignment_pb2.Reused(sha256=chosen))
        else:
            await session.peer.send(alignment_pb2.KeptAlignments(sha256=list(offered)))
            chosen = (await session.peer.receive(alignment_pb2.Reused)).sha256
            job_id = offered.get(chosen, "")
            if (chosen and not job_id) or (before is not None and job_id != before):
                raise ProtocolError(f"{session.peer.peer} chooses an alignment that this party has not offered", code="E_ORDER")
            _keep_agreed(folder.path, job_id)
    return job_id or None


def _list_equal(session: Session, folder: JobFolder, table: Table, kept: Sequence[JobId]) -> dict[bytes, JobId]:
    """Those of the earlier jobs that had exactly the records of ``table``: the digest of each alignment → the job.

    For a training by weights of evidence those alone that have some.
    """
    offered: dict[bytes, JobId] = {}
    by_evidence = session.job.train is not None and session.job.train.reads_evidence
    if not kept:
        return offered
    now = Marks.from_table(table, mark_secret(session.memory))
    for job_id in kept[:MOST_OFFERED]:
        with suppress(StateError, FileNotFoundError):  # what is gone or damaged here is aligned anew
            source = earlier_folder(folder, job_id)
            then = Marks.from_bytes(read_checked(source.rows))
            equal = len(then) == len(now) and (then.find_in(now) >= 0).all()
            if equal and (read_evidence(source, job_id) or not by_evidence):
                offered[_load(session, source, job_id)[1]] = job_id
    return offered


def _load(session: Session, source: JobFolder, alignment_of: JobId) -> tuple[Alignment, bytes]:
    """An alignment that is kept, and a digest of what all parties know of it and of how rows were held out; 32 bytes.

    For a training by weights of evidence also of which job has counted them.
    """
    if (stored := source.load_alignment(session.others)) is None:
        raise absence_error(alignment_of)
    alignment, terms = stored[0], session.job.align
    about = f"{alignment_of} {alignment.protocol} {alignment.group} {terms.padding} {terms.dummies} {len(alignment)}"
    if session.job.train is not None and session.job.train.reads_evidence:
        evidence = read_evidence(source, alignment_of)
        about += f" {evidence.columns.job if evidence else ''}"
    held_out_by = read_split(source, alignment_of) or b""
    return alignment, hashlib.sha256(b"vfl-node alignment " + about.encode() + held_out_by).digest()


def _lack_error(peer: str, job_id: JobId) -> PeerError:
    return PeerError(
        f"{peer} has not kept the alignment of job {job_id}, which an earlier attempt of this job agreed on",
        code=REUSE,
        hint="submit the job again as a new one: it aligns anew",
        for_peer=f"the alignment of job {job_id}, which an earlier attempt agreed on, is not kept at all parties",
    )


async def reuse_alignment(session: Session, source: JobFolder, alignment_of: JobId) -> Alignment:
    """The alignment of an earlier job, once every other party has said that it has the same.

    Args:
        session: this party's.
        source: the folder of that job, or of this one, which has a copy.
        alignment_of: that job.

    Raises:
        PeerError: a peer has another one (``E_REUSE_ALIGN``).
        StateError: it is damaged here (``E_STATE_CORRUPT``).
    """
    alignment, digest = _load(session, source, alignment_of)
    async with session.phase("align"):
        for channel in session.data_peers.values():
            await channel.send(alignment_pb2.Reused(sha256=digest))
        for peer, channel in session.data_peers.items():
            if (await channel.receive(alignment_pb2.Reused)).sha256 != digest:
                raise PeerError(
                    f"{peer} has kept another alignment of job {alignment_of}",
                    code=REUSE,
                    hint="leave align.reuse out",
                    for_peer=f"its alignment of job {alignment_of} is another one",
                )
    return alignment
