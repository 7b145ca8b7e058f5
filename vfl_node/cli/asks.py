"""Commands with which an owner looks at jobs of peers that wait for an answer, and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from vfl_node.cli.extensions import describe
from vfl_node.cli.shared import (
    ConfigOption,
    JobArgument,
    JsonOption,
    NodeOption,
    TokenOption,
    app,
    client_at,
    limit_text,
    out,
    print_json,
)
from vfl_node.cli.shared import print_table as print_rows
from vfl_node.report.words import human_time
from vfl_node.trust.refusal import RefusalReason

NoteOption = Annotated[str, typer.Option("--note", help="For this node's owner; no other party sees it.")]


@app.command()
def asks(
    config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None, as_json: JsonOption = False
) -> None:
    """List the jobs of peers that wait for your answer, and their requests for more of a budget."""
    client = client_at(config, node, token_file)
    found = client.asks()
    if as_json:
        print_json(found)
        return
    for each in client.extensions():
        if each["state"] in ("asked", "drafted") and (each["side"] == "theirs" or each["state"] == "drafted"):
            out.print(f"{describe(each)}; vfl-node ledger approve {each['id']}, or refuse")
    if not found:
        out.print("no job waits for you")
        return
    table = Table(Column("job", no_wrap=True, overflow="fold"), "from", "purpose", "until", box=None, pad_edge=False)
    for ask in found:
        until = human_time(ask["expires"]) if ask["expires"] else ""
        table.add_row(ask["id"], ask["submitter"], ask["error"] or ask["purpose"] or "", until)
    print_rows(table)
    out.print("look at one: vfl-node show JOB")


@app.command()
def show(
    job_id: JobArgument,
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a job asks for: who takes part, what is done, what each party would learn, and what it costs."""
    shown = client_at(config, node, token_file).manifest(job_id)
    if as_json:
        print_json(shown)
        return
    out.print("\n".join(_list_lines(shown)))


@app.command()
def approve(
    job_id: JobArgument,
    digest: Annotated[str, typer.Argument(metavar="DIGEST8", help="The first 8 digits of the digest that `show` prints.")],
    note: NoteOption = "",
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
) -> None:
    """Let a job of a peer run. Look at it before: vfl-node show JOB."""
    job = client_at(config, node, token_file).approve(job_id, digest.lower(), note)
    waits = job["state"] == "asked"
    out.print(f"you have said yes to {job_id}; a second person must, too" if waits else f"{job_id} is approved")


@app.command()
def refuse(
    job_id: JobArgument,
    reason: Annotated[RefusalReason, typer.Option("--reason", help="Why: all that the other parties are told.")],
    note: NoteOption = "",
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
) -> None:
    """Refuse a job of a peer."""
    client_at(config, node, token_file).refuse(job_id, reason.value, note)
    out.print(f"{job_id} is refused")


def _list_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """The manifest in words, line by line."""
    yield f"job {shown['id']} ({shown['state']})" + (f": {shown['purpose']}" if shown["purpose"] else "")
    parties = ", ".join(f"{party['name']} ({party['role']})" for party in shown["parties"])
    yield f"asked by {shown['submitter']} on {human_time(shown['created'])}, until {human_time(shown['expires'])}"
    yield f"parties: {parties}"
    yield "what is done:"
    yield from (f"  {step}" for step in shown["steps"])
    yield "what each party would learn at most:"
    for name in dict.fromkeys(each["to"] for each in shown["reveals"]):
        yield f"  {name}:"
        for each in shown["reveals"]:
            if each["to"] == name:
                yield f"    {'NEW ' if each['new'] else ''}{each['what']}: {each['bound']}"
    if shown["budgets"]:
        yield "your limits, used now → after the job at most:"
    for each in shown["budgets"]:
        allowed = limit_text(each) + ("" if each["allowed"] is None else " allowed")
        yield f"  {each['limit']} with {each['partner']}: {each['used']:,} → {each['after']:,} ({allowed})"
    yield from _list_differences(shown)
    yield "answers are signed by each party" if shown["signed"] else "answers are not signed: this node has no signing key"
    for each in shown["told"]:
        yield f"the card of {each['name']} was told by {each['by']}, not compared: vfl-node card {each['name']}"
    if decision := shown["decision"]:
        who = "by the policy" if decision["by"] == "rule" else f"by {' and '.join(decision['persons']) or 'the owner'}"
        verdict = {"approve": "approved", "refuse": "refused"}[decision["verdict"]]
        yield f"{verdict} {who} on {human_time(decision['at'])}" + (f": {decision['note']}" if decision["note"] else "")
    yield f"digest: {shown['digest']}"
    if shown["by"] == "nobody":
        yield "the policy refuses it by now (vfl-node policy show)"
    if shown["by"] == "two":
        yield "two persons must say yes" + (f"; {' and '.join(shown['yes'])} has" if shown["yes"] else "")
    if shown["state"] == "asked":
        yield f"to let it run: vfl-node approve {shown['id']} {shown['digits']}"
        yield f"to refuse it:  vfl-node refuse {shown['id']} --reason {'|'.join(reason.value for reason in RefusalReason)}"


def _list_differences(shown: Mapping[str, Any]) -> Iterator[str]:
    if shown["previous"] is None:
        yield "no job of this name has run with these parties"
    elif shown["same"]:
        yield f"the same as the last job of this name, {shown['previous']}"
    else:
        yield f"what differs from the last job of this name, {shown['previous']}:"
        for each in shown["differences"]:
            yield f"  {each['key']}: {each['before'] or 'not there'} → {each['now'] or 'not there'}"
