"""Whether the keys of one node's settings fit each other. Each function raises ValueError where they do not."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from vfl_node.roles import Role
from vfl_node.settings.defences import DEFENCES, DefenceParams, Direction
from vfl_node.settings.policy import Policy
from vfl_node.settings.protection import AuditSettings
from vfl_node.settings.schedules import JobSchedule
from vfl_node.settings.table import Data

SENT_BY: dict[Role, Direction] = {"passive": "embeddings", "active": "gradients"}
"""Role → the tensors that it sends in training; a coordinator sends none."""


def check_role(role: Role, tables: Iterable[Data], audit: AuditSettings, defences: Sequence[DefenceParams]) -> None:
    """What only nodes of one role have."""
    for table in tables:
        if role == "coordinator":
            raise ValueError("a coordinator has no data: leave it out")
        if role != "active" and (key := next(iter(table.of_records_alone), "")):
            raise ValueError(f"{key} is for an active node, whose labels it goes with: leave it out")
        if table.weight and (barred := [defence.name for defence in defences if not defence.allows_row_weights]):
            raise ValueError(
                f"data.weight is not for a node with the defence {barred[0]!r}: the length of a gradient would show the "
                "weight of its row, which may follow from its label. Leave one of the two out"
            )
    if role != "passive" and audit.features:
        raise ValueError("audit.features is for a passive node, whose columns the embeddings tell of")
    if role == "coordinator" and audit.linkage:
        raise ValueError("audit.linkage is for a node with a table, whose keys a coordinator could recognise")
    for number, defence in enumerate(defences):
        if SENT_BY.get(role) not in DEFENCES[defence.name].directions:
            raise ValueError(f"defences.{number}: {defence.name!r} changes nothing that this node sends: its role is {role}")


def check_schedules(role: Role, schedules: Sequence[JobSchedule]) -> None:
    """Schedules of a node that may submit jobs, each of its own name."""
    if schedules and role == "coordinator":
        raise ValueError("schedules is for a node with data, which may submit jobs: leave it out")
    names = [schedule.name for schedule in schedules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"schedules has {twice[0]!r} twice: give each a name of its own")


def check_attacks(role: Role, audit: AuditSettings, policy: Policy) -> None:
    """A policy that stops trainings by attacks: this node must run them."""
    written = {"everyone": policy.everyone, **{f"partners.{name}": limits for name, limits in policy.partners.items()}}
    for place, layer in written.items():
        if layer.attacks.labels is not None and role != "active":
            raise ValueError(f"policy.{place}.attacks.labels is for an active node, which has the labels")
        if layer.attacks.columns is not None and role != "passive":
            raise ValueError(f"policy.{place}.attacks.columns is for a passive node, whose columns the embeddings tell of")
    for what, switch, runs in (
        ("rows", "membership", audit.membership),
        ("labels", "labels", audit.labels or role != "active"),
        ("columns", "features", audit.features is not None or role != "passive"),
    ):
        limited = [name for name in ("", *policy.partners) if getattr(policy.limits_of(name).attacks, what) is not None]
        if limited and not runs:
            places = [place for place, layer in written.items() if getattr(layer.attacks, what) is not None]
            where = f"{places[0]}.attacks.{what}" if places else f"preset: {policy.preset} says attacks.{what} and"
            raise ValueError(f"policy.{where} needs audit.{switch}, which is off: change one of the two")


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` names this machine's loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
