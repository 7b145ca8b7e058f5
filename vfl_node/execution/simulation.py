"""All parties in one process, over in-memory channels: the same code, for research and tests.

Their steps alternate on one thread, so a run is deterministic given the parties' randomness; with
the same randomness and thread count the models have the same bits as over gRPC (on a CPU).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import shape_of
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.conversations import conversations
from vfl_node.execution.extras import NO_EXTRAS, Extras
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import announce, read_input
from vfl_node.execution.known_rows import TrialParty
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.outcome import artefact_folders, clear_artefacts, copy_artefacts
from vfl_node.execution.private import trial_settings
from vfl_node.execution.run import Run, set_up
from vfl_node.job import Job
from vfl_node.models import NONE_DECLARED
from vfl_node.process.files import scratch
from vfl_node.progress import Advanced, Event
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.node import Settings
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

NO_TABLES: Mapping[str, Any] = {}


def simulate(
    job: Job,
    files: Mapping[str, Path],
    out: Path,
    *,
    columns: Mapping[str, Any] | None = None,
    threads: int = 1,
    randomness: Mapping[str, Randomness] | None = None,
    on_view: Callable[[dict[str, Any]], None] | None = None,
    wrap: Callable[[str, Channel], Channel] | None = None,
    models: Mapping[str, str] = NONE_DECLARED,
    settings: Mapping[str, Settings] | None = None,
    tables: Mapping[str, Any] = NO_TABLES,
    extras: Extras = NO_EXTRAS,
) -> dict[str, Path]:
    """Run ``job`` with all its parties in this process.

    Args:
        job: the job.
        files: party name → CSV file; a coordinator has none.
        out: the active party's artefacts; the others' lie in ``out/<party>``.
        columns: ``{"id": …, "label": …}``, as in the settings' ``data``, where they differ from the defaults.
        threads: threads for tensors and group operations.
        randomness: party name → its private randomness; the operating system's by default.
        on_view: called with the active party's progress as it moves on.
        wrap: replaces each of a party's channels, so that a test can listen in.
        models: of each party's settings: name → ``module:Class`` of an architecture.
        settings: of each party, as :func:`vfl_node.execution.private.trial_settings` makes them from ``files``, ``columns``,
            ``threads`` and ``models``, which then count no more.
        tables: party name → its table in memory, in place of its file, as
            :class:`vfl_node.data.readers.arrow.ArrowReader` takes it.
        extras: what is made besides.

    Returns:
        Party name → folder of its artefacts.

    Raises:
        VflError: the first party's error, as its owner would see it.
    """
    extras = extras.prepare(job)
    settings = settings or trial_settings(job, files, columns=columns, threads=threads, models=models)
    threads = settings[job.parties.active].threads
    for own in settings.values():
        check_allowed(own, job)
    job_id = extras.make_trial(job.parties.active).job_id(job.name) or job.name
    folders = artefact_folders(job, out)
    with scratch("vfl-simulation-") as kept:
        runs, read, parties = [], {}, {}
        for name, held in memory_network(*job.parties.all, job_id=job.name).items():
            own = settings[name]
            here = {"threads": threads, "group_threads": own.threads} | (
                {} if "device" in own.model_fields_set else {"device": "cpu"}
            )
            own, role = own.model_copy(update=here), own.role
            table = read_input(own, job, tables.get(name)) if own.tables else None
            Budget(own.resources.memory_mib, own.models, own.protection).fit(job, role, shape_of(table), own.limits_for(job))
            if table is not None:
                read[name] = table
            progress = _ShownProgress(job, on_view) if role == "active" and on_view else LiveProgress(job.name, Stop())
            trial = extras.make_trial(name)
            folder = JobFolder(kept / name / job_id, trial)
            secret = (randomness or {}).get(name) or Randomness(folder.seed())
            secrets = {peer: trial.memory_secret(peer) for peer in job.remembered_parties(name)}
            memories = {
                peer: MemoryOfOneRun(Randomness(key) if key else secret.derive("memory of the peer"))
                for peer, key in secrets.items()
            }
            channels = {peer: wrap(name, held[peer]) if wrap else held[peer] for peer in job.parties.peers_of(name)}
            parties[name] = own
            runs.append(set_up(own, job, job_id, table, secret, folder, progress, 1, memories, channels))
        active, *_ = runs
        announce(active.session.progress, job, read)
        clear_artefacts(folders.values())
        try:
            results = run_together(*(protocol for run in runs for protocol in party_coroutines(run)))
        finally:
            for run in runs:
                run.session.machine.processes.close()
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, PeerLost)):  # the cause before its echo
            raise error
        for run in runs:
            copy_artefacts(run.folder.artefacts, folders[run.session.name])
        ended = {
            run.session.name: TrialParty(
                parties[run.session.name], run.folder, run.inputs.whole, run.inputs.table, tables.get(run.session.name)
            )
            for run in runs
            if run.inputs
        }
        extras.make(job, {run.session.name: run.folder for run in runs}, lambda: ended, folders)
    return folders


def party_coroutines(
    run: Run, protocols: Sequence[Coroutine[Any, Any, None]] = ()
) -> list[tuple[Coroutine[Any, Any, None], Collection[Channel]]]:
    """The coroutines of one party, each with its channels, for ``run_together``; all end when one fails.

    Args:
        run: of the party.
        protocols: its coroutines; by default those of a job that predicts nothing.
    """
    channels = run.session.peers.values()

    async def close_on_failure(protocol: Coroutine[Any, Any, None]) -> None:
        try:
            await protocol
        except BaseException:
            for channel in channels:
                channel.close()
            raise

    protocols = protocols or conversations(run)
    each = [list(channels)] if len(protocols) == 1 else [[channel] for channel in channels]
    return list(zip(map(close_on_failure, protocols), each, strict=True))


class _ShownProgress(LiveProgress):
    """A progress that hands its view on, at most every tenth of a second."""

    def __init__(self, job: Job, on_view: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(job.name, Stop())
        self._head = {"id": job.name, "name": job.name, "state": "running", "parties": list(job.parties.all)}
        self._on_view = on_view
        self._next = 0.0

    def emit(self, event: Event) -> None:
        """As in the base, and hand the view on when the job advances."""
        super().emit(event)
        if isinstance(event, Advanced) and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            self._on_view(self._head | self.snapshot())
