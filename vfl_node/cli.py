"""The command line: ``vfl-node``.

Exit status: 0 success, 1 a job or node failed, 2 bad usage (command, job file, settings),
130 interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn, Optional

import typer
from rich.console import Console
from rich.table import Column, Table

import vfl_node
from vfl_node.errors import UsageError, VflError
from vfl_node.files import write_whole
from vfl_node.job import Job, load_job
from vfl_node.logs import configure_logs
from vfl_node.settings import Settings, load_settings

app = typer.Typer(
    name="vfl-node",
    help="Vertical federated learning between organisations: align without revealing whom you serve, train one model.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
INTERRUPTED = 130

RESTART_S = 60.0
"""How long a node may stay away that is restarted while it predicts."""

UNCUT = 10_000
"""Columns of a table that is not shown on a terminal."""

err = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False, soft_wrap=True)


class RoleName(str, Enum):
    """A party's part in the federation."""

    active = "active"
    passive = "passive"
    coordinator = "coordinator"


ConfigOption = Annotated[Optional[Path], typer.Option("--config", help="The node's configuration file.")]  # noqa: UP045
NodeOption = Annotated[str, typer.Option("--node", help="HOST:PORT of a node's HTTP port, instead of --config.")]


@app.callback(invoke_without_command=True)
def service(
    context: typer.Context,
    role: Annotated[Optional[RoleName], typer.Option(help="Run a node in this role.")] = None,  # noqa: UP045
    config: ConfigOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Run a node until it is stopped: vfl-node --role active --config clinic.yaml."""
    if version:
        print(vfl_node.__version__)  # noqa: T201
        raise typer.Exit
    if context.invoked_subcommand:
        return
    if role is None or config is None:
        raise UsageError(
            "name what to do", hint="vfl-node --role active --config FILE runs a node; vfl-node --help lists the rest"
        )
    settings = load_settings(config)
    if settings.role != role.value:
        raise UsageError(
            f"{config} says role: {settings.role}, the command says --role {role.value}", hint="they must agree", code="E_ROLE"
        )
    from vfl_node.node.service import serve  # torch and grpc take seconds to import; other commands do without

    serve(settings)
    # All is closed and on disk. Tearing down torch's and grpc's threads takes seconds more, and could hang.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The party's name.")],
    folder: Annotated[Path, typer.Argument(help="Where to write.")],
    role: Annotated[RoleName, typer.Option(help="Its role.")],
    federation: Annotated[str, typer.Option(help="Trust domain in the certificates.")] = "trial",
) -> None:
    """Write a commented configuration, a key and a certificate request."""
    from vfl_node.node.setup import init as write

    _checked_name(name)
    for path in write(name, role.value, folder, federation=federation):
        out.print(f"wrote {path}")
    out.print(
        f"next: have {folder / 'node.csr'} signed (for a trial: vfl-node certify {folder}), then edit {folder / 'node.yaml'}"
    )


@app.command()
def certify(
    folders: Annotated[list[Path], typer.Argument(help="Folders written by `vfl-node init`.")],
    authority: Annotated[Path, typer.Option(help="Folder of the trial authority; made if absent.")] = Path("authority"),
) -> None:
    """Sign nodes' certificate requests with a trial authority on this machine."""
    from vfl_node.node.setup import certify as sign

    for path in sign(folders, authority):
        out.print(f"wrote {path}")


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    data: Annotated[list[str], typer.Option(help="PARTY=FILE.csv; PARTY is a role or a party's name. Repeat per data party.")],
    folder: Annotated[Path, typer.Option("--out", help="Where reports and models go.")],
    id_column: Annotated[str, typer.Option(help="Column that identifies a record.")] = "id",
    label_column: Annotated[str, typer.Option(help="Column with the labels.")] = "label",
    threads: Annotated[int, typer.Option(min=1, help="Threads per party.")] = 1,
    in_process: Annotated[bool, typer.Option("--in-process", help="One process, in-memory channel.")] = False,
) -> None:
    """Run a whole federation on this machine, to try a job on one's own files."""
    configure_logs(quiet=True)
    spec = load_job(job)
    if spec.predict:
        raise UsageError(
            "a job that predicts needs the nodes that keep its model", hint="vfl-node predict JOB, at a running node"
        )
    files = _data_files(spec, data)
    columns = {"id": id_column, "label": label_column}
    for number in (signal.SIGINT, signal.SIGTERM):  # also where the shell had SIGINT ignored, as for a background command
        signal.signal(number, _interrupted)
    from vfl_node.node import estimate as estimates
    from vfl_node.terminal import Shown

    started = time.monotonic()
    for line in estimates.of_files(spec, files, id_column):
        out.print(line)
    if spec.serve:
        out.print("nothing is kept for predictions (serve): that takes running nodes, which keep their halves of the model")
    with Shown(spec.name) as shown:
        if in_process:
            from vfl_node.node.simulation import simulate

            simulate(spec, files, folder, columns=columns, threads=threads, on_view=shown.update)
        else:
            from vfl_node.node.federation import LocalFederation

            with LocalFederation(spec, files, columns=columns, threads=threads, logs=folder / "logs") as federation:
                federation.run(folder, shown.update)
    _summarise(folder / "report.json", time.monotonic() - started)


