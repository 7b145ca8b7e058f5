"""The alignment of a run: stored by an earlier attempt, or computed now."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass

from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.errors import PeerError
from vfl_node.execution.overlap import OverlapDoubt, doubt_overlap
from vfl_node.execution.recognisable import key_cautions
from vfl_node.execution.reuse import agree_reuse, copy_records, recall_records, reuse_alignment, reused_job, source_folder
from vfl_node.execution.run import Run
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked
from vfl_node.progress import OverlapDoubted, ResultDoubted
from vfl_node.transport.pipe import Traffic


@dataclass(frozen=True)
class Aligned:
    """An alignment, and what it took.

    Attributes:
        alignment: the shared rows as this party sees them.
        seconds: wall time, waiting for the peers included.
        traffic: of its phase.
        doubt: that the ids may not meet, if so few records are shared.
        reused: the job whose alignment it is, if it is that of an earlier one.
        recognisable: what the coordinator of a linkage recognises by a public list, if this party's owner has one.
    """

    alignment: Alignment
    seconds: float
    traffic: Traffic
    doubt: OverlapDoubt | None = None
    reused: str | None = None
    recognisable: tuple[str, ...] = ()


async def settle_reuse(run: Run) -> Run:
    """The run with what is kept of the earlier alignment that all data parties use again, if there is one.

    Raises, and leaks: as :func:`vfl_node.execution.reuse.agree_reuse`.
    """
    session, data = run.session, run.data
    if (job_id := await agree_reuse(session, run.folder, data.table, run.kept)) is None:
        return run
    recalled = recall_records(data.whole, run.folder, job_id, session.memory)
    attempt = dataclasses.replace(session.attempt, split=recalled.split, evidence=recalled.evidence)
    session = dataclasses.replace(session, attempt=attempt)
    return dataclasses.replace(run, session=session, inputs=dataclasses.replace(data, table=recalled.table))


async def align_or_load(run: Run, *, resume: bool) -> Aligned:
    """Align, or take what an earlier attempt stored; all parties know then that all have it.

    Args:
        run: this party's.
        resume: whether all parties have stored theirs.

    Raises:
        VflError: as :func:`vfl_node.alignment.protocols.align`.
        DataError: as :func:`vfl_node.execution.recognisable.key_cautions`; this attempt has sent no key then.
        PolicyError: a peer stopped, and too few records are shared to go on (``E_TOO_FEW_SHARED``).
    """
    session, folder = run.session, run.folder
    known = key_cautions(session.job, session.policy.protection.linkage, run.data.table.keys, session.name)
    for text in known:
        session.progress.emit(ResultDoubted(text))
    stored, reuse = folder.load_alignment(session.others) if resume else None, reused_job(session.job, folder.path)
    if stored is None and reuse:
        began = session.machine.clock()
        source = source_folder(folder, reuse)
        alignment = await reuse_alignment(session, source, reuse)
        stored = alignment, session.machine.clock() - began, session.traffic()["align"]
        if source is not folder:
            copy_records(source, folder)  # first: a later attempt goes by these, also where the earlier job has been pruned
        _keep_synthetic(run)
        folder.save_alignment(*stored)
    elif stored is None:
        records = OwnRecords(run.data.table.ids, run.data.whole.identity, run.data.table.keys, run.data.name)
        began = session.machine.clock()
        attempt = dataclasses.replace(session.attempt, folder=folder.lists)
        alignment = await align(dataclasses.replace(session, attempt=attempt), records)
        stored = alignment, session.machine.clock() - began, session.traffic()["align"]
        failpoints.reach("align-keep")
        _keep_synthetic(run)
        folder.save_alignment(*stored)
        failpoints.reach("aligned")
    # Before all know that all are done, so that no party hears of another's stop while it still counts.
    doubt = doubt_overlap(session.job.align, stored[0], run.data.table.ids)
    if doubt:
        session.progress.emit(OverlapDoubted(doubt.text))
    try:
        for channel in session.data_peers.values():
            async with channel.phase("aligned"):
                pass
    except PeerError:
        if doubt and session.job.train:  # a coordinator may pass a peer's stop on sooner than the peer says why
            doubt.check()
        raise
    folder.remove_lists()
    return Aligned(*stored, doubt, reuse, known)


def _keep_synthetic(run: Run) -> None:
    """Keep the seed of synthetic rows, where this party may need any: all trainings over the alignment make up the same ones.

    A peer that knows which positions are which in two trainings sees otherwise which rows have changed: the synthetic ones
    (docs/explanations/privacy/repeated-jobs.md). An earlier version has kept no seed; then this job draws one.
    """
    session, kept = run.session, run.folder.synthetic
    if session.role in session.job.align.spec.synthetic_rows_at and not kept.exists():
        write_checked(kept, session.randomness.derive("train").derive("draws").bytes(32))


def recall_synthetic(run: Run) -> bytes | None:
    """What :func:`_keep_synthetic` has kept; None: an earlier version aligned. Raises StateError: it is damaged."""
    with suppress(FileNotFoundError):
        return read_checked(run.folder.synthetic, hint="leave align.reuse out")
    return None
