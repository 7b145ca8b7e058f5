"""``vfl-node ledger``: what was counted, told and agreed with each partner over all jobs, and whether that was changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.table import Table

from vfl_node.cli.shared import app, err, limit_text, out, print_json, print_table
from vfl_node.errors import UsageError
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings

if TYPE_CHECKING:
    from vfl_node.trust.lane_check import LaneVerdict

NOT_WHOLE = 3
"""Exit status where a ledger is not what was written."""

MOST_FAULTS = 20


ledgers = typer.Typer(help="What was counted, told and agreed with each partner over all jobs.", rich_markup_mode=None)
app.add_typer(ledgers, name="ledger")


@ledgers.callback(invoke_without_command=True)
def ledger(
    context: typer.Context,
    config: Annotated[Optional[Path], typer.Option("--config", help="The node's configuration file.")] = None,  # noqa: UP045
    partner: Annotated[Optional[str], typer.Option(help="Only this partner.")] = None,  # noqa: UP045
    since: Annotated[str, typer.Option(metavar="DATE", help="Only entries from then on, such as 2027-01-31.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Look whether any entry was changed; exit status 3 if so.")] = False,
    folder: Annotated[Optional[Path], typer.Option(help="With --verify: a folder that --export wrote.")] = None,  # noqa: UP045
    export: Annotated[Optional[Path], typer.Option(help="Copy ledgers and keys to a new folder.")] = None,  # noqa: UP045
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what was counted, told and agreed with each partner over all jobs, or verify it. The node may be running."""
    if context.invoked_subcommand:
        if config is not None:
            hint = f"vfl-node ledger {context.invoked_subcommand} … --config FILE"
            raise UsageError("--config comes after the command", hint=hint)
        return
    from vfl_node.node import ledgers

    if folder is not None and verify:
        show_verdicts(ledgers.verify_exported(folder))
        return
    if config is None:
        raise UsageError("name the node", hint="--config FILE; or, for a folder that --export wrote, --verify --folder FOLDER")
    try:
        if since:
            date.fromisoformat(since[:10])
    except ValueError:
        raise UsageError(f"--since {since} is no date", hint="such as 2027-01-31") from None
    settings = load_settings(config)
    met = ledgers.partners_met(settings)
    if partner is not None and partner not in met:
        hint = f"it has ledgers with: {', '.join(met) or 'nobody yet'}"
        raise UsageError(f"{settings.name} has no ledger with {partner}", code="E_UNKNOWN_PEER", hint=hint)
    chosen = [partner] if partner else met
    if verify:
        show_verdicts((name, ledgers.verify_own(settings, name)) for name in chosen)
    elif export is not None:
        ledgers.export(settings, chosen, export)
        err.print(f"{len(chosen)} ledgers are in {export}; README.txt there says how to verify them")
    else:
        _show(settings, chosen, since, as_json=as_json)


def _show(settings: Settings, partners: list[str], since: str, *, as_json: bool) -> None:
    """Write down each ledger; one that is damaged is named, does not hide the others, and makes the exit status 3."""
    from vfl_node.node.ledgers import describe_all

    found = describe_all(settings, partners, since)
    if as_json:
        print_json(found)
    else:
        for lane in found:
            if not lane["error"]:
                _print(lane)
        if not found:
            out.print("nothing was agreed with anybody yet")
    damaged = [lane["error"] for lane in found if lane["error"]]
    for error in damaged:
        err.print(error)
    if damaged:
        raise typer.Exit(NOT_WHOLE)


def _print(lane: dict[str, Any]) -> None:
    seen = lane["seen"]
    signed = f"; {lane['partner']} has signed entry {seen['entry']} on {seen['at'][:10]}" if seen else ""
    out.print(f"{lane['partner']}: {lane['entries']} entries, head {lane['head'] or 'none'}{signed}")
    used = (f"{name} {budget['used']:g} of {limit_text(budget, 'any')}" for name, budget in lane["budgets"].items())
    out.print("used: " + ", ".join(used))
    table = Table("entry", "at", "kind", "what", box=None, pad_edge=False)
    for entry in lane["listed"]:
        table.add_row(str(entry["n"]), entry["at"][:19], entry["kind"], entry["text"])
    print_table(table)


def show_verdicts(verdicts: Iterator[tuple[str, LaneVerdict]]) -> None:
    """Say whether each ledger is whole. Raises Exit with status 3 if one is not."""
    whole = True
    for name, verdict in verdicts:
        for fault in verdict.faults[:MOST_FAULTS]:
            out.print(f"{name}, {fault}")
        if verdict.faults:
            more = len(verdict.faults) - MOST_FAULTS
            err.print(f"the ledger with {name} is not what was written" + (f" ({more} more faults)" if more > 0 else ""))
            whole = False
            continue
        seen = f"{name} has signed that it has seen entry {verdict.seen}, on {verdict.seen_at[:10]}" if verdict.seen else ""
        signed = "" if verdict.signed else "no entry is signed; "
        out.print(f"{name}: {verdict.entries} entries are as they were written; {signed}{seen or 'nobody else has signed'}")
        out.print(f"head {verdict.link.hex()}")
        for note in verdict.notes:
            out.print(f"note: {note}")
    if not whole:
        raise typer.Exit(NOT_WHOLE)
