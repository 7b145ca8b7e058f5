"""``vfl-node schedule``: jobs that a running node submits by a clock."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from vfl_node.cli.shared import ConfigOption, JsonOption, NodeOption, TokenOption, app, client_at, out, print_json, print_table

schedules = typer.Typer(no_args_is_help=True, help="Jobs that a running node submits by a clock.")
app.add_typer(schedules, name="schedule")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule in the settings.")]


@schedules.command("list")
def list_schedules(
    config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Show each schedule: when its next job comes, what became of the last one, and what others learn by it."""
    found = client_at(config, node, token_file).schedules()
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("this node has no schedules")
        return
    refusals = Column("refusals", justify="right")
    table = Table(Column("schedule", no_wrap=True), "at", "next (UTC)", refusals, "last", box=None, pad_edge=False)
    for each in found:
        at = f"{each['at']} {each['zone']}"
        table.add_row(each["name"], Text(at), _say_next(each), str(each["refusals"]), Text(_say_last(each)))
    print_table(table)
    for each in found:
        for line in filter(None, (each["tells"], *each["warnings"])):
            out.print(f"{each['name']}: {line}" if line == each["tells"] else f"warning: {line}")


@schedules.command()
def pause(name: NameArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """Submit no jobs by a schedule until it is resumed."""
    client_at(config, node, token_file).change_schedule(name, "pause")
    out.print(f"{name} is paused; a job of it that is under way goes on")


@schedules.command()
def resume(name: NameArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """Submit jobs by a schedule again, from its next time on."""
    client_at(config, node, token_file).change_schedule(name, "resume")
    out.print(f"{name} goes on with its next time")


@schedules.command()
def run(name: NameArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """Submit a schedule's job now, also where a condition says no."""
    out.print(client_at(config, node, token_file).change_schedule(name, "run")["job"])


def _say_last(each: dict[str, Any]) -> str:
    ended = f" ({each['ended']})" if each["ended"] and each["last_job"] in each["became"] else ""
    return each["became"] + ended + (f"; the next one waits: {each['waits']}" if each["waits"] else "")


def _say_next(each: dict[str, Any]) -> str:
    if each["paused"]:
        return "paused" if each["paused"] == "owner" else f"paused after {each['refusals']} refusals"
    return each["next"][:16].replace("T", " ") if each["next"] else "none any more"
