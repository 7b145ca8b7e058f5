"""Commands about the jobs of a running node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from vfl_node.cli.shared import (
    BoardOption,
    ConfigOption,
    JobArgument,
    NodeOption,
    TokenOption,
    app,
    client_at,
    follow,
    out,
)
from vfl_node.job import load_job

UNCUT = 10_000
"""Width of a table that is not shown on a terminal."""


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    board: BoardOption = "",
) -> None:
    """Submit a job at a running node."""
    spec = load_job(job)
    client = client_at(config, node, token_file)
    view = client.submit(spec.canonical())
    out.print(view["id"])
    if wait:
        follow(client, view["id"], board)


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
    views = client_at(config, node, token_file).jobs()
    if as_json:
        out.print_json(json.dumps(views))
        return
    table = Table(Column("job", no_wrap=True, overflow="fold"), "state", "phase", "with", "submitted", box=None, pad_edge=False)
    for view in views:
        done = f" {view['done']}/{view['total']}" if view["total"] and view["state"] == "running" else ""
        done = f" (place {view['place']})" if view.get("place") else done
        table.add_row(view["id"], view["state"], f"{view['phase']}{done}", ", ".join(view["parties"]), view["submitted"])
    whole = out if out.is_terminal else Console(highlight=False, width=UNCUT)  # a program that reads the table needs whole ids
    whole.print(table if views else "no jobs yet")


@app.command()
def watch(
    job_id: JobArgument,
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    board: BoardOption = "",
) -> None:
    """Follow a job to its end; exit status 0 if it succeeds."""
    follow(client_at(config, node, token_file), job_id, board)


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
