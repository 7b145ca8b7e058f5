"""``vfl-node run --transcript``: what each party received in training, for outside judges of attacks and defences.

One file a receiver, ``RECEIVER.npz``; an active party that hears several has one a sender, ``RECEIVER.SENDER.npz``. Projections
have files of their own. Only a run on one machine writes them, whose user has all tables anyway: rows of the sender's file say
whose record an embedding is of, and rows of the active party's file what lies beside it. No party knows both: they are joined
here, by the shared position, once the run has ended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from vfl_node.errors import UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.process.files import private_folder
from vfl_node.session.transcript import Transcript, What


def check_transcribable(job: Job) -> None:
    """Refuse, before the run starts, a job in which no embeddings are exchanged.

    Raises:
        UsageError: it trains nothing, or otherwise.
    """
    hint = "leave --transcript out"
    if job.train is None:
        raise UsageError("--transcript: this job only aligns, so no embeddings are exchanged", hint=hint)
    if not job.train.traits.recorded:
        text = f"--transcript: training by {job.train.algorithm!r} exchanges no embeddings and gradients of rows"
        raise UsageError(text, hint=f"{hint}, or train by 'split'")


def prepare_transcripts(job: Job, out: Path) -> None:
    """Make the folder ``out`` for this user only (0700), and remove from it what an earlier run of such a job left.

    Raises:
        UsageError: that is not possible, or no file can be written there (``E_FILE``).
    """
    try:
        private_folder(out)
        with tempfile.TemporaryFile(dir=out):
            pass  # before hours of training, not after them
        for *_, name in _files(job):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        hint = "name a folder of your own, and no symbolic link"
        raise UsageError(f"--transcript {out}: {error.strerror}", code="E_FILE", hint=hint) from None


def write_transcripts(job: Job, folders: Mapping[str, JobFolder], out: Path) -> None:
    """Write what each party received into the folder ``out``.

    Args:
        job: the job, which has ended.
        folders: data party → its folder of the job.
        out: as :func:`prepare_transcripts` made it.

    Raises:
        UsageError: a file cannot be written (``E_FILE``).
    """
    active = Transcript(folders[job.parties.active].transcript)
    for passive, what, column, name in _files(job):
        left = Transcript(folders[passive].transcript)
        steps = left.projections if what == "projections" else left.embeddings
        try:
            steps.write(out / name, what, column, active.rows)
        except OSError as error:
            hint = "the reports are written; the same run with another --transcript writes these files, too"
            raise UsageError(f"cannot write {out / name}: {error.strerror}", code="E_FILE", hint=hint) from None


def _files(job: Job) -> Iterator[tuple[str, What, Literal["sent", "got"], str]]:
    """The passive party that recorded it, what the receiver got, as what that party noted it, and the name of the file."""
    assert job.train is not None
    active, passives = job.parties.active, job.parties.passive
    *_, projected = job.train.make_plan().sent_sizes()
    for passive in passives:
        to_active = f"{active}.{passive}" if len(passives) > 1 else active
        yield passive, "embeddings", "sent", f"{to_active}.npz"
        yield passive, "gradients", "got", f"{passive}.npz"
        if projected:
            yield passive, "projections", "sent", f"{to_active}.projections.npz"
            yield passive, "projections", "got", f"{passive}.projections.npz"
