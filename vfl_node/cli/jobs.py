"""Commands about the jobs of a running node."""

from __future__ import annotations

import json
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
from vfl_node.job import load_job, parse_job
from vfl_node.report.summary import main_text
from vfl_node.report.words import human_seconds


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
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
    view = client.submit(spec.canonical())
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
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the jobs of a running node."""
    client = client_at(config, node, token_file)
    views = client.jobs()
    if as_json:
        paths = ({"report_path": str(client.report_path(view["id"]) or "") if view["report"] else ""} for view in views)
        print_json([view | path for view, path in zip(views, paths, strict=True)])
        return
    if not views:
        out.print("no jobs yet")
        return
    head = ("state", "phase", "with", "submitted", "took", "result")
    table = Table(Column("job", no_wrap=True, overflow="fold"), *head, box=None, pad_edge=False)
    for view in views:
        done = f" {view['done']}/{view['total']}" if view["total"] and view["state"] == "running" else ""
        done = f" (place {view['place']})" if view.get("place") else done
        took = "" if view["took_s"] is None else human_seconds(view["took_s"])
        result = Text(_result(view))  # no markup
        parties = ", ".join(view["parties"])
        table.add_row(view["id"], view["state"], f"{view['phase']}{done}", parties, view["submitted"], took, result)
    print_table(table)
    if any(view["report"] for view in views):
        path = client.report_path("JOB")
        out.print(f"reports: {path or 'vfl-node board prints a link to all of them'}")


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
def budgets(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what is used of the limits that a running node's owner sets over many jobs, with each peer and of each model."""
    found = client_at(config, node, token_file).health()["budgets"]
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