@app.command()
def estimate(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    active: Annotated[Optional[int], typer.Option(min=1, help="Records of the active party.")] = None,  # noqa: UP045
    passive: Annotated[Optional[int], typer.Option(min=1, help="Records of the passive party.")] = None,  # noqa: UP045
    shared: Annotated[Optional[int], typer.Option(min=0, help="Records of both; unknown: any number.")] = None,  # noqa: UP045
    rate: Annotated[float, typer.Option(min=0.001, help="Mbit/s between the parties.")] = 100,
    rtt: Annotated[float, typer.Option(min=0, help="Milliseconds there and back.")] = 20,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Tell what aligning by each protocol will cost, and how many rows training would have."""
    from vfl_node.node import estimate as estimates

    spec, settings = load_job(job), load_settings(config) if config else None
    if settings and settings.role == "coordinator":
        raise UsageError("a coordinator takes no part in aligning", hint="leave --config out, or give another node's")
    plan = estimates.plan(spec, settings, active=active, passive=passive, shared=shared, rate_mbit_s=rate, rtt_ms=rtt)
    found = estimates.estimate(plan)
    if as_json:
        out.print_json(json.dumps(estimates.as_json(plan, found)))
        return
    head, *lines = estimates.table(plan, found)
    table = Table(*head, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*line)
    wide = Console(highlight=False, width=100)
    wide.print(table)
    for note in estimates.notes(plan):
        wide.print(f"- {note}")


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
) -> None:
    """Submit a job at a running node."""
    spec = load_job(job)
    client = _client(config, node)
    if config:
        from vfl_node.node import estimate as estimates

        for line in estimates.of_node(spec, load_settings(config)):
            err.print(line)
    view = client.submit(spec.canonical())
    out.print(view["id"])
    if wait:
        _follow(client, view["id"])


@app.command()
def jobs(config: ConfigOption = None, node: NodeOption = "", as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List the jobs of a running node."""
    views = _client(config, node).jobs()
    if as_json:
        out.print_json(json.dumps(views))
        return
    table = Table(Column("job", no_wrap=True, overflow="fold"), "state", "phase", "with", "submitted", box=None, pad_edge=False)
    for view in views:
        done = f" {view['done']}/{view['total']}" if view["total"] and view["state"] == "running" else ""
        table.add_row(view["id"], view["state"], f"{view['phase']}{done}", ", ".join(view["parties"]), view["submitted"])
    whole = out if out.is_terminal else Console(highlight=False, width=UNCUT)  # a program that reads it needs all of an id
    whole.print(table if views else "no jobs yet")


@app.command()
def predict(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job that trained the model, with `serve`.")],
    data: Annotated[Path, typer.Option(help="CSV file with the ids of the records, and their columns where they are new.")],
    target: Annotated[Path, typer.Option("--out", help="CSV file to write: ids and probabilities.")],
    config: Annotated[Path, typer.Option(help="The node's configuration file.")],
    align: Annotated[
        bool,
        typer.Option(
            "--align", help="The records are new: intersect them with the other party's first. Both learn which they share."
        ),
    ] = False,
) -> None:
    """Get predictions by the model of a job, from this node and its peer together."""
    try:
        request = data.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror}", code="E_FILE") from None
    _check_writable(target)
    settings = load_settings(config)
    _client_of(settings).job(job_id)  # a node that does not run is not waited for, nor an unknown job
    answer = _predicted_new(settings, job_id, request) if align else _predicted(settings, job_id, request)
    try:
        write_whole(target, answer)
    except OSError as error:
        raise _unwritable(target, error) from None
    out.print(f"wrote {target}")


