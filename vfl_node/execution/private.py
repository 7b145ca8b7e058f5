"""The private settings of all parties of a trial, in which one owner acts for all of them.

A trial permits what its job asks: sets may be small and networks large. What is written into a party's settings
binds it, here as at its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from vfl_node.configuration.models import text_of, validate
from vfl_node.configuration.yaml_text import places, position, read
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.models import NONE_DECLARED
from vfl_node.roles import Role
from vfl_node.settings.earlier import earlier_keys, move_to_policy, warn
from vfl_node.settings.node import DEFAULT_TABLE, Settings, data_form, peers_in, role_in
from vfl_node.settings.policy import Approve, Policy
from vfl_node.settings.protection import NO_TREE, Compare
from vfl_node.settings.reading import policy_at, resolve_paths
from vfl_node.settings.source import NOT_OF_A_FILE

_CONNECTED, _ONE_JOB = "a trial connects its parties itself", "a trial runs one job, and keeps what it leaves in --out"
SET_BY_A_TRIAL: Mapping[str, str] = (
    {"name": "the job names the parties", "role": "the job says who is what"}
    | dict.fromkeys(
        ("federation", "listen", "http", "http_tls", "http_plain", "webhook", "tls", "insecure_loopback"), _CONNECTED
    )
    | dict.fromkeys(("peers", "peers_dir", "accept_jobs_from"), _CONNECTED)
    | dict.fromkeys(("state_dir", "jobs_at_once", "queue", "retention", "keep_days", "keep_jobs", "quarantine_after"), _ONE_JOB)
    | dict.fromkeys(("peer_wait_s", "stall_s"), "the parties of a trial begin and end together")
    | dict.fromkeys(("log", "metrics"), "a trial has no log and no metrics of its own")
    | dict.fromkeys(("threads", "group_threads"), "--threads sets it for all parties")
    | {"engine": "a trial computes on this machine", "schedules": _ONE_JOB}
)
"""Key of a node's settings → why a party's settings in a trial do not have it."""

_AT_NODES = "what is sent and received is looked through at nodes"


@dataclass(frozen=True)
class PrivateSettings:
    """A part of one party's settings, as its owner wrote it.

    Attributes:
        document: its keys and values.
        source: what errors call it.
        text: the YAML that it was, whose lines errors name; empty where it was none.
        base: relative paths are relative to this folder.
    """

    document: Mapping[str, Any] = field(default_factory=dict)
    source: str = "settings"
    text: str = ""
    base: Path = field(default_factory=Path.cwd)


NONE_GIVEN: Mapping[str, PrivateSettings] = {}


def read_private(path: Path) -> PrivateSettings:
    """A party's private settings from a file: the keys of a node's settings that make sense in a trial.

    Raises:
        UsageError: it cannot be read, is no YAML (``E_YAML``), or has a key that a trial sets itself (``E_CONFIG``).
    """
    text = text_of(path)
    document = read(text, str(path))
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise UsageError(f"{path} must hold keys and values", code="E_YAML")
    return private_settings(document, source=str(path), text=text, base=path.resolve().parent)


def private_settings(document: Mapping[str, Any], *, source: str, text: str = "", base: Path | None = None) -> PrivateSettings:
    """As :func:`read_private`, of a document already read."""
    refused: list[tuple[tuple[str, ...], str, str]] = [
        ((key,), reason, "leave it out") for key, reason in SET_BY_A_TRIAL.items() if key in document
    ]
    audit = document.get("audit")
    if isinstance(audit, Mapping) and audit.get("wire", False) is not False:
        refused.append((("audit", "wire"), _AT_NODES, "leave it out, or set it in node.yaml: vfl-node audit-wire JOB"))
    for key, reason, hint in refused:
        place = ":".join(map(str, (source, *position(places(text), key, key=True))))
        raise UsageError(f"{place}: {'.'.join(key)!r} cannot be set in a trial: {reason}", code="E_CONFIG", hint=hint)
    return PrivateSettings(document, source, text, base or Path.cwd())


def party_of(job: Job, name_or_role: str, what: str, example: str) -> str:
    """The party of ``job`` with this name, or the only one with this role.

    Args:
        job: the job.
        name_or_role: of the party.
        what: it was given in, for errors.
        example: how it is given for one party, with ``{}`` in place of the party's name.

    Raises:
        UsageError: there is none, or there are several passive parties.
    """
    if name_or_role in job.parties.all:
        return name_or_role
    named = [name for name in job.parties.all if role_in(job.parties, name) == name_or_role]
    if len(named) == 1:
        return named[0]
    if named:
        each = " ".join(example.replace("{}", name) for name in named)
        raise UsageError(f"{what} names {name_or_role!r}, and this job has {len(named)} {name_or_role} parties", hint=each)
    hint = f"parties: {', '.join(job.parties.all)}"
    raise UsageError(f"{what} names {name_or_role!r}, which is no party of this job", hint=hint)


def trial_settings(
    job: Job,
    files: Mapping[str, Path],
    *,
    given: Mapping[str, PrivateSettings] = NONE_GIVEN,
    columns: Mapping[str, Any] | None = None,
    threads: int = 1,
    models: Mapping[str, str] = NONE_DECLARED,
    compare: Compare = NO_TREE,
) -> dict[str, Settings]:
    """The settings of every party of ``job``.

    Args:
        job: the job.
        files: party name → its table, in place of ``data.path`` of its settings.
        given: party name → what its owner has written.
        columns: names of the id and label columns where they differ from the defaults; ``given`` goes before.
        threads: threads for tensors, of each.
        models: name → ``module:Class`` of an architecture that all declare; those in ``given`` go before.
        compare: of the active party, where it has none.

    Raises:
        UsageError: a party's settings cannot be used, with file, line and column (``E_CONFIG``), or it has no table.
    """
    columns, settings = dict(columns or {}), {}
    for name in job.parties.all:
        role, own = cast(Role, role_in(job.parties, name)), given.get(name, PrivateSettings())
        written = _read_earlier(own)
        policy = policy_at(own.base, written.get("policy"))
        document = {
            **written,
            "name": name,
            "role": role,
            "listen": "127.0.0.1:0",
            "peers": peers_in(job.parties, name),
            "insecure_loopback": True,
            "threads": threads,
            "policy": _run_by_rule(policy, job.parties.all),
            "models": _add_defaults(models, own.document.get("models")),
        }
        if role == "active":
            document["compare"] = _add_defaults(compare.model_dump(), own.document.get("compare"))
        if role != "coordinator":
            needs_label = role in (job.label_holder, "active")
            document["data"] = _data(job, name, own.document.get("data"), files.get(name), columns, needs_label=needs_label)
        settings[name] = resolve_paths(validate(document, Settings, source=own.source, text=own.text), own.base)
    return settings


def _data(job: Job, party: str, data: Any, file: Path | None, columns: Mapping[str, Any], *, needs_label: bool) -> Any:
    """The ``data`` section of a party; whatever is wrong with what its owner wrote is left in it."""
    if data_form(data) == "by name":
        used = job.tables.get(party) or (next(iter(data)) if len(data) == 1 else DEFAULT_TABLE)
        paths = {name: file if name == used else None for name in data}
        return {name: _table(table, paths[name], columns, needs_label=needs_label) for name, table in data.items()}
    table = _table(data, file, columns, needs_label=needs_label)
    if isinstance(table, Mapping) and table.keys().isdisjoint(("path", "url", "query")):
        several = len(job.parties.passive) > 1 and party in job.parties.passive
        argument = f"passive={{{party!r}: …}}" if several else "the argument active or passive"
        hint = f"--data {party}=FILE.csv, or data.path in --settings {party}=FILE; in Python {argument}"
        raise UsageError(f"no table for {party}", hint=hint)
    return table


def _table(table: Any, file: Path | None, columns: Mapping[str, Any], *, needs_label: bool) -> Any:
    if not isinstance(table, Mapping | None):
        return table
    own = dict(table or {})
    if not needs_label:  # whose label column is left out, if the table has it and its owner does not say what else it is
        columns = {key: name for key, name in columns.items() if key != "label" or not _uses(own, _column_of(name))}
    if file is not None:
        own = {key: value for key, value in own.items() if key not in NOT_OF_A_FILE} | {"path": str(file.resolve())}
    return {**columns, "check": False, **own}


def _column_of(label: Any) -> Any:
    """The column of labels, alone or with the positive class."""
    return label["column"] if isinstance(label, Mapping) else label


def _uses(own: Mapping[str, Any], column: Any) -> bool:
    """Whether the ``data`` section that an owner wrote says itself what ``column`` is."""
    keys = own.get("keys")
    behind = keys.values() if isinstance(keys, Mapping) else ()
    aggregate = own.get("aggregate")
    taken = aggregate.get("columns") if isinstance(aggregate, Mapping) else None
    return any(
        named == column or (isinstance(named, list | tuple | Mapping) and column in named)
        for named in (own.get("columns"), own.get("id"), taken, *behind)
    )


def _read_earlier(own: PrivateSettings) -> Mapping[str, Any]:
    """What an owner wrote, in the keys of today. Raises UsageError (``E_CONFIG``)."""
    if not (earlier := earlier_keys(own.document)):
        return own.document
    warn(earlier)
    try:
        moved = move_to_policy(own.document, trial=True)
    except ValueError as error:
        raise UsageError(f"{own.source}: {error}", code="E_CONFIG", hint="see docs/reference/policy.md") from None
    return {key: value for key, value in moved.items() if key != "queue"}


def _run_by_rule(policy: Any, parties: Sequence[str]) -> Any:
    """A party's policy in a trial, in which nobody is asked and other partners have no part; what is none is left as it is."""
    trial = {"name": "a trial", "by": "rule"}
    if isinstance(policy, Policy):
        partners = {name: limits for name, limits in policy.partners.items() if name in parties}
        return policy.model_copy(update={"approve": (Approve.model_validate(trial), *policy.approve), "partners": partners})
    if not isinstance(policy, Mapping | None):
        return policy
    lines = (policy or {}).get("approve", [])
    return {"preset": "trial", **(policy or {}), "approve": [trial, *lines] if isinstance(lines, list | tuple) else lines}


def _add_defaults(defaults: Mapping[str, Any], own: Any) -> Any:
    """``own`` keys and values before ``defaults``; something else is left as it is, for the error about it."""
    return {**defaults, **own} if isinstance(own, Mapping) else own if own is not None else dict(defaults)
