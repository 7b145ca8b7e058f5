"""Commands with which a node's owner looks at its policy, tries another one, and puts it in force."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Column, Table
from rich.text import Text

from vfl_node.cli.shared import (
    ConfigOption,
    JsonOption,
    NodeOption,
    TokenOption,
    app,
    client_at,
    client_of,
    err,
    out,
    print_json,
    print_table,
)
from vfl_node.configuration.models import text_of
from vfl_node.errors import UsageError
from vfl_node.process.files import fault, private_folder, write_whole
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import Policy
from vfl_node.settings.policy_view import describe, list_differences, list_unknown, read_policy
from vfl_node.settings.reading import load_settings
from vfl_node.trust.audit_log import AuditLog, Deed
from vfl_node.trust.people import OWNER

policies = typer.Typer(help="Look at a node's policy, and change it.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(policies, name="policy")

REFUSED = 1
"""Exit status of a check where a job that ran would be refused."""

Config = Annotated[Path, typer.Option("--config", help="The node's configuration file.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="Another policy.")]


@policies.command()
def show(
    config: ConfigOption = None, node: NodeOption = "", token_file: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Show what the policy allows each partner, and who says yes. With --config: that of the files; --node: that in force."""
    if config is not None:
        settings = load_settings(config)
        shown = describe(settings, settings.policy)
    else:
        shown = client_at(None, node, token_file).policy()
    if as_json:
        print_json(shown)
        return
    out.print(f"preset {shown['preset']}, zone {shown['zone']}, digest {shown['digest'][:8]}")
    print_table(_limits_table(shown["limits"]))
    out.print("\n".join(_list_lines(shown)))


@policies.command()
def check(
    file: PolicyFile,
    config: Config,
    against_past: Annotated[bool, typer.Option("--against-past", help="Decide every stored job of a peer anew.")] = False,
    job: Annotated[Optional[Path], typer.Option("--job", help="Decide this job file.")] = None,  # noqa: UP045
    submitter: Annotated[str, typer.Option("--submitter", help="With --job: who submits it, if not the active party.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check a policy file. Nothing is changed. Exit status 1: a job that ran would be refused, or the one of --job.

    Budgets are not counted anew: what is spent is spent.
    """
    settings = load_settings(config)
    policy = read_policy(settings, text_of(file), str(file))
    for name in list_unknown(settings, policy):
        err.print(f"warning: {name} is no peer of {settings.name}")
    found = _judge_past(settings, policy, text_of(file)) if against_past else []
    found += [_judge(settings.try_policy(policy), job, submitter)] if job else []
    if as_json:
        print_json(found)
    elif found:
        table = Table(Column("job", overflow="fold"), "from", "says yes", "why", box=None, pad_edge=False)
        for each in found:
            table.add_row(
                *map(Text, (each["id"], each["submitter"], each["by"], "; ".join(filter(None, (each["why"], each["note"])))))
            )
        print_table(table)
    else:
        out.print(f"{file} is a policy for {settings.name}")
    if any(each["ran"] and each["by"] == "nobody" for each in found):
        raise typer.Exit(REFUSED)


@policies.command()
def diff(file: PolicyFile, config: Config, as_json: JsonOption = False) -> None:
    """Show what another policy would change."""
    settings = load_settings(config)
    changes = list(list_differences(settings, settings.policy, read_policy(settings, text_of(file), str(file))))
    if as_json:
        print_json(changes)
        return
    for change in changes:
        place = f"{change['partner']}.{change['key']}" if change["partner"] else change["key"]
        kept = change["before"] == change["now"]
        now = "stays, this partner's own" if kept else f"→ {_word(change['now'])}"
        out.print(f"{place}: {_word(change['before'])} {now}")
    if not changes:
        out.print("nothing differs")


@policies.command()
def apply(
    file: PolicyFile,
    config: ConfigOption = None,
    node: NodeOption = "",
    token_file: TokenOption = None,
) -> None:
    """Put another policy in force at a node, for the jobs that begin from now on; it replaces the node's policy file."""
    text = text_of(file)
    try:
        applied = client_at(config, node, token_file).apply_policy(text)
    except UsageError as error:
        if config is None or error.code != "E_NOT_RUNNING":
            raise
        _write(load_settings(config), text, str(file))
        return
    done = "the policy is in force" if applied["applied"] else "another person must apply the same policy, too"
    out.print(f"{done} (digest {applied['digest'][:8]})" if applied["applied"] else done)


def _write(settings: Settings, text: str, source: str) -> None:
    """Replace the policy's file of a node that does not run; whoever may write it needs no second person.

    Raises:
        UsageError: it is no policy, or does not stand in a file of its own (``E_CONFIG``).
    """
    read_policy(settings, text, source)
    if settings.in_force.file is None:
        hint = "move it into a file of its own: policy: policy.yaml"
        raise UsageError("the policy stands in the node's settings, which are not rewritten", code="E_CONFIG", hint=hint)
    try:
        private_folder(settings.state_dir)
        write_whole(settings.in_force.file, text.encode())
    except OSError as error:
        raise fault(error) from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    AuditLog(settings.state_dir).add(Deed(OWNER, "files", "", "POST", "/api/policy", digest, 200))
    out.print(f"wrote {settings.in_force.file}: it holds when the node starts")


def _judge_past(settings: Settings, policy: Policy, text: str) -> list[dict[str, Any]]:
    """What a policy says of the stored jobs, as the running node knows them, or the state folder."""
    try:
        return list(client_of(settings).check_policy(text)["jobs"])
    except UsageError as error:
        if error.code != "E_NOT_RUNNING":
            raise
    from vfl_node.node.policies import judge_past
    from vfl_node.node.store import Store

    with closing(Store(settings.state_dir)) as store:
        return list(judge_past(settings, store, policy))


def _judge(settings: Settings, file: Path, submitter: str) -> dict[str, Any]:
    """What the policy of ``settings`` says of a job file; nobody here has approved it before."""
    from vfl_node.job import load_job
    from vfl_node.node.policies import judge_new, note_hours

    job = load_job(file)
    asker = submitter or job.parties.active
    decision = judge_new(settings, job, asker)
    about = {"id": str(file), "name": job.name, "submitter": asker, "ran": True}
    return about | {"by": decision.by, "why": decision.line, "note": note_hours(settings, job)}


def _limits_table(limits: Mapping[str, Mapping[str, Any]]) -> Table:
    """Key by partner; partners with the limits of everyone have no column."""
    shown = [name for name in limits if name == "everyone" or limits[name] != limits["everyone"]]
    table = Table(Column("limit", no_wrap=True), *shown, box=None, pad_edge=False)
    for key in limits["everyone"]:
        table.add_row(key, *(Text(_word(limits[name][key])) for name in shown))
    return table


def _list_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    words = {"rule": "this policy says yes", "one": "one person", "two": "two persons", "nobody": "refused"}
    for line in shown["never"]:
        yield f"never: {line['name']} {_condition_text(line)}"
    for line in shown["approve"]:
        yield f"{words[line['by']]}: {line['name']} {_condition_text(line)}".rstrip()
    yield f"all other jobs: {words[shown['otherwise']]}"


def _condition_text(line: Mapping[str, Any]) -> str:
    return f"({', '.join(f'{key} {_word(value)}' for key, value in line['when'].items())})" if line.get("when") else ""


def _word(value: Any) -> str:
    """A value of a policy for people."""
    if value is None:
        return "no bound"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return f"{value['most']:,}" + (f" per {value['per']}" if value["per"] else "") if "most" in value else json.dumps(value)
    if isinstance(value, Iterable):
        return ", ".join(map(_word, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
