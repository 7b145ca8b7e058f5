"""Commands about the jobs of a running node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from vfl_node.cli.shared import (
    BoardOption,
    ConfigOption,
    JobArgument,
    JsonOption,
    NodeOption,
    TokenOption,
    app,
    client_at,
    follow,
    limit_text,
    out,
    print_json,
    print_table,
)
from vfl_node.errors import UsageError
from vfl_node.job import load_job, parse_job
from vfl_node.node.client import Client
from vfl_node.report.summary import main_text
from vfl_node.report.words import human_seconds, human_span
from vfl_node.web.wanted import GROUPS, KINDS, RESUMABLE

DRAIN_LOOK_S = 1.0
"""How often it is looked whether jobs still run."""


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    priority: Annotated[
        int, typer.Option("--priority", min=-2, max=2, help="In this node's queue: -2 to 2. No other party hears of it.")
    ] = 0,
    purpose: Annotated[str, typer.Option("--purpose", help="Why you run it, for all parties; in place of the file's.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    board: BoardOption = "",
    as_json: JsonOption = False,
) -> None:
    """Submit a job at a running node."""
    spec = load_job(job)
    if purpose:
        spec = parse_job(json.dumps(json.loads(spec.canonical()) | {"purpose": purpose}), source="the job with --purpose")
    client = client_at(config, node, token_file)
    view = client.submit(spec.canonical(), priority)
    if not as_json:
        out.print(view["id"])
    elif not wait:
        print_json(view, indent=None)
    if wait:
        follow(client, view["id"], board, as_json=as_json)


@app.command("board")
def open_board(
    config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None, board: BoardOption = ""
) -> None:
    """Print a link that opens a running node's board in a browser; it works once, within an hour."""
    out.print(client_at(config, node, token_file).link(board=board))


@app.command()
def jobs(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    state: Annotated[str, typer.Option("--state", help="Only these: open, ended, resumable, or a state such as done.")] = "",
    partner: Annotated[str, typer.Option("--partner", help="Only jobs with this party.")] = "",
    name: Annotated[str, typer.Option("--name", help="Only jobs of this name.")] = "",
    since: Annotated[str, typer.Option("--since", help="Only those submitted since then: 2026-11-28, 7d or 12h.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many, the newest; 0: all.")] = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the jobs of a running node."""
    chosen = _chooser(state, partner, name, since)
    client = client_at(config, node, token_file)
    views = [view for view in client.jobs() if chosen(view)][: limit or None]
    if as_json:
        paths = ({"report_path": str(client.report_path(view["id"]) or "") if view["report"] else ""} for view in views)
        print_json([view | path for view, path in zip(views, paths, strict=True)])
        return
    if not views:
        out.print("no such jobs" if state or partner or name or since else "no jobs yet")
        return
    head = ("state", "phase", "with", "submitted", "took", "result")
    table = Table(Column("job", no_wrap=True, overflow="fold"), *head, box=None, pad_edge=False)
    for view in views:
        took = "" if view["took_s"] is None else human_seconds(view["took_s"])
        result = Text(_result(view))  # no markup
        parties = ", ".join(view["parties"])
        table.add_row(view["id"], view["state"], Text(_progress(view)), parties, view["submitted"], took, result)
    print_table(table)
    if any(view["report"] for view in views):
        path = client.report_path("JOB")
        out.print(f"reports: {path or 'vfl-node board prints a link to all of them'}")


@app.command()
def drain(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until no job runs any more.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Begin jobs again.")] = False,
) -> None:
    """Have a running node begin no job, as before an upgrade; those that run go on. It holds over a restart."""
    if wait and off:
        raise UsageError("--wait and --off do not go together", hint="leave one of them out")
    client = client_at(config, node, token_file)
    client.drain(on=not off)
    if off:
        out.print("the node begins jobs again")
        return
    while (busy := _read_health(client, "places")["busy"]) and wait:
        time.sleep(DRAIN_LOOK_S)
    out.print(f"the node begins no job; {busy or 'none'} still {'run' if busy > 1 else 'runs'}")


def _chooser(state: str, partner: str, name: str, since: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a job is wanted. Raises UsageError where an option cannot be read."""
    if state not in KINDS:
        raise UsageError(f"--state {state} is none", hint=f"one of {', '.join(filter(None, KINDS))}")
    begin = _moment(since) if since else None

    def chosen(view: dict[str, Any]) -> bool:
        of_state = state in ("", view["state"]) or view["state"] in GROUPS.get(state, ())
        of_state = view["resumable"] if state == RESUMABLE else of_state
        late = begin is None or datetime.fromisoformat(view["submitted"].replace("Z", "+00:00")) >= begin
        return of_state and late and partner in ("", *view["parties"]) and (not name or name == view["name"])

    return chosen


def _moment(since: str) -> datetime:
    """What ``--since`` says: days or hours ago, or a day or moment of this machine's clock. Raises UsageError."""
    try:
        if since[-1] in "dh":
            return datetime.now(timezone.utc) - float(since[:-1]) * {"d": timedelta(days=1), "h": timedelta(hours=1)}[since[-1]]
        return datetime.fromisoformat(since).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"--since {since} is no moment", hint="for example 2026-11-28, 7d or 12h") from None


