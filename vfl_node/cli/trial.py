"""Commands to try a job before nodes run it: run a whole federation on this machine, and estimate the cost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn, Optional

import typer
from rich.console import Console
from rich.table import Table

from vfl_node.cli.shared import ConfigOption, JsonOption, app, check_writable, err, label_option, out, print_json
from vfl_node.data.readers.parts import is_table
from vfl_node.errors import UsageError
from vfl_node.execution.extras import Extras
from vfl_node.execution.private import party_of, read_private
from vfl_node.job import Job, load_job
from vfl_node.job.costs import TableShape
from vfl_node.node.trial import run_trial, settled_parties
from vfl_node.process.files import private_folder
from vfl_node.process.logs import configure_logs
from vfl_node.report.sinks import log_to_mlflow, log_to_tensorboard, parse_sink
from vfl_node.report.summary import main_metrics, summary, warnings
from vfl_node.report.words import SEEDED, human_seconds, join_names
from vfl_node.settings.node import role_in
from vfl_node.settings.reading import load_settings
from vfl_node.terminal import ShownProgress

ENDINGS = {"--data": "csv", "--settings": "yaml"}


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for reports and models.")],
    data: Annotated[list[str], typer.Option(help="PARTY=FILE.csv; PARTY is a role or name. Repeat for each data party.")] = [],  # noqa: B006
    settings: Annotated[list[str], typer.Option(help="PARTY=FILE.yaml: that party's own settings. Repeat for each.")] = [],  # noqa: B006
    id_column: Annotated[str, typer.Option(help="Column that identifies a record.")] = "id",
    label_column: Annotated[str, typer.Option(help="Column of labels; COLUMN=POSITIVE names the positive class.")] = "label",
    threads: Annotated[int, typer.Option(min=1, help="Threads per party.")] = 1,
    model: Annotated[list[str], typer.Option(help="NAME=MODULE:CLASS of an own network. Repeat for each.")] = [],  # noqa: B006
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, max=2**63 - 1, help="All parties' randomness follows from it: repeatable, and no secret."),
    ] = None,
    predictions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="CSV file for what the model says of the active party's shared rows."),
    ] = None,
    transcript: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder for what each party receives in training, row by row, to attack it."),
    ] = None,
    sink: Annotated[list[str], typer.Option(help="mlflow=URI|FOLDER or tensorboard=FOLDER: log the report there, too.")] = [],  # noqa: B006
    in_process: Annotated[bool, typer.Option("--in-process", help="One process, in-memory channel.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a whole federation on this machine, to try a job on your own files."""
    configure_logs(quiet=True)
    spec = load_job(job)
    extras = Extras(seed, predictions, transcript)
    extras.check(spec)
    chosen = [parse_sink(option) for option in sink]
    given = {name: read_private(path) for name, path in _files(spec, settings, "--settings").items()}
    parties = settled_parties(
        spec,
        _data_files(spec, data),
        given=given,
        columns={"id": id_column, "label": label_option(label_column)},
        threads=threads,
        models=_models(model),
    )
    os.umask(0o077)
    try:
        private_folder(folder)
    except OSError as error:
        raise UsageError(
            f"--out {folder}: {error.strerror}", code="E_FILE", hint="name a folder of your own, and no symbolic link"
        ) from None
    if predictions:
        check_writable(predictions, "--predictions")  # which may lie in the folder of --out
    for number in (signal.SIGINT, signal.SIGTERM):  # also if the shell ignores SIGINT, as for a background command
        signal.signal(number, _interrupt)
    started = time.monotonic()
    say = _say_nothing if as_json else out.print
    if not as_json:
        how = "running" if in_process else "starting"
        parties_text = join_names([f"{name} ({role_in(spec.parties, name)})" for name in spec.parties.all])
        err.print(f"{how} {parties_text} on this machine …")
    if spec.serve:
        say("nothing is kept for predictions (serve): that takes running nodes, which keep their halves of the model")
    if seed is not None:
        say(f"seed {seed}: {SEEDED}")
    with ShownProgress(spec.name, as_json=as_json) as shown:
        run_trial(spec, parties, folder, shown.update, extras=extras, processes=not in_process)
    others = [name for name in spec.parties.all if name != spec.parties.active]
    took_s = time.monotonic() - started
    if as_json:
        _print_outcome(folder / "report.json", took_s)
    else:
        _summarise(folder / "report.json", took_s, others)
    for name, store in chosen:
        _log(name, folder, store, _models(model))
        say(f"logged to {name}")
    if predictions:
        say(f"predictions: {predictions}")
    if transcript:
        say(f"what each party received in training: {transcript}")


