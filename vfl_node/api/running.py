"""Run a job with all its parties on this machine, from tables in memory."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from vfl_node.api.frames import Given, tables_of, write
from vfl_node.api.progress import show_progress
from vfl_node.api.result import PREDICTIONS, Result
from vfl_node.configuration.models import validate
from vfl_node.data.named import data_of
from vfl_node.errors import UsageError
from vfl_node.execution.extras import Extras
from vfl_node.execution.private import PrivateSettings, party_of, private_settings, read_private
from vfl_node.job import Job, load_job
from vfl_node.node.trial import run_trial, settled_parties
from vfl_node.process.files import private_folder, scratch, scratch_folder
from vfl_node.process.logs import configure_logs

IN_MEMORY = Path("table in memory")


def run(
    job: Job | Mapping[str, Any] | str | os.PathLike[str],
    active: Given | None = None,
    passive: Given | Mapping[str, Given] | None = None,
    *,
    settings: Mapping[str, Mapping[str, Any] | str | os.PathLike[str]] | None = None,
    models: Mapping[str, str | type] | None = None,
    id_column: str = "id",
    label_column: str = "label",
    threads: int = 1,
    processes: bool = False,
    seed: int | None = None,
    predictions: bool = False,
    transcript: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Result:
    """Run ``job`` with all its parties on this machine, as one owner who holds all tables, and wait for its end.

    By default all parties run in this process and talk in memory; the protocols, and what each party learns, are the same as
    between nodes. Nothing is printed besides the progress.

    Args:
        job: a job, its keys and values, or the path of a job file. Keys and values may leave out ``name`` (then ``trial``) and
            ``parties`` (then ``active`` and ``passive``, or the names in ``passive``).
        active: the active party's table, with labels: a data frame of pandas or polars, an Arrow table, or a file.
        passive: the passive party's table; of several parties a mapping of their names to tables.
        settings: party or role → its private settings, as keys and values or as a file: ``data`` (columns, id, label),
            ``limits``, ``defences``, ``models`` and others (docs/guides/use-it-from-python.md).
        models: name → class of an own network (:mod:`vfl_node.models`), or ``"module:Class"``; the job says the name.
        id_column: column that identifies a record.
        label_column: column with the labels.
        threads: threads for tensors.
        processes: whether each party is a process of its own, a real node, connected by mutual TLS; some seconds more.
        seed: from which the randomness of all parties follows, 0 to 2^63 - 1: the same run gives the same bytes again, and
            nothing in it is secret. Reports say so.
        predictions: whether the trained model's predictions of all shared rows are made (:attr:`Result.predictions`).
        transcript: folder for what each party receives in training, row by row, for those who attack it
            (docs/guides/try-a-job.md).
        out: folder for the reports and models of all parties; by default one that ends with the result.
        progress: whether a bar is shown, on a terminal or in a notebook.

    Raises:
        VflError: the job, the settings or a table cannot be used, or the job failed; with ``message``, ``hint`` and ``code``.
        KeyboardInterrupt: Ctrl-C; everything that was started has ended.
    """
    spec = _job_of(job, passive)
    extras = Extras(seed, Path(PREDICTIONS) if predictions else None, None if transcript is None else Path(transcript))
    extras.check(spec)
    files, frames = tables_of(spec, active, passive)
    given = {party_of(spec, name, "settings", "{}=…"): _private_of(own, name) for name, own in (settings or {}).items()}
    places = {name: _place(name, kind, importable=processes) for name, kind in (models or {}).items()}
    with ExitStack() as stack:
        stack.enter_context(_quiet_logs())
        paths = dict.fromkeys(frames, IN_MEMORY)
        if processes:
            folder = stack.enter_context(scratch("vfl-tables-"))
            paths = {party: write(frame, folder, party) for party, frame in frames.items()}
        columns = {"id": id_column, "label": label_column}
        owners = settled_parties(spec, files | paths, given=given, columns=columns, threads=threads, models=places)
        view = stack.enter_context(show_progress(spec.name, wanted=progress))
        target = _folder(out)
        try:
            if predictions:
                extras = replace(extras, predictions=target / PREDICTIONS)
            folders = run_trial(spec, owners, target, view, extras=extras, processes=processes, tables=frames)
            given_tables: dict[str, Given] = {**files, **frames}
            scratch_out = target if out is None else None
            sources = {party: data_of(owners[party], spec) for party in spec.parties.data}
            return Result(folders, scratch=scratch_out, tables=given_tables, models=places, sources=sources)
        except BaseException:
            if out is None:
                shutil.rmtree(target, ignore_errors=True)
            raise


def _job_of(job: Job | Mapping[str, Any] | str | os.PathLike[str], passive: Any) -> Job:
    if isinstance(job, str | os.PathLike):
        job = load_job(Path(job))
    elif isinstance(job, Mapping):
        names = list(passive) if isinstance(passive, Mapping) else "passive"
        parties = {"active": "active", "passive": names}
        job = validate({"name": "trial", "parties": parties, **job}, Job, source="the job")
    return job


def _private_of(own: Mapping[str, Any] | str | os.PathLike[str], name: str) -> PrivateSettings:
    return private_settings(own, source=f"settings of {name}") if isinstance(own, Mapping) else read_private(Path(own))


def _place(name: str, kind: str | type, *, importable: bool) -> str:
    """``module:Class`` of an own network."""
    if isinstance(kind, str):
        return kind
    module = sys.modules.get(kind.__module__)
    if getattr(module, kind.__qualname__, None) is not kind:
        raise UsageError(
            f"model {name!r}: {kind.__qualname__} is defined inside of a function or class, or was replaced",
            code="E_EXTENSION",
            hint="define it at the top of a module or notebook",
        )
    if importable and kind.__module__ == "__main__":
        raise UsageError(
            f"model {name!r}: other processes cannot import {kind.__qualname__} from this program",
            code="E_EXTENSION",
            hint=f"put it into a module, models={{{name!r}: 'module:{kind.__qualname__}'}}; or leave processes out",
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _folder(out: str | os.PathLike[str] | None) -> Path:
    """Where artefacts go: ``out``, or a new folder of this user's alone."""
    if out is None:
        return scratch_folder("vfl-result-")
    try:
        private_folder(Path(out))
    except OSError as error:
        raise UsageError(f"out={str(out)!r}: {error.strerror}", code="E_FILE", hint="name a folder of your own") from None
    return Path(out)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Nothing but errors is logged; warnings stand in the reports. Afterwards the log of this process is as it was."""
    configured, before = structlog.is_configured(), structlog.get_config()
    configure_logs(quiet=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        if configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()
