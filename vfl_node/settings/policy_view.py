"""A policy as its owner reads it: what holds for whom, and what another one would change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from vfl_node.configuration.models import leaves, parse
from vfl_node.errors import UsageError
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import SAYS_YES, Approve, Never, Policy, Which


def read_policy(settings: Settings, text: str, source: str = "the policy") -> Policy:
    """A policy for the node of ``settings``. Raises UsageError (``E_CONFIG``, ``E_YAML``) with line and column."""
    policy = parse(text, Policy, source=source)
    try:
        settings.check_policy(policy)
    except ValueError as error:
        raise UsageError(f"{source}: {error}", code="E_CONFIG") from None
    if (unknown := sorted(set(policy.partners) - set(settings.peers))) and not settings.pairs:
        raise UsageError(f"{source}: partners names {unknown[0]!r}, which is not among peers", code="E_CONFIG")
    return policy


def digest_of(policy: Policy) -> str:
    """SHA-256 of what is written in a policy, in hex; comments and the order of keys make no difference."""
    written = policy.model_dump(mode="json", exclude_unset=True) | {"preset": policy.preset, "zone": policy.zone}
    return hashlib.sha256(json.dumps(written, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def list_unknown(settings: Settings, policy: Policy) -> list[str]:
    """Names that lines and limits of a policy have and that no party of this node has: perhaps mistyped."""
    named: set[str] = set(policy.partners)
    whens: list[Which] = [*(line.when for line in policy.never), *(line.when for line in policy.approve)]
    for when in whens:
        for names in (when.submitters, when.partners, when.coordinators):
            named.update(names if names != "any" else ())
    for limits in (policy.everyone, *policy.partners.values()):
        named.update(limits.coordinators if limits.coordinators != "any" else ())
    return sorted(named - set(settings.peers) - {settings.name})


def describe(settings: Settings, policy: Policy) -> dict[str, Any]:
    """A policy for its owner.

    Returns:
        preset, zone, digest; limits: partner → key → value, and the same for ``everyone`` (a partner without an entry);
        never, approve: {name, when (only what is written), by}; otherwise: who says yes to a job that no line covers.
    """
    return {
        "preset": policy.preset,
        "zone": policy.zone,
        "digest": digest_of(policy),
        "limits": {name: dict(leaves(policy.limits_of(name))) for name in ("everyone", *_partners(settings, policy))},
        "never": [_describe_line(line) for line in policy.never],
        "approve": [_describe_line(line) for line in policy.approve],
        "otherwise": SAYS_YES[policy.preset],
    }


def list_differences(settings: Settings, before: Policy, after: Policy) -> Iterator[dict[str, Any]]:
    """What ``after`` changes: {partner, key, before, now}; of lines no partner.

    Of a partner what differs from everyone's change; now is before where it keeps a value of its own when everyone's changes.
    """
    for_all = _changes_of("", before, after)
    changing = {change["key"] for change in for_all}
    yield from ({"partner": "everyone", **change} for change in for_all)
    for name in dict.fromkeys([*_partners(settings, before), *_partners(settings, after)]):
        for change in _changes_of(name, before, after, changing):
            if change not in for_all:
                yield {"partner": name, **change}
    for key in ("preset", "zone", "never", "approve"):
        was, now = (_listed(getattr(policy, key)) for policy in (before, after))
        if was != now:
            yield {"partner": "", "key": key, "before": was, "now": now}


def _changes_of(name: str, before: Policy, after: Policy, listed: Collection[str] = ()) -> list[dict[str, Any]]:
    """The limits of a partner that change, and those that are ``listed`` anyway."""
    old, new = (dict(leaves(policy.limits_of(name))) for policy in (before, after))
    return [{"key": key, "before": value, "now": new[key]} for key, value in old.items() if new[key] != value or key in listed]


def _partners(settings: Settings, policy: Policy) -> list[str]:
    return list(dict.fromkeys([*sorted(settings.peers), *sorted(policy.partners)]))


def _describe_line(line: Never | Approve) -> dict[str, Any]:
    return line.model_dump(mode="json", exclude_unset=True)


def _listed(value: Any) -> Any:
    return [_describe_line(line) for line in value] if isinstance(value, tuple) else value
