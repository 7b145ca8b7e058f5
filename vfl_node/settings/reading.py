"""Read a node's settings from their files: the configuration, the peers it was paired with, and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vfl_node.configuration.models import load, text_of, validate
from vfl_node.configuration.yaml_text import read
from vfl_node.settings.connection import add_paired
from vfl_node.settings.node import DEFAULT_TABLE, Data, Settings
from vfl_node.settings.policy import Policy


def load_settings(path: Path) -> Settings:
    """Read a node's configuration, and the peers beside it that it was paired with; resolve relative paths against its folder.

    Raises:
        UsageError: the file is missing or not a valid configuration, or a peer stands in both.
    """
    text, base = text_of(path), path.resolve().parent
    document = read(text, str(path))
    file = None
    if isinstance(document, Mapping):
        document = add_paired(document, base)
        policy = policy_at(base, document.get("policy"))
        if isinstance(policy, Policy):
            file = base / str(document["policy"])
            document = {**document, "policy": policy}
    settings = resolve_paths(validate(document, Settings, source=str(path), text=text), base)
    settings.in_force.file = file
    return settings


def policy_at(base: Path, written: object) -> object:
    """The policy that settings in the folder ``base`` name by its file; what is written otherwise. Raises UsageError."""
    return load(base / written, Policy) if isinstance(written, str) else written


def resolve_paths(settings: Settings, base: Path) -> Settings:
    """``settings`` with their relative paths resolved against the folder ``base``."""
    update: dict[str, object] = {"state_dir": base / settings.state_dir}
    tables = {name: table.relative_to(base) for name, table in settings.tables.items()}
    if settings.data:
        update["data"] = tables[DEFAULT_TABLE] if isinstance(settings.data, Data) else tables
    update["peers"] = {name: peer.relative_to(base) for name, peer in settings.peers.items()}
    update["log"] = settings.log.relative_to(base)
    update["engine"] = settings.engine.relative_to(base)
    update["schedules"] = tuple(each.model_copy(update={"job": base / each.job}) for each in settings.schedules)
    update["peers_dir"] = base / settings.peers_dir
    if settings.tls:
        update["tls"] = settings.tls.relative_to(base)
    if settings.http_tls:
        update["http_tls"] = settings.http_tls.relative_to(base)
    if hook := settings.webhook:
        update["webhook"] = hook.model_copy(update={"secret_file": base / hook.secret_file})
    if audited := settings.audit.linkage:
        moved = audited.model_copy(update={"list": base / audited.list})
        update["audit"] = settings.audit.model_copy(update={"linkage": moved})
    return settings.model_copy(update=update)
