"""A trial: all parties of one job on this machine, for one owner who holds all tables.

``vfl-node run`` and Python's ``vfl_node.run`` both call this. They differ in what they take (options and files; tables in
memory) and in what they show (a bar and a summary; a bar in a notebook and a result).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from vfl_node.execution.extras import Extras
from vfl_node.execution.private import PrivateSettings, trial_settings
from vfl_node.job import Job
from vfl_node.settings.node import Settings
from vfl_node.settings.protection import Compare

WITH_TREE = Compare(boosted_tree=True)  # one owner has all tables, so how long a party computes tells nobody anything

NO_TABLES: Mapping[str, Any] = {}


def settled_parties(
    job: Job,
    files: Mapping[str, Path],
    *,
    given: Mapping[str, PrivateSettings],
    columns: Mapping[str, Any],
    threads: int,
    models: Mapping[str, str],
) -> dict[str, Settings]:
    """The settings of every party, under which this machine can train the job; args as for :func:`trial_settings`.

    Raises:
        UsageError: as :func:`trial_settings`, or something that training needs is not installed here (``E_EXTENSION``).
    """
    settings = trial_settings(job, files, given=given, columns=columns, threads=threads, models=models, compare=WITH_TREE)
    if job.train:
        for name in job.parties.data:
            job.train.check_here(settings[name].models)
    return settings


def run_trial(
    job: Job,
    settings: Mapping[str, Settings],
    out: Path,
    on_view: Callable[[dict[str, Any]], None],
    *,
    extras: Extras,
    processes: bool,
    tables: Mapping[str, Any] = NO_TABLES,
) -> dict[str, Path]:
    """Run the job to its end.

    Args:
        job: the job.
        settings: party → its settings.
        out: the active party's artefacts; the others' lie in ``out/<party>``, logs of processes in ``out/logs``.
        on_view: called with the active party's view of the job as it moves on.
        extras: what is made besides. The joint attack runs wherever it can.
        processes: whether each party is a process of its own, a real node; else all talk in memory.
        tables: party → its table in memory, in place of its file; processes read files only.

    Returns:
        Party → folder of its artefacts.

    Raises:
        VflError: the job cannot be run, or it failed.
    """
    extras = replace(extras, joint=True)
    if processes:
        from vfl_node.node.federation import LocalFederation

        with LocalFederation(job, settings, logs=out / "logs", extras=extras) as federation:
            return federation.run(out, on_view)
    from vfl_node.execution.simulation import simulate

    with _threads_kept() if job.needs_torch else nullcontext():
        return simulate(job, {}, out, settings=settings, tables=tables, on_view=on_view, extras=extras)


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Have torch compute with as many threads as before."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