def _progress(view: dict[str, Any]) -> str:
    """How far a job is, or why it waits."""
    if view.get("queue"):
        return str(view["queue"]["reason"])
    done = f" {view['done']}/{view['total']}" if view["total"] and view["state"] == "running" else ""
    left = human_span(view.get("time_left_s") or ())
    return f"{view['phase']}{done}{f', {left}' if left else ''}"


def _result(view: dict[str, Any]) -> str:
    """What came of a job: its main metric, or what failed and what to do."""
    if error := view["error"]:
        return f"{error['code']}: {error['message']}" + (f"; {error['hint']}" if error["hint"] else "")
    return main_text(view["metrics"])


@app.command()
def watch(
    job_id: JobArgument,
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    board: BoardOption = "",
    as_json: JsonOption = False,
) -> None:
    """Follow a job to its end; exit status 0 if it succeeds."""
    follow(client_at(config, node, token_file), job_id, board, as_json=as_json)


@app.command()
def cancel(job_id: JobArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """Cancel a job at this node and its peers."""
    client_at(config, node, token_file).cancel(job_id)
    out.print(f"{job_id} is being cancelled")


@app.command()
def resume(job_id: JobArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """Continue a job that failed but can be resumed, for example because its peer was lost."""
    client_at(config, node, token_file).resume(job_id)
    out.print(f"{job_id} goes on")


@app.command()
def services(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the services of predictions of a running node, and how much more others may learn about their models."""
    found = _read_health(client_at(config, node, token_file), "services")
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("no service of predictions runs; the first request begins one: vfl-node predict")
        return
    head = (Column(title, justify="right") for title in ("requests", "rows asked", "rows left"))
    table = Table(Column("job", no_wrap=True, overflow="fold"), "model", "state", "asked by", *head, box=None, pad_edge=False)
    for each in found:
        rows = "damaged" if each["rows"] is None else f"{each['rows']:,}"
        table.add_row(
            *(each[key] or "" for key in ("job", "model", "state", "asker")), f"{each['requests']:,}", rows, _left(each)
        )
    print_table(table)


def _read_health(client: Client, key: str) -> Any:
    """What ``/health`` of a node says under ``key``. Raises UsageError: the token does not suffice, or it has no such key."""
    found = client.health()
    if key in found:
        return found[key]
    if "version" not in found:
        hint = "name a token of somebody who may look: --token-file FILE"
        raise UsageError(f"the node does not tell everybody its {key}", code="E_FORBIDDEN", hint=hint)
    raise UsageError(
        f"{found['party']} runs vfl-node {found['version']}, an earlier release that does not tell its {key}",
        code="E_VERSION",
        hint="upgrade that node, or run the command of its own release",
    )


def _left(service: dict[str, Any]) -> str:
    """How many more rows of its model this node may tell others about."""
    if (budget := service["predicted_rows"]) is None:
        return "has no half"
    if budget["used"] is None:
        return "damaged"
    return "no limit" if budget["allowed"] is None else f"{max(0, budget['allowed'] - budget['used']):,}"


@app.command()
def budgets(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what is used of the limits that a running node's owner sets over many jobs, with each peer and of each model."""
    found = _read_health(client_at(config, node, token_file), "budgets")
    if as_json:
        print_json(found)
        return
    table = Table(
        "with", "limit", Column("used", justify="right"), Column("allowed", justify="right"), box=None, pad_edge=False
    )
    for name, limits in (found["peers"] | found["models"]).items():
        for limit, budget in (limits or {}).items():
            table.add_row(name, limit, f"{budget['used']:,}", limit_text(budget))
        if limits is None:
            table.add_row(name, "what was counted is damaged (E_STATE_CORRUPT)")
    if table.row_count:
        print_table(table)
    else:
        out.print("no peer is configured")