@app.command()
def watch(job_id: Annotated[str, typer.Argument(metavar="JOB")], config: ConfigOption = None, node: NodeOption = "") -> None:
    """Follow a job to its end; exit status 0 if it succeeds."""
    _follow(_client(config, node), job_id)


@app.command()
def cancel(job_id: Annotated[str, typer.Argument(metavar="JOB")], config: ConfigOption = None, node: NodeOption = "") -> None:
    """End a job at this node and its peers."""
    _client(config, node).cancel(job_id)
    out.print(f"{job_id} is being cancelled")


@app.command()
def resume(job_id: Annotated[str, typer.Argument(metavar="JOB")], config: ConfigOption = None, node: NodeOption = "") -> None:
    """Go on with a job that failed because its peer was lost."""
    _client(config, node).resume(job_id)
    out.print(f"{job_id} goes on")


def _client_of(settings: Settings) -> Any:
    from vfl_node.node.client import Client

    return Client.of(settings)


def _client(config: Path | None, node: str) -> Any:
    from vfl_node.node.client import Client

    if config is not None:
        return _client_of(load_settings(config))
    if node:
        return Client(node.removeprefix("http://").rstrip("/"))
    raise UsageError("name the node", hint="--config FILE of a node on this machine, or --node HOST:PORT")


