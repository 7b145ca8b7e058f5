"""``vfl-node doctor``: what is wrong on this machine, and on the line to each peer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vfl_node.cli.shared import ConfigOption, app, out, print_json
from vfl_node.errors import UsageError

if TYPE_CHECKING:
    from vfl_node.node.doctor.finding import Finding


@app.command()
def doctor(
    config: ConfigOption = None,
    peer: Annotated[str, typer.Option(help="Only the line to this peer.")] = "",
    job: Annotated[Optional[Path], typer.Option(help="A job file: whether this machine has room for it.")] = None,  # noqa: UP045
    rows: Annotated[
        Optional[tuple[int, int]],  # noqa: UP045
        typer.Option(metavar="N M", help="In place of a job: rows of this node and of the peer to align."),
    ] = None,
    idle: Annotated[float, typer.Option(min=0, max=600, help="Leave each line silent for so many seconds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one document at the end.")] = False,
) -> None:
    """Find what is wrong: nineteen checks of this machine and of the line to each peer; exit status 1 if one fails."""
    if config is None:
        raise UsageError("name the node", hint="--config FILE of a node on this machine")
    if job and rows:
        raise UsageError("--job and --rows both say what is to run", hint="leave one of the two out")
    if rows and min(rows) < 1:
        raise UsageError("--rows takes two numbers of at least 1", hint="for example --rows 10000 20000")
    from vfl_node.node.doctor.examine import examine
    from vfl_node.node.doctor.finding import worst
    from vfl_node.version import VERSION

    findings: list[Finding] = []
    alike: list[Finding] = []
    for found in examine(config, peer=peer, job=job, rows=rows, idle_s=idle):
        findings.append(found)
        if as_json:
            continue
        if alike and _is_same(alike[-1], found):
            alike.append(found)
            continue
        _show(alike)
        alike = [found]
    _show(alike)
    status = worst(findings)
    if as_json:
        print_json({"version": VERSION, "status": status, "checks": [found.describe() for found in findings]})
    else:
        counts = [(name, sum(found.status == name for found in findings)) for name in ("ok", "warn", "FAIL", "skipped")]
        out.print(", ".join(f"{count} {name}" for name, count in counts if count))
    if status == "FAIL":
        raise typer.Exit(1)


def _is_same(before: Finding, found: Finding) -> bool:
    """Whether two checks, one after the other, were skipped for one reason."""
    return found.status == "skipped" and (before.status, before.text, before.peer) == (found.status, found.text, found.peer)


def _show(alike: list[Finding]) -> None:
    """One line for one check, or for several that were skipped for one reason."""
    if not alike:
        return
    first, last = alike[0], alike[-1]
    names = first.name if first is last else f"{first.name} to {last.name}"
    numbers = f"{first.number}" if first is last else f"{first.number}-{last.number}"
    out.print(f"{numbers:>5} {first.status:<7} {names}{f', {first.peer}' if first.peer else ''}: {first.text}")
    if first.hint and first.status != "ok":
        out.print(f"{'':>13} → {first.hint}")
