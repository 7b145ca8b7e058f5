"""All parties in one process, over in-memory channels: the same code, for research and tests.

Their steps alternate on one thread, so a run is deterministic given the parties' randomness; with
the same randomness and thread count the models have the same bits as over gRPC (on a CPU).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

import torch

from vfl_node.comparison import NO_TREE, Compare
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost
from vfl_node.job import Job
from vfl_node.models import NONE_DECLARED
from vfl_node.progress import Advanced, Event
from vfl_node.run.artefacts import clear_artefacts, copy_artefacts
from vfl_node.run.conversations import conversations
from vfl_node.run.folder import JobFolder
from vfl_node.run.inputs import announce, read_input
from vfl_node.run.known_rows import TrialParty, write_predictions
from vfl_node.run.live import LiveProgress, Stop
from vfl_node.run.run import Run, set_up
from vfl_node.run.trial import Trial
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings import Data, Limits, Role, Settings, role_in
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together


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
    seed: int | None = None,
    compare: Compare = NO_TREE,
    predictions: Path | None = None,
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
        seed: from which the randomness of every party follows (:mod:`vfl_node.run.trial`); reports say so.
        compare: of the active party's settings; no boosted tree by default.
        predictions: file for what the trained model says of the shared rows (:mod:`vfl_node.run.known_rows`).

    Returns:
        Party name → folder of its artefacts.

    Raises:
        VflError: the first party's error, as its owner would see it.
    """
    torch.set_num_threads(threads)
    if job.train:
        job.train.check_here(models)
    columns = dict(columns or {})
    job_id = Trial.of(seed, job.parties.active).job_id(job.name) or job.name
    folders = {name: out if name == job.parties.active else out / name for name in job.parties.all}
    with tempfile.TemporaryDirectory(prefix="vfl-simulation-") as scratch:
        runs, tables, parties = [], {}, {}
        for name, held in memory_network(*job.parties.all, job_id=job.name).items():
            role = cast(Role, role_in(job.parties, name))
            label = columns.get("label") if role in (job.label_holder, "active") else None
            data = None
            if role != "coordinator":
                data = Data.model_validate({"path": files[name], "id": columns.get("id", "id"), "label": label})
            settings = Settings(
                name=name,
                role=role,
                data=data,
                insecure_loopback=True,
                threads=threads,
                group_threads=threads,
                device="cpu",
                limits=Limits(min_set_size=1, allow_matched=True),  # one owner holds all tables
                models=dict(models),
                compare=compare if role == "active" else Compare(),
            )
            table = read_input(settings, job) if data else None
            if table is not None:
                tables[role] = table
            progress = _ShownProgress(job, on_view) if role == "active" and on_view else LiveProgress(job.name, Stop())
            trial = Trial.of(seed, name, keeps=predictions is not None)
            folder = JobFolder(Path(scratch) / name / job_id, trial)
            own = (randomness or {}).get(name) or Randomness(folder.seed())
            peers = [peer for peer in held if peer in job.parties.data] if data else []
            secrets = {peer: trial.memory_secret(peer) for peer in peers}
            memories = {
                peer: MemoryOfOneRun(Randomness(of) if of else own.derive("memory of the peer")) for peer, of in secrets.items()
            }
            channels = {peer: wrap(name, channel) if wrap else channel for peer, channel in held.items()}
            parties[name] = settings
            runs.append(set_up(settings, job, job_id, table, own, folder, progress, 1, memories, channels))
        active, *_ = runs
        announce(active.session.progress, job, tables)
        clear_artefacts(list(folders.values()))
        try:
            results = run_together(*(protocol for run in runs for protocol in side_by_side(run)))
        finally:
            for run in runs:
                run.session.processes.close()
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, PeerLost)):  # the cause before its echo
            raise error
        for run in runs:
            copy_artefacts(run.folder.artefacts, folders[run.session.name])
        if predictions:
            halves = {
                run.session.name: TrialParty(parties[run.session.name], run.folder, run.inputs.whole, run.inputs.table)
                for run in runs
                if run.inputs
            }
            write_predictions(job, halves, predictions)
    return folders


def side_by_side(run: Run) -> list[tuple[Coroutine[Any, Any, None], Collection[Channel]]]:
    """The coroutines of one party, each with its channels, for ``run_together``; all end when one fails."""
    channels = run.session.peers.values()

    async def ending_all(protocol: Coroutine[Any, Any, None]) -> None:
        try:
            await protocol
        except BaseException:
            for channel in channels:
                channel.close()
            raise

    protocols = conversations(run)
    each = [list(channels)] if len(protocols) == 1 else [[channel] for channel in channels]
    return list(zip(map(ending_all, protocols), each, strict=True))


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