@app.command()
def estimate(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    active: Annotated[Optional[int], typer.Option(min=1, help="Records of the active party.")] = None,  # noqa: UP045
    passive: Annotated[Optional[int], typer.Option(min=1, help="Records of the only passive party.")] = None,  # noqa: UP045
    records: Annotated[list[str], typer.Option(help="PARTY=NUMBER of records, by name. Repeat for each.")] = [],  # noqa: B006
    shared: Annotated[Optional[int], typer.Option(min=0, help="Records that all have; default: unknown.")] = None,  # noqa: UP045
    columns: Annotated[list[str], typer.Option(help="PARTY=NUMBER of columns as encoded. Repeat for each.")] = [],  # noqa: B006
    rate: Annotated[float, typer.Option(min=0.001, help="Mbit/s between the parties.")] = 100,
    rtt: Annotated[float, typer.Option(min=0, help="Round trip in milliseconds.")] = 20,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Estimate what alignment by each protocol will cost, and how many rows training would have."""
    spec, settings = load_job(job), load_settings(config) if config else None
    if settings and settings.role == "coordinator":
        raise UsageError(
            "an estimate is for a party with data, and this one is a coordinator",
            hint="leave --config out, or give another node's",
        )
    from vfl_node.crypto.groups import group
    from vfl_node.estimate import machine as machines
    from vfl_node.estimate import words
    from vfl_node.estimate.plan import plan, shown_party
    from vfl_node.estimate.totals import estimate as costs_of
    from vfl_node.estimate.totals import pace_of
    from vfl_node.estimate.totals import to_json as costs_as_json
    from vfl_node.execution.inputs import count_input

    known, shape = _records(spec, active, passive, records), TableShape()
    own = shown_party(spec, settings)
    if settings and settings.data and own not in known:
        shape = count_input(settings, spec)
        known[own] = shape.rows
    encoded = _numbers(spec, "columns", columns, {})
    planned = plan(spec, settings, known, table=shape, columns=encoded, shared=shared, rate_mbit_s=rate, rtt_ms=rtt)
    machine = machines.measure_node(group(spec.align.group), settings)
    costs = costs_of(planned, machine, pace_of(planned, shape, settings))
    if as_json:
        print_json(costs_as_json(planned, machine, costs))
        return
    head, *lines = words.table(planned, costs)
    table = Table(*head, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*line)
    wide = Console(highlight=False, width=100, markup=False, emoji=False)
    wide.print(table)
    for note in words.notes(planned, machine):
        wide.print(f"- {note}")


def _records(job: Job, active: int | None, passive: int | None, options: list[str]) -> dict[str, int]:
    """Party name → its records, as far as options say."""
    records = {} if active is None else {job.parties.active: active}
    if passive is not None:
        if len(job.parties.passive) > 1:
            each = " ".join(f"--records {name}=N" for name in job.parties.passive)
            raise UsageError(f"--passive: this job has {len(job.parties.passive)} passive parties", hint=each)
        records |= dict.fromkeys(job.parties.passive, passive)
    return _numbers(job, "records", options, records)


def _numbers(job: Job, what: str, options: list[str], known: dict[str, int]) -> dict[str, int]:
    """``PARTY=NUMBER`` options as party name → number, beside those ``known``; ``what`` they are."""
    numbers = dict(known)
    for option in options:
        name, _, number = option.partition("=")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"--{what} {option} is not PARTY=NUMBER", hint=f"for example --{what} {job.parties.active}=2000")
        if name not in job.parties.data:
            raise UsageError(
                f"--{what} names {name!r}, which is no party with data",
                hint=f"parties: {', '.join(job.parties.data)}",
            )
        if name in numbers:
            raise UsageError(f"the {what} of {name} are given twice")
        numbers[name] = int(number)
    return numbers


def _log(sink: str, folder: Path, store: str, models: dict[str, str]) -> None:
    if sink == "tensorboard":
        return log_to_tensorboard(folder, store)
    from vfl_node.export.tracked import write_beside  # loads torch

    with write_beside(folder, {}, models) as beside:
        return log_to_mlflow(folder, store, beside=beside)


def _data_files(job: Job, options: list[str]) -> dict[str, Path]:
    """``--data`` options as party name → file."""
    files = _files(job, options, "--data")
    if (name := job.parties.coordinator) in files:
        raise UsageError(f"--data: {name} is the job's coordinator, which has no data", hint="leave it out")
    return files


def _files(job: Job, options: list[str], what: str) -> dict[str, Path]:
    """``PARTY=FILE`` options as party name → file; ``what`` they are."""
    files: dict[str, Path] = {}
    for option in options:
        key, equals, path = option.partition("=")
        if not equals or not path:
            raise UsageError(f"{what} {option} is not PARTY=FILE", hint=f"for example {what} active=clinic.{ENDINGS[what]}")
        name = party_of(job, key, what, f"{what} {{}}={{}}.{ENDINGS[what]}")
        if name in files:
            raise UsageError(f"{what} is given twice for {name}")
        files[name] = Path(path)
        if not (is_table(files[name]) if what == "--data" else files[name].exists() and not files[name].is_dir()):
            raise UsageError(f"no file {path} ({what.removeprefix('--')} of {name})", code="E_FILE")
    return files


def _models(options: list[str]) -> dict[str, str]:
    """``NAME=MODULE:CLASS`` options as the ``models`` of a node's settings."""
    models = dict(option.partition("=")[::2] for option in options)
    for name, place in models.items():
        if not name or ":" not in place:
            raise UsageError(f"--model {name} is not NAME=MODULE:CLASS", hint="for example --model gated=mymodels:Gated")
    return models


def _summarise(path: Path, seconds: float, others: Sequence[str] = ()) -> None:
    report = json.loads(path.read_text())
    for line in summary(report):
        out.print(line)
    said = warnings(report)
    for warning in said:
        out.print(f"warning: {warning}")
    for name in others:
        for warning in warnings(json.loads((path.parent / name / "report.json").read_text())):
            if warning not in said:
                out.print(f"warning, {name}: {warning}")
    if note := report.get("boosted_tree_note"):
        out.print(note)
    out.print(f"done in {human_seconds(seconds)}; report: {path.with_suffix('.html')}")
    out.print("which way suits your own tables, and what each would tell: vfl-node plan")


def _print_outcome(path: Path, seconds: float) -> None:
    """As :func:`_summarise`, for a program: one line of JSON with the keys that a job at a node has."""
    report = json.loads(path.read_text())
    outcome = {"state": "done", "took_s": round(seconds, 1), "metrics": main_metrics(report), "warnings": warnings(report)}
    verdict = (report.get("verdict") or {}).get("words")
    print_json(outcome | {"verdict": verdict, "report_path": str(path.with_suffix(".html"))}, indent=None)


def _say_nothing(*_: object) -> None:
    """Prints nothing."""


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
