"""The command that shows and verifies what people did at a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vfl_node.cli.shared import app, err, out, print_json, print_table
from vfl_node.process.files import fault
from vfl_node.settings.reading import load_settings
from vfl_node.trust.audit_log import AuditLog, verify_log

NOT_WHOLE = 3
"""Exit status where the log is not what was written."""

MOST_FAULTS = 20


@app.command("audit-log")
def audit_log(
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file.")],
    verify: Annotated[bool, typer.Option("--verify", help="Look whether any line was changed; exit status 3 if so.")] = False,
    last: Annotated[int, typer.Option(min=1, help="How many lines to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one line of JSON for each.")] = False,
) -> None:
    """Show what people did at a node's HTTP port, or verify the record of it. The node may be running."""
    state_dir = load_settings(config).state_dir
    try:
        if verify:
            _verify(state_dir)
            return
        found = AuditLog(state_dir).newest(last)[::-1]
    except OSError as error:
        raise fault(error) from None
    if as_json:
        for line in found:
            print_json(line, indent=None)
        return
    head = ("line", "at", "who", "how", "from", "what", "about", "result")
    table = Table(*head, box=None, pad_edge=False)
    for line in found:
        what = line.get("note") or f"{line.get('method', '')} {line.get('route', '')}"
        count = f" ({line['count']} times)" if line.get("count", 1) > 1 else ""
        cells = (line.get("person", ""), line.get("how", ""), line.get("address", ""), f"{what}{count}", line.get("object", ""))
        table.add_row(str(line["n"]), line["at"][:19], *cells, str(line.get("result", "")))
    if found:
        print_table(table)
    else:
        out.print("nothing was done yet")


def _verify(state_dir: Path) -> None:
    """Say whether the log is whole. Raises Exit with status 3 if it is not, OSError if it cannot be read."""
    verdict = verify_log(state_dir)
    for line in verdict.faults[:MOST_FAULTS]:
        out.print(line)
    if verdict.faults:
        more = len(verdict.faults) - MOST_FAULTS
        err.print("the audit log is not what was written" + (f" ({more} more lines)" if more > 0 else ""))
        raise typer.Exit(NOT_WHOLE)
    if not verdict.lines:
        out.print("nothing was done yet")
        return
    earlier = f"; lines before {verdict.first} are not here" if verdict.first > 1 else ""
    out.print(f"{verdict.lines} lines are as they were written{earlier}")
    out.print(f"line {verdict.last} has digest {verdict.digest}")
    out.print("Keep it elsewhere: another digest at this number, or none, shows that the end was cut.")
