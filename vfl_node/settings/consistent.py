"""Whether the keys of one node's settings fit each other. Each function raises ValueError where they do not."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from vfl_node.roles import Role
from vfl_node.settings.defences import DEFENCES, Direction
from vfl_node.settings.policy import Policy

if TYPE_CHECKING:
    from vfl_node.settings.node import Settings

SENT_BY: dict[Role, Direction] = {"passive": "embeddings", "active": "gradients"}
"""Role → the tensors that it sends in training; a coordinator sends none."""


def check_connections(settings: Settings) -> None:
    """Addresses, peers and what encrypts."""
    connected = settings.connected
    if settings.http_tls and settings.http_plain:
        raise ValueError("http_plain is for a port without http_tls: leave one of the two out")
    if settings.name in settings.peers:
        raise ValueError(f"{settings.name!r} is this node's own name and cannot be its peer")
    if settings.role != "passive" and len(connected) < len(settings.peers):
        raise ValueError("a relayed peer is for a passive node: an active one and a coordinator meet all parties themselves")
    if (unknown := sorted(set(settings.policy.partners) - set(settings.peers))) and not settings.pairs:
        raise ValueError(f"policy.partners names {unknown[0]!r}, which is not among peers")
    if settings.listen is None and any(peer.address is None for peer in connected.values()):
        raise ValueError("a peer without an address must be able to dial in: set listen")
    if settings.pairs and (lone := [name for name, peer in connected.items() if peer.authority is None]):
        raise ValueError(
            f"peers.{lone[0]} has no authority: pair with it (vfl-node invite), or set peers.{lone[0]}.authority; "
            "under tls.mode shared one authority may vouch for all"
        )
    if settings.tls is None and not settings.insecure_loopback:
        raise ValueError("set tls (or insecure_loopback: true for a trial on one machine)")
    if settings.tls is None and (bad := [address for address in settings.addresses if not is_loopback(address)]):
        raise ValueError(f"plaintext is for loopback only, and {bad[0]} is not")


def check_role(settings: Settings) -> None:
    """What only nodes of one role have."""
    role = settings.role
    if role != "active" and settings.obfuscation != type(settings.obfuscation)():
        raise ValueError("obfuscation is for an active node: the obfuscated set hides its records")
    if role != "active" and settings.compare != type(settings.compare)():
        raise ValueError("compare is for an active node, which measures models")
    for key in ("order", "group"):
        if role != "active" and any(getattr(table, key) for table in settings.tables.values()):
            raise ValueError(f"data.{key} is for an active node, whose labels it goes with: leave it out")
    if role == "coordinator" and settings.data is not None:
        raise ValueError("a coordinator has no data: leave it out")
    if role != "passive" and settings.audit.features:
        raise ValueError("audit.features is for a passive node, whose columns the embeddings tell of")
    if role == "coordinator" and settings.audit.linkage:
        raise ValueError("audit.linkage is for a node with a table, whose keys a coordinator could recognise")
    for number, defence in enumerate(settings.defences):
        if SENT_BY.get(role) not in DEFENCES[defence.name].directions:
            raise ValueError(f"defences.{number}: {defence.name!r} changes nothing that this node sends: its role is {role}")


def check_attacks(settings: Settings, policy: Policy) -> None:
    """A policy that stops trainings by attacks: this node must run them."""
    role, audit = settings.role, settings.audit
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