def _check_writable(target: Path) -> None:
    """Raises UsageError (``E_FILE``) where no file can be written: before the work, not after it."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", code="E_FILE", hint="make it, or name another --out")
    try:
        if target.exists() and not target.is_file():
            raise UsageError(f"{target} is not a file", code="E_FILE", hint="name a file by --out")
        with tempfile.NamedTemporaryFile(prefix=target.name, dir=target.parent):
            pass
    except OSError as error:
        raise _unwritable(target, error) from None


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror}", code="E_FILE", hint="name another --out")


def _predicted(settings: Settings, model: str, request: bytes) -> bytes:
    """Predictions of known records; to ask again gives the same ones."""
    from vfl_node.node.store import UNFINISHED
    from vfl_node.terminal import Shown

    wanted = {"model": model, "to": settings.role, "rows": "known"}
    with Shown(model) as shown:

        def ask(client: Any) -> bytes:
            def look() -> None:
                views = (view for view in client.jobs() if view["predict"] == wanted and view["state"] in UNFINISHED)
                for view in islice(views, 1):
                    shown.update(view)

            return client.predict(model, request, look)

        return _patiently(settings, ask)


def _predicted_new(settings: Settings, model: str, request: bytes) -> bytes:
    """Predictions of new records, by a job of their own."""
    err.print("aligning by psi: both parties learn which of these records the other one has")
    try:
        job_id = _client_of(settings).predict_new(model, request)["id"]
    except UsageError as error:
        if error.code == "E_NOT_RUNNING":
            error.hint = "the job may have begun: see `vfl-node jobs` before you ask again"
        raise
    err.print(f"{job_id} goes on if this command is interrupted")

    def fetch(client: Any) -> bytes:
        _follow(client, job_id)
        return client.predictions(job_id)

    return _patiently(settings, fetch)


def _patiently(settings: Settings, ask: Callable[[Any], bytes]) -> bytes:
    """What ``ask`` gets of the node; where that is started again meanwhile, it is asked again."""
    while True:
        try:
            return ask(_client_of(settings))
        except UsageError as error:
            if error.code != "E_NOT_RUNNING":
                raise
            _await_node(settings, error)


def _await_node(settings: Settings, lost: UsageError) -> None:
    limit = time.monotonic() + RESTART_S
    while time.monotonic() < limit:
        time.sleep(0.5)
        with suppress(UsageError):
            _client_of(settings).health()
            return
    raise lost


def _follow(client: Any, job_id: str) -> None:
    from vfl_node.terminal import Shown

    view: dict[str, Any] = {}
    with Shown(job_id) as shown:
        for view in client.watch(job_id):
            shown.update(view)
    if view["state"] != "done":
        error = view["error"] or {"message": f"the job is {view['state']}", "code": "E_JOB", "hint": ""}
        raise VflError(error["message"], code=error["code"], hint=error["hint"] or "")
    out.print(f"{job_id} is done; its report: http://{client.address}/jobs/{job_id}")


def _data_files(job: Job, options: list[str]) -> dict[str, Path]:
    """``PARTY=FILE`` options as party name → file."""
    coordinator = job.parties.coordinator
    roles = {"active": job.parties.active, "passive": job.parties.passive[0], "coordinator": coordinator}
    files: dict[str, Path] = {}
    for option in options:
        key, equals, path = option.partition("=")
        name = key if key in job.parties.all else roles.get(key)
        if not equals or not path:
            raise UsageError(f"--data {option} is not PARTY=FILE", hint="for example --data active=clinic.csv")
        if name is None:
            raise UsageError(
                f"--data names {key!r}, which is no party of this job", hint=f"parties: {', '.join(job.parties.all)}"
            )
        if name == coordinator:
            raise UsageError(f"--data {option}: {name} is the job's coordinator, which has no data", hint="leave it out")
        if name in files:
            raise UsageError(f"--data is given twice for {name}")
        files[name] = Path(path)
        if not files[name].is_file():
            raise UsageError(f"no file {path} (data of {name})", code="E_FILE")
    if missing := [name for name in job.parties.all if name not in files and name != coordinator]:
        raise UsageError(f"no --data for {missing[0]}", hint=f"--data {missing[0]}=FILE.csv")
    return files


def _summarise(path: Path, seconds: float) -> None:
    report = json.loads(path.read_text())
    alignment = report["alignment"]
    names = ("ours", "theirs", "rows", "union", "intersection")
    sizes = ", ".join(f"{name} {'hidden' if alignment[name] is None else alignment[name]}" for name in names)
    out.print(f"aligned by {alignment['protocol'].upper()}: {sizes}")
    for title, metrics in (("federated", report["metrics"]), ("active party alone", report["local_metrics"])):
        if not metrics:
            continue
        shown = []
        for name in ("auc", "ace", "nll", "accuracy"):
            if metrics.get(name) is None:
                continue
            spread = (metrics.get("intervals") or {}).get(name)
            shown.append(f"{name} {metrics[name]:.4f}" + (f" [{spread['low']:.3f}, {spread['high']:.3f}]" if spread else ""))
        out.print(f"{title}: {', '.join(shown)} on {metrics['rows']} {metrics['population']} rows")
    out.print(f"done in {seconds:.1f} s; report: {path.with_suffix('.html')}")


def _interrupted(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _checked_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from vfl_node.job import Name

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r} cannot be a party's name", hint="lower-case letters, digits and inner hyphens, at most 63"
        ) from None


def main() -> NoReturn:
    """Entry point: runs the command; a person's mistake ends in one clear message, never a traceback."""
    configure_logs()
    try:
        status = app(standalone_mode=False)
    except VflError as error:
        err.print(f"error: {error}", markup=False)
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer"):
            raise
        show = getattr(error, "show", None)  # click's own usage errors
        if show:
            show()
        sys.exit(getattr(error, "exit_code", 2))
    if status == INTERRUPTED:  # typer turns Ctrl-C into this status by itself
        err.print("interrupted")
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()


__all__ = ["Settings", "app", "main"]
