"""An alignment of an earlier job, used again: the parties say that they have it, and align nothing.

What it tells: that the same records are trained on again, which the marks of an alignment would tell, too. The records are
those of then. A table may have grown since, and cells may be others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.marks import Marks
from vfl_node.data.tables import Table, prune_levels
from vfl_node.errors import PeerError, StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job, JobId
from vfl_node.process.files import read_checked, write_checked, write_whole
from vfl_node.session.memory import Memory, mark_secret
from vfl_node.session.session import Session
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

REUSE = "E_REUSE_ALIGN"


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


def copy_records(earlier: JobFolder, folder: JobFolder) -> None:
    """Keep in ``folder`` which records took part in an earlier job, and which were held out. Raises OSError, StateError."""
    write_checked(folder.rows, read_checked(earlier.rows))
    if split := read_split(earlier, earlier.path.name):
        write_checked(folder.earlier_split, split)


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


async def reuse_alignment(session: Session, source: JobFolder, others: Sequence[str]) -> Alignment:
    """The alignment of an earlier job, once every other party has said that it has the same.

    Args:
        session: this party's.
        source: the folder of that job, or of this one, which has a copy.
        others: the other data parties.

    Raises:
        PeerError: a peer has another one (``E_REUSE_ALIGN``).
        StateError: it is damaged here (``E_STATE_CORRUPT``).
    """
    alignment_of = str(session.job.align.reuse)
    if (stored := source.load_alignment(others)) is None:
        raise absence_error(alignment_of)
    alignment, terms = stored[0], session.job.align
    about = f"{alignment_of} {alignment.protocol} {alignment.group} {terms.padding} {terms.dummies} {len(alignment)}"
    digest = hashlib.sha256(b"vfl-node alignment " + about.encode() + (read_split(source, alignment_of) or b"")).digest()
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
