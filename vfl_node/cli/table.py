"""``vfl-node table``: what the node knows of its tables over many jobs, and how new counts begin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from vfl_node.cli.shared import app, err, out, print_json, print_table
from vfl_node.settings.reading import load_settings

tables = typer.Typer(no_args_is_help=True, help="What this node knows of its tables over many jobs.")
app.add_typer(tables, name="table")

ConfigPath = Annotated[Path, typer.Option("--config", help="The node's configuration file.")]


@tables.command("list")
def list_tables(config: ConfigPath, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Show each table that a job has read, what had become of it then, and which are counted together."""
    from vfl_node.node.lineages import Lineages, accept_hint

    lineages = Lineages(load_settings(config).state_dir)
    known = [lineages.find(name) for name in sorted({table.name for table in lineages.tables})]
    found: list[dict[str, Any]] = [
        {
            "table": table.name,
            "rows": table.rows,
            "was": table.word,
            "added": table.added,
            "changed": table.changed,
            "gone": table.gone,
            "at": table.at,
            "awaits_word": lineages.awaits_word(table),
            "counted_with": list(lineages.names(table.name)[1:]),
        }
        for table in known
        if table
    ]
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("no job has read a table yet")
        return
    figures = (Column(title, justify="right") for title in ("rows", "new", "changed", "gone"))
    shown = Table("table", "was", *figures, "read", "counted with", box=None, pad_edge=False)
    for table in found:
        counts = (f"{table[key]:,}" for key in ("rows", "added", "changed", "gone"))
        shown.add_row(table["table"], table["was"], *counts, table["at"][:16], ", ".join(table["counted_with"]))
    print_table(shown)
    for table in found:
        if table["awaits_word"]:
            out.print(f"{table['table']} has other records now: {accept_hint(table['table'])}")


@tables.command("accept")
def accept_table(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Its name in the settings.")],
    config: ConfigPath,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Begin new counts for a table that has other records now. The node may be running."""
    settings = load_settings(config)
    from vfl_node.node.lineages import Lineages

    err.print(f"Budgets over {name} begin anew with every partner, but for what was counted since it has these records.")
    if not yes:
        typer.confirm(f"Begin new counts for {name}?", abort=True, err=True)
    Lineages(settings.state_dir).accept(name)
    err.print(f"what was counted over the earlier records of {name} counts for it no more")
