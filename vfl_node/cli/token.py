"""Commands with which a node's owner gives people tokens for its HTTP port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from vfl_node.cli.shared import (
    ConfigOption,
    JsonOption,
    NodeOption,
    TokenOption,
    app,
    client_at,
    err,
    out,
    print_json,
    print_table,
)
from vfl_node.errors import UsageError
from vfl_node.node.client import Client
from vfl_node.process.files import fault, private_folder
from vfl_node.settings.reading import load_settings
from vfl_node.trust.audit_log import AuditLog, Deed
from vfl_node.trust.people import OWNER
from vfl_node.trust.tokens import Tokens

tokens = typer.Typer(help="Give people tokens for a node's HTTP port.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(tokens, name="token")

Found = TypeVar("Found")

PersonName = Annotated[str, typer.Argument(metavar="NAME", help="The person or program.")]


@tokens.command()
def create(
    name: PersonName,
    roles: Annotated[str, typer.Option(help="metrics, viewer, submitter, approver or admin; several with commas.")],
    days: Annotated[int, typer.Option(help="For how many days it holds, at most 365.")] = 90,
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
) -> None:
    """Make a token and print it, once. The node may be running."""
    wanted = [role.strip() for role in roles.split(",") if role.strip()]
    options = (config, node, token_file)
    token = _reach(
        *options,
        lambda at: at.create_token(name, wanted, days),
        lambda kept: kept.create(name, wanted, days),
        Deed(OWNER, "files", "", "POST", "/api/tokens", name, 201),
    )
    out.print(token)
    err.print("It is not shown again. Send it as 'Authorization: Bearer …'.")


@tokens.command("list")
def list_all(
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tokens, without the secrets. The node may be running."""
    found = _reach(config, node, token_file, Client.tokens, Tokens.tokens)
    if as_json:
        print_json(found)
        return
    table = Table("name", "roles", "created", "expires", "last used", box=None, pad_edge=False)
    for token in found:
        table.add_row(
            token["name"], ", ".join(token["roles"]), token["created"][:10], token["expires"][:10], token["used"] or "never"
        )
    if found:
        print_table(table)
    else:
        out.print("no tokens yet")


@tokens.command()
def revoke(name: PersonName, config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None) -> None:
    """End a token at once, with the browsers that it has let in. The node may be running."""
    deed = Deed(OWNER, "files", "", "DELETE", "/api/tokens/{name}", name, 200)
    _reach(config, node, token_file, lambda at: at.revoke_token(name), lambda kept: kept.revoke(name), deed)
    out.print(f"{name} has no access any more")


def _reach(
    config: Path | None,
    node: str,
    token_file: Path | None,
    ask: Callable[[Client], Found],
    keep: Callable[[Tokens], Found],
    deed: Deed | None = None,
) -> Found:
    """What ``ask`` returns of the running node; of a node that does not run, what ``keep`` does to its state folder.

    The ``deed`` is what its audit log then says.
    """
    try:
        return ask(client_at(config, node, token_file))
    except UsageError as error:
        if error.code != "E_NOT_RUNNING" or config is None:
            raise
    state_dir = load_settings(config).state_dir
    try:
        private_folder(state_dir)
    except OSError as error:
        raise fault(error) from None
    found = keep(Tokens(state_dir))
    if deed is not None:
        AuditLog(state_dir).add(deed)
    return found
