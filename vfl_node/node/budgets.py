"""What is used of what a node's owner allows over many jobs: for the owner, in ``/health``, on the board and by a command."""

from __future__ import annotations

import os
from typing import Any

from vfl_node.errors import StateError, VflError
from vfl_node.node.spending import list_uses
from vfl_node.node.store import Store
from vfl_node.settings.node import Settings
from vfl_node.training.prediction.stored import FileShown


def budgets(settings: Settings, store: Store) -> dict[str, dict[str, dict[str, Any] | None]]:
    """``peers``: peer → budget → {used, allowed, …}; ``models``: job → the same of its served model. None of what is damaged.

    :meth:`vfl_node.settings.bounds.Use.describe` says more of the keys.

    Of a budget over one set or table ``used`` is that of the one of which most is used.
    """
    peers = {name: _peer(settings, name) for name in settings.peers}
    with os.scandir(store.folder / "jobs") as folders:
        served = [folder.name for folder in folders if os.path.exists(f"{folder.path}/shown")]  # noqa: PTH110 - there are thousands
    return {"peers": peers, "models": {name: _model(settings, store, name) for name in sorted(served)}}


def model_budget(settings: Settings, store: Store, job_id: str) -> dict[str, Any] | None:
    """``used`` (None: what was counted is damaged) and ``allowed`` of the rows of a job's model that others may learn about.

    None: this node has no half of the model.
    """
    if not (store.folder / "jobs" / job_id / "shown").exists():
        return None
    known = _model(settings, store, job_id) or {"predicted_rows": {"used": None}}
    return {"allowed": _predicted_rows(settings, store, job_id)} | known["predicted_rows"]


def _predicted_rows(settings: Settings, store: Store, job_id: str) -> int:
    """How many rows of the model of a job its parties may learn about."""
    try:
        job = store.record(job_id).job
    except VflError:  # it cannot be read any more
        job = None
    return settings.limits_for(job).budgets.predicted_rows


def _peer(settings: Settings, name: str) -> dict[str, Any] | None:
    try:
        uses = list_uses(settings, name)
    except StateError:
        return None
    return {budget: use.describe() for budget, use in uses.items()}


def _model(settings: Settings, store: Store, job_id: str) -> dict[str, Any] | None:
    shown = FileShown(store.folder / "jobs" / job_id / "shown", _predicted_rows(settings, store, job_id))
    try:
        return {"predicted_rows": {"used": shown.told, "allowed": shown.most}}
    except StateError:
        return None
