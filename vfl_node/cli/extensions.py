"""``vfl-node ledger extend``, ``asks``, ``approve`` and ``refuse``: more of a budget by agreement of two owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from vfl_node.cli.ledger import ledgers
from vfl_node.cli.shared import ConfigOption, JsonOption, NodeOption, TokenOption, client_at, out, print_json, print_table
from vfl_node.errors import UsageError

RequestArgument = Annotated[str, typer.Argument(metavar="REQUEST")]


@ledgers.command()
def extend(
    partner: Annotated[str, typer.Argument(metavar="PARTNER")],
    budget: Annotated[str, typer.Argument(metavar="BUDGET", help="Such as trainings.")],
    more: Annotated[str, typer.Argument(metavar="+N", help="How much more, at both nodes.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="The last day on which there is, such as 2027-01-31 (UTC).")],
    reason: Annotated[str, typer.Option(help="Why; the partner's owner reads it.")],
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
) -> None:
    """Ask a partner's owner for more of a budget than both policies allow, until a day."""
    try:
        number = float(more)
    except ValueError:
        raise UsageError(f"{more} is no number", hint="such as +10") from None
    asked = client_at(config, node, token_file).ask_extension(partner, budget, number, until, reason)
    waits = "a second person of yours must say yes" if asked["state"] == "drafted" else f"the owner of {partner} must say yes"
    out.print(f"request {asked['id']}: {waits}, within 7 days")


@ledgers.command()
def asks(
    config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None, as_json: JsonOption = False
) -> None:
    """List the newest request for more of a budget, of and to each partner."""
    found = client_at(config, node, token_file).extensions()
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("nobody has asked for more of a budget")
        return
    table = Table(Column("request", no_wrap=True), "what", "until", "state", box=None, pad_edge=False)
    for each in found:
        table.add_row(each["id"], describe(each), each["until"], each["state"] + (f": {each['why']}" if each["why"] else ""))
    print_table(table)


@ledgers.command()
def approve(
    request_id: RequestArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None
) -> None:
    """Say yes to a request of a partner; or, as a second person, to one of your own node."""
    said = client_at(config, node, token_file).answer_extension(request_id, "approve")
    if said["state"] == "agreed":
        what = f"{said['more']:g} more of {said['budget']} until {said['until']}"
        out.print(f"agreed: {what}. It counts here now, and at {said['partner']} once its node has heard it")
    elif said["state"] == "asked" and said["side"] == "ours":
        out.print(f"request {request_id}: the owner of {said['partner']} must say yes")
    else:
        out.print(f"you have said yes to {request_id}; a second person must, too")


@ledgers.command()
def refuse(
    request_id: RequestArgument, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None
) -> None:
    """Refuse a request of a partner, or take one of your own back."""
    said = client_at(config, node, token_file).answer_extension(request_id, "refuse")
    heard = f", once {said['partner']} has heard it" if said["state"] == "withdrawing" else ""
    out.print(f"request {request_id} is {'taken back' if said['side'] == 'ours' else said['state']}{heard}")


def describe(each: Mapping[str, Any]) -> str:
    """A request in words."""
    who = f"{each['partner']} asks you" if each["side"] == "theirs" else f"you ask {each['partner']}"
    return f"{who} for {each['more']:g} more of {each['budget']}: {each['reason']}"
