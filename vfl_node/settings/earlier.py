"""Settings of the release before, read for one release more: ``limits``, ``accept_jobs_from`` and ``peers`` of a table.

What they said stands in the policy today. :func:`move_to_policy` says where; ``vfl-node migrate`` writes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationInfo

from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.settings.table import Data

PLACES: Mapping[str, tuple[str, ...]] = {
    "protocols": ("protocols",),
    "methods": ("unaligned",),
    "unbounded_models": ("unbounded_models",),
    "coordinators": ("coordinators",),
    "min_set_size": ("min_own_rows",),
    "min_overlap": ("min_overlap",),
    "least_rows": ("least_rows",),
    "max_set_size": ("size", "rows"),
    "max_model_parameters": ("size", "parameters"),
    "max_steps": ("size", "steps"),
    "max_reuse": ("linkage", "max_reuse"),
    "min_sigma": ("linkage", "min_sigma"),
    "max_attack_auc": ("attacks", "rows"),
    "max_feature_gain": ("attacks", "columns"),
    "max_label_auc": ("attacks", "labels"),
    "inputs_per_peer": ("budgets", "alignments"),
    "changes_per_peer": ("budgets", "changes"),
    "trainings_per_set": ("budgets", "trainings"),
    "linkages_per_set": ("budgets", "linkages"),
    "rows_per_model": ("budgets", "predicted_rows"),
    "models_served": ("budgets", "models_served"),
    "epsilon_per_partner": ("budgets", "epsilon"),
}
"""Key of the earlier ``limits`` → where its value stands among the limits of a policy."""

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "jobs_per_peer": ("queue", "partners", "*", "stored"),
    "running_per_peer": ("queue", "partners", "*", "running"),
    "max_memory_mib": ("resources", "memory_mib"),
}
"""Key of the earlier ``limits`` → where its value stands in the settings."""

_TOLD = {"allow_matched": "matched", "reveal_candidates": "candidates"}
"""Key of the earlier ``limits`` → the word in ``reveal``."""

_NULLABLE = {"max_attack_auc", "max_feature_gain", "max_label_auc", "epsilon_per_partner", "running_per_peer", "max_memory_mib"}
"""Keys of the earlier ``limits`` of which null was a value."""

_ALLOWED_BEFORE = ("candidates",)
"""Words of ``reveal`` that a node allowed where nothing was written."""


def read_earlier(given: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    """Settings without the keys of the release before. Raises ValueError where both forms stand together."""
    earlier = earlier_keys(given)
    if not earlier:
        return given
    if "policy" in given:
        raise ValueError(f"{earlier[0]} is of an earlier version and stands in the policy today: leave it out")
    if info.context != LASTING_NAMES:
        warn(earlier)
    return move_to_policy(given)


def read_others(given: Any) -> Any:
    """A ``queue`` section with ``others``, in which a development version had what ``partners."*"`` says today.

    Raises:
        ValueError: both stand there.
    """
    if not isinstance(given, Mapping) or "others" not in given:
        return given
    partners = given.get("partners") or {}
    if isinstance(partners, Mapping) and "*" in partners:
        raise ValueError("others is of an earlier version and stands in partners today, as '*': leave it out")
    warnings.warn('queue.others: write it as queue.partners: {"*": ...}', FutureWarning, stacklevel=2)
    return {**{key: value for key, value in given.items() if key != "others"}, "partners": {**partners, "*": given["others"]}}


def read_earlier_queue(given: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    """Settings in which ``jobs_at_once`` of the release before is ``queue.max_running``. Raises ValueError: both are there."""
    queue = given.get("queue") or {}
    if "jobs_at_once" not in given or not isinstance(queue, Mapping):
        return given
    if "max_running" in queue:
        raise ValueError("jobs_at_once is of an earlier version and is queue.max_running today: leave it out")
    if info.context != LASTING_NAMES:
        warnings.warn("jobs_at_once of the settings: write it as queue.max_running", FutureWarning, stacklevel=2)
    rest = {key: value for key, value in given.items() if key != "jobs_at_once"}
    return {**rest, "queue": {**queue, "max_running": given["jobs_at_once"]}}


def warn(earlier: list[str]) -> None:
    """Warn of keys of the release before."""
    text = f"{' and '.join(earlier)} of the settings: a policy says that today; vfl-node migrate writes one"
    warnings.warn(text, FutureWarning, stacklevel=2)


def move_to_policy(given: Mapping[str, Any], *, trial: bool = False) -> dict[str, Any]:
    """Settings of the release before with the same meaning in today's keys. ``trial``: in which all was allowed by default."""
    limits, accepted = given.get("limits") or {}, given.get("accept_jobs_from") or []
    if not isinstance(limits, Mapping):
        raise ValueError("limits are keys and values")
    _check_lists({"accept_jobs_from": accepted}, ("accept_jobs_from",))
    _check_lists(limits, ("protocols", "methods", "unbounded_models", "coordinators"))
    if blank := [key for key, value in limits.items() if value is None and key not in _NULLABLE]:
        raise ValueError(f"limits.{blank[0]} has no value")
    moved = deepcopy({key: value for key, value in given.items() if key not in ("limits", "accept_jobs_from")})
    everyone: dict[str, Any] = {}
    for key, value in limits.items():
        if key in PLACES:
            _put(everyone, PLACES[key], value)
        elif key in ELSEWHERE:
            _put(moved, ELSEWHERE[key], value)
        elif key not in _TOLD:
            raise ValueError(f"limits.{key} is no key of this or an earlier version")
    if "min_set_size" in limits:
        everyone["min_peer_rows"] = limits["min_set_size"]
    words = [word for key, word in _TOLD.items() if limits.get(key, trial or word in _ALLOWED_BEFORE)]
    everyone |= {"reveal": words, "tables": _tables_for_all(given.get("data"))}
    policy: dict[str, Any] = {"preset": "trial" if trial else "careful", "everyone": everyone}
    if accepted:
        passed_on = [name for name, peer in dict(given.get("peers") or {}).items() if _is_relayed(peer)]
        policy["approve"] = [{"name": "accepted before", "when": {"submitters": [*accepted, *passed_on]}, "by": "rule"}]
    moved["data"], kept = _tables(given.get("data"), list(given.get("peers") or ()))
    if kept:
        policy["partners"] = {name: {"tables": tables} for name, tables in kept.items()}
    if moved["data"] is None:
        del moved["data"]
    return {**moved, "policy": policy}


