"""The command that attacks what a passive node's kept half of a model sends."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.table import Column, Table

from vfl_node.cli.shared import JobArgument, app, out, print_json, print_table
from vfl_node.errors import UsageError
from vfl_node.process.logs import configure_logs
from vfl_node.report.words import METRICS_OF_COLUMNS
from vfl_node.settings.reading import load_settings

if TYPE_CHECKING:
    from vfl_node.execution.feature_audit import FeatureAuditResult


@app.command()
def audit(
    job_id: JobArgument,
    config: Annotated[Path, typer.Option(help="The passive node's configuration file.")],
    columns: Annotated[
        str | None, typer.Option(help='A,B: columns to rebuild; all: every one that varies. "A,B": one with a comma.')
    ] = None,
    known_share: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0.0001, max=0.5, help="The share of the rows whose columns the other party is assumed to know."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Try to rebuild this passive node's columns from what its half of a trained model sends. Nothing is sent for it.

    Columns and share are those of audit.features where the options do not say. The node may be running.
    """
    configure_logs(quiet=True)
    settings = load_settings(config)
    names = None if columns is None else _names(columns)
    from vfl_node.node.feature_audit import audit as audit_job  # loads torch

    found = audit_job(settings, job_id, names, known_share)
    if as_json:
        print_json(_to_json(found))
        return
    table = Table(
        Column("column", overflow="fold"),
        "metric",
        *(Column(head, justify="right") for head in ("constant", "rebuilt", "gain")),
        box=None,
        pad_edge=False,
    )
    for column in found.columns:
        figures = (column.constant, column.rebuilt, column.gain)
        table.add_row(column.column, METRICS_OF_COLUMNS[column.metric], *("-" if x is None else f"{x:.3f}" for x in figures))
    print_table(table)
    which = "shared rows of this party" if found.shared else "rows of this party that took part; which were shared is not kept"
    out.print(f"{found.rows:,} {which}; the columns of {found.known:,} are known to whoever rebuilds the others")
    defended = ", ".join(found.defences) or "none"
    out.print(f"defences: {defended}. Whoever joins columns of its own to the embeddings may rebuild more.")


def _names(columns: str) -> tuple[str, ...]:
    """The columns that the option means; none: all. A name with a comma stands in double quotes."""
    if columns == "all":
        return ()
    try:
        names = tuple(filter(None, next(csv.reader([columns], skipinitialspace=True), ())))
    except csv.Error:
        raise UsageError("--columns is not one line of names", hint="--columns A,B, or --columns all") from None
    if not names:
        raise UsageError("--columns names no column", hint="--columns A,B, or --columns all")
    return names


def _to_json(found: FeatureAuditResult) -> dict[str, Any]:
    return {**asdict(found), "columns": [{**asdict(column), "gain": column.gain} for column in found.columns]}
