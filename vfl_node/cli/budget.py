"""``vfl-node budget``: what hidden trainings have spent with each partner, and how a new count begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Column, Table

from vfl_node.cli.shared import app, err, out, print_json, print_table
from vfl_node.errors import UsageError
from vfl_node.gdp import epsilon_of, mu_of
from vfl_node.job import load_job
from vfl_node.session.spent import SCALED, TELLS, auc_text, epsilon_text
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings

JOB_EPSILON = 1.0


@app.command()
def budget(
    config: Annotated[Path, typer.Option("--config", help="The node's configuration file.")],
    partner: Annotated[Optional[str], typer.Argument(metavar="[PARTNER]", help="Only this partner.")] = None,  # noqa: UP045
    job: Annotated[Optional[Path], typer.Option(help="A job file: how many more such jobs fit.")] = None,  # noqa: UP045
    forget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="PARTNER", help="Begin a new count with this partner; what was counted stays listed."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --forget: do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what hidden trainings have spent with each partner, of budgets.epsilon in the policy. The node may be running."""
    settings = load_settings(config)
    for name in (partner, forget):
        if name is not None and name not in settings.peers:
            hint = f"its peers: {', '.join(sorted(settings.peers)) or 'none yet'}"
            raise UsageError(f"{name} is no peer of {settings.name}", code="E_UNKNOWN_PEER", hint=hint)
    mu, what = mu_of(JOB_EPSILON), f"ε {epsilon_text(JOB_EPSILON)}"
    if job is not None:
        spec = load_job(job)
        mu = spec.train.opens(spec.evaluate).mu if spec.train else 0.0
        if not mu:
            raise UsageError(f"{job} spends nothing", hint="only hidden training that opens something does")
        what = f"ε {epsilon_text(epsilon_of(mu))}"
    if forget is not None:
        _forget(settings, forget, yes=yes)
    from vfl_node.node.spending import accounts

    found = list(accounts(settings, mu, partner or forget))
    if as_json:
        print_json(found)
    elif found:
        _show(found, what)
    else:
        out.print("no partner is configured")


def _forget(settings: Settings, partner: str, *, yes: bool) -> None:
    """Begin a new count, once its owner has said that this is meant."""
    from vfl_node.node.spending import counts_with

    err.print(
        f"What was opened to {partner} stays opened: with a new count {partner} may learn as much again, beside what it has.",
    )
    if not yes:
        typer.confirm(f"Begin a new count with {partner}?", abort=True, err=True)
    err.print(f"{counts_with(settings, partner).forget()} expenses with {partner} count no more")


def _show(found: list[dict[str, Any]], what: str) -> None:
    columns = (Column(title, justify="right") for title in ("allowed", "spent", "left", f"jobs of {what} that fit"))
    table = Table("with", "table", *columns, box=None, pad_edge=False)
    for account in found:
        allowed, left = (None if account[key] is None else epsilon_text(account[key]) for key in ("allowed", "left"))
        spent = "unknown" if account["lost"] else epsilon_text(account["spent"])
        fits = "any" if account["fits"] is None else f"{account['fits']:,}"
        table.add_row(account["partner"], account["table"], allowed or "no limit", spent, left or "no limit", fits)
    print_table(table)
    for account in found:
        for line in _words(account):
            out.print(line)


def _words(account: dict[str, Any]) -> list[str]:
    """What a line of the table means."""
    place = f"{account['partner']}, {account['table']}"
    said = []
    if account["lost"]:
        said.append(f"{place}: what was counted is lost, so nothing fits: vfl-node budget --forget {account['partner']}")
    if account["unbounded"]:
        said.append(f"{place}: NO BOUND for what {account['unbounded']} of its jobs opened (unbounded_models)")
    elif account["auc_bound"] is None:
        said.append(f"{place}: jobs over different alignments, or with targets that are not covered: see each one's report")
    elif account["jobs"]:
        what = "whether one record is shared" if any(about.endswith(SCALED) for about in account["about"]) else TELLS
        bound = f"at an AUC of at most {auc_text(account['auc_bound'])}"
        said.append(f"{place}: beyond what alignment told, whoever has all that was opened tells {what} {bound}")
    for key, verb in (("jobs", "spent by"), ("forgotten", "no longer counted")):
        if account[key]:
            listed = ", ".join(f"{job_id} ({epsilon_text(epsilon)})" for job_id, epsilon in account[key].items())
            said.append(f"{place}: {verb} {listed}")
    return said