def earlier_keys(given: Mapping[str, Any]) -> list[str]:
    """Those of the keys of the release before that stand in settings."""
    barred = any("peers" in table for table in _name_tables(given.get("data")).values())
    return [key for key in ("limits", "accept_jobs_from") if key in given] + ["data.peers"] * barred


def _name_tables(data: Any) -> dict[str, Mapping[str, Any]]:
    """The tables of a ``data`` section as it is written; an only one is called default."""
    if not isinstance(data, Mapping):
        return {}
    tables = {name: table for name, table in data.items() if isinstance(table, Mapping)}
    named = tables if data.keys().isdisjoint({*Data.model_fields, "peers"}) else {"default": data}
    for table in named.values():
        if table.get("peers") is not None:
            _check_lists(table, ("peers",))
    return named


def _tables(data: Any, peers: list[str]) -> tuple[Any, dict[str, list[str]]]:
    """``data`` without ``peers``, and for each peer the tables that it may use, where not every peer may use all."""
    tables = _name_tables(data)
    if not any("peers" in table for table in tables.values()):
        return data, {}
    bare = {name: {key: value for key, value in table.items() if key != "peers"} for name, table in tables.items()}
    allowed = {
        peer: [name for name, table in tables.items() if (table.get("peers") is None or peer in table["peers"])]
        for peer in peers
    }
    return (bare["default"] if data is tables.get("default") else bare), allowed


def _is_relayed(peer: Any) -> bool:
    """Whether jobs of this peer come through the active party, whose jobs they were before."""
    return bool(peer.get("relayed") if isinstance(peer, Mapping) else getattr(peer, "relayed", False))


def _tables_for_all(data: Any) -> Any:
    """The tables that every peer may use, also one that comes later."""
    tables = _name_tables(data)
    barred = any(table.get("peers") is not None for table in tables.values())
    return [name for name, table in tables.items() if table.get("peers") is None] if barred else "any"


def _check_lists(document: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """Raise ValueError where one of these keys has something else than a list of words."""
    for key in keys:
        value = document.get(key, [])
        if not (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)):
            raise ValueError(f"{key}: a list, such as [a, b], is expected")


def _put(document: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for key in place[:-1]:
        document = document.setdefault(key, {})
        if not isinstance(document, dict):
            raise ValueError(f"{key} are keys and values")
    document[place[-1]] = value
