"""The command that puts several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from vfl_node.cli.shared import ConfigOption, NodeOption, TokenOption, app, client_at, out, print_json, print_table
from vfl_node.errors import UsageError
from vfl_node.report.choice import choose, describe_rows, to_document
from vfl_node.report.compare import Runs, check_number, compare_reports, name_runs
from vfl_node.report.side_by_side import equal_settings, parts
from vfl_node.report.stored import name_sources, read_report


@app.command("compare")
def compare_runs(
    runs: Annotated[list[str], typer.Argument(help="Two to six: a report.json, a folder with one, or a job at a node.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare runs: which one to choose and why, and settings, metrics, leaks and cost side by side."""
    check_number(len(runs))
    reports = [_fetch_report(run, config, node, token_file) for run in runs]
    compared = compare_reports(name_runs(reports, name_sources(runs)))
    if as_json:
        print_json(to_document(compared))
    else:
        _print(compared)


def _fetch_report(run: str, config: Path | None, node: str, token_file: Path | None) -> dict[str, Any]:
    """The report that ``run`` means: a file or folder or, where there is none, a job."""
    if Path(run).exists():
        return read_report(Path(run))
    if config is None and not node:
        hint = "for a job at a node say --config FILE, or --node HOST:PORT --token-file FILE"
        raise UsageError(f"there is no file or folder {run}", code="E_FILE", hint=hint)
    return client_at(config, node, token_file).report(run)


def _print(compared: Runs) -> None:
    choice, note = choose(compared), describe_rows(compared)
    out.print("\n".join((choice.words, *choice.reasons, "")))
    names = [Column(Text(run.name), overflow="fold") for run in compared.runs]
    table = Table(Column("", overflow="fold"), *names, box=None, pad_edge=False)
    for number, part in enumerate(parts(compared)):
        if number:
            table.add_row()
        table.add_row(Text(part.title, style="bold"))
        for line in part.lines:
            table.add_row(Text(line.code or line.title), *(Text(cell.words) for cell in line.cells))
    print_table(table)
    out.print(f"\n{len(equal_settings(compared))} settings are equal.{f' {note}' if note else ''}")
