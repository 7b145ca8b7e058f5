"""What the commands share: the program itself, its consoles, options, and the client of a running node."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.table import Table

from vfl_node.errors import UsageError, VflError
from vfl_node.node.client import Client
from vfl_node.report.summary import summary, warnings
from vfl_node.report.words import human_seconds
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.terminal import ShownProgress

app = typer.Typer(
    name="vfl-node",
    help="Vertical federated learning between organisations: align without revealing whom you serve, train one model.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)  # a text of a peer is never read as markup

UNCUT = 10_000
"""Width of a table that is not shown on a terminal."""


class RoleName(str, Enum):
    """A party's role."""

    active = "active"
    passive = "passive"
    coordinator = "coordinator"


ConfigOption = Annotated[Optional[Path], typer.Option("--config", help="The node's configuration file.")]  # noqa: UP045
NodeOption = Annotated[
    str, typer.Option("--node", help="HOST:PORT, or https://HOST:PORT, of a node's HTTP port, instead of --config.")
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB")]
TokenOption = Annotated[Optional[Path], typer.Option("--token-file", help="With --node: the node's token.")]  # noqa: UP045
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: lines of JSON, progress on standard error.")]
BoardOption = Annotated[str, typer.Option("--board", help="http://HOST:PORT at which your browser reaches the node's board.")]


def label_option(text: str) -> str | dict[str, str]:
    """``--label-column`` as ``data.label`` of the settings. Raises UsageError if a name is missing."""
    column, equals, positive = text.partition("=")
    if not column or (equals and not positive):
        raise UsageError(
            f"--label-column {text} is neither COLUMN nor COLUMN=POSITIVE",
            hint="for example --label-column diagnosis=malignant",
        )
    return {"column": column, "positive": positive} if equals else column


def client_of(settings: Settings) -> Client:
    """A client of the running node of ``settings``."""
    return Client.from_settings(settings)


def client_at(config: Path | None, node: str, token_file: Path | None) -> Client:
    """A client of the node that the options name. Raises UsageError if they name none."""
    if config is not None:
        return client_of(load_settings(config))
    if node:
        try:
            token = token_file.read_text().strip() if token_file else ""
        except OSError as error:
            raise UsageError(f"cannot read {token_file}: {error.strerror}", code="E_FILE") from None
        https = node.startswith("https://")
        return Client(node.removeprefix("http://").removeprefix("https://").rstrip("/"), token, https=https)
    hint = "--config FILE of a node on this machine, or --node HOST:PORT --token-file FILE"
    raise UsageError("name the node", hint=hint)


def check_writable(target: Path, option: str) -> None:
    """Raises UsageError (``E_FILE``) if the file of ``option`` cannot be written: before the work, not after it."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", code="E_FILE", hint=f"make it, or name another {option}")
    with writing(target, option):
        if target.exists() and not target.is_file():
            raise UsageError(f"{target} is not a file", code="E_FILE", hint=f"name a file by {option}")
        with tempfile.NamedTemporaryFile(prefix=target.name, dir=target.parent):
            pass


def limit_text(use: Mapping[str, Any], unbounded: str = "no bound") -> str:
    """What a budget allows, as :meth:`vfl_node.settings.bounds.Use.describe` has it, and when one more fits if none does."""
    if use["allowed"] is None:
        return unbounded
    if not use.get("per"):
        return f"{use['allowed']:,}"
    free = f" (the next is free on {use['free']})" if use["used"] >= use["allowed"] else ""
    return f"{use['allowed']:,} per {use['per']}{free}"


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """Write ``document`` for a program. Where the output is not UTF-8 it is ASCII, as a lacking letter's escape is no JSON."""
    out.print_json(data=document, indent=indent, ensure_ascii=not out.encoding.startswith("utf"))


def print_table(table: Table) -> None:
    """Write a table; where there is no terminal, whole and without the spaces that fill its last column."""
    if out.is_terminal:
        out.print(table)
        return
    whole = Console(highlight=False, width=UNCUT, markup=False, emoji=False)  # a program that reads the table needs whole ids
    with whole.capture() as text:
        whole.print(table)
    out.print("\n".join(line.rstrip() for line in text.get().splitlines()))


@contextmanager
def writing(target: Path, option: str) -> Iterator[None]:
    """Turns an error of the system about the file of ``option`` into a UsageError (``E_FILE``)."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}", code="E_FILE", hint=f"name another {option}") from None


def follow(client: Client, job_id: str, board: str = "", *, as_json: bool = False) -> None:
    """Show a job until it ends, and how it ended. Raises VflError if it does not end as done."""
    view: dict[str, Any] = {}
    phase = ""
    with ShownProgress(job_id, as_json=as_json) as shown:
        for view in client.watch(job_id):
            phase = view["phase"] if view["total"] else phase
            shown.update(view)
    path = client.report_path(job_id) if view["report"] else None
    if as_json:
        print_json(view | {"report_path": str(path) if path else None}, indent=None)
    took = "" if view["took_s"] is None else f" after {human_seconds(view['took_s'])}"
    if view["state"] != "done":
        if not as_json:
            err.print(f"{job_id}: {view['state']}{took}{f', in phase {phase}' if phase else ''}")
        error = view["error"] or {"message": f"the job is {view['state']}", "code": "E_JOB", "hint": ""}
        raise VflError(error["message"], code=error["code"], hint=error["hint"] or "")
    if as_json:
        return
    if view["report"]:
        report = client.report(job_id)
        lines = [*summary(report), *(f"warning: {warning}" for warning in warnings(report))]
        out.print("\n".join(lines))
    out.print(f"{job_id} is done{took}")
    if path:
        out.print(f"report: {path}")
    with suppress(UsageError):  # a node without an HTTP port
        out.print(f"on the board: {client.link(f'/jobs/{job_id}', board=board)}")
