"""Why a job waits, in few stable words for its owner: ``place 3 of 5``, ``lab away since 12:04``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from vfl_node.node.job_start import JobStart
from vfl_node.node.others import Others
from vfl_node.node.peers import Peers
from vfl_node.node.record import Record, priority_in
from vfl_node.node.store import Store
from vfl_node.node.turns import Turn, Turns
from vfl_node.process.machine import utc_now
from vfl_node.report.words import join_names
from vfl_node.settings.node import Settings

KINDS = ("consent", "hours", "drain", "away", "unable", "memory", "quota", "place", "peer", "start")
"""What a job may wait for; the first that holds is shown."""


def enter(turns: Turns, able: Callable[[], bool], record: Record, settings: Settings, store: Store) -> Turn:
    """The turn of a job, which has waited since it came here if it has not begun. Raises StateError."""
    waited = datetime.fromisoformat(utc_now()) - datetime.fromisoformat(record.submitted)
    return turns.enter(
        able,
        record.peer(settings.name),
        priority=priority_in(store.documents(record.id)),
        waited_s=0.0 if record.attempt else waited.total_seconds(),
        begun=record.attempt > 0,
    )


def explain_wait(record: Record, own: str, turn: Turn, others: Others, start: JobStart, peers: Peers) -> dict[str, Any]:
    """Where a job stands that waits, and why.

    Returns:
        place (0: it has a place, or is held back), of (how many wait), kind (one of :data:`KINDS`), reason (in words) and
        priority.
    """
    kind, reason = _find(record, own, turn, others, start, peers)
    position = turn.position
    return {"place": position.place, "of": position.waiting, "kind": kind, "reason": reason, "priority": turn.priority}


def asked_here(own: str) -> dict[str, Any]:
    """The same of a job that waits for this node's owner, ``own``."""
    return {"place": 0, "of": 0, "kind": "consent", "reason": f"consent of {own}", "priority": 0}


def _find(record: Record, own: str, turn: Turn, others: Others, start: JobStart, peers: Peers) -> tuple[str, str]:
    """Kind and words of what a job waits for."""
    position, absent = turn.position, others.absent
    if undecided := others.asked or [name for name in others.undecided if name not in others.unable]:
        return "consent", f"consent of {join_names(undecided)}"
    if start.closed:
        return "hours", f"hours from {start.opens}" if start.opens else "hours"
    if position.drained:
        return "drain", "this node is draining"
    if absent:
        status = peers.status()
        since = {name: status.get(name, {}).get("since") for name in absent}  # of one that is revoked nothing is known
        return "away", join_names([f"{name} away{f' since {_clock(str(at))}' if at else ''}" for name, at in since.items()])
    if unable := others.unable:
        return "unable", join_names([f"{name} cannot take part now ({code})" for name, code in unable.items()])
    if short := start.short:
        needed, free = (f"{size:.1f}" if size >= 1 else f"{size:.2g}" for size in (short[0] / 2**30, short[1] / 2**30))
        return "memory", f"memory {needed} of {free} GiB"
    if position.over is not None:
        return "quota", f"quota of {record.peer(own)} ({position.over} running)"
    if position.place and not position.fits:
        return "place", f"place {position.place} of {position.waiting}"
    return _find_peer(record, own, turn, others)


def _find_peer(record: Record, own: str, turn: Turn, others: Others) -> tuple[str, str]:
    """The same where this node has a place for the job: what it waits for is at another one, or before it in the queue."""
    waits, position = others.queueing, turn.position
    if draining := [name for name, drains in waits.items() if drains]:
        return "peer", f"{join_names(draining)} {'is' if len(draining) == 1 else 'are'} draining"
    if waits:
        return "peer", f"{join_names(list(waits))} {'has' if len(waits) == 1 else 'have'} no place"
    if position.place and not others.able and record.active != own:
        return "peer", f"{record.active} has no place"
    return ("place", f"place {position.place} of {position.waiting}") if position.place else ("start", "it begins")


def _clock(moment: str) -> str:
    """A moment as the clock of this machine shows it; with its day where that is not within the last day."""
    at = datetime.fromisoformat(moment).astimezone()
    return f"{at:%H:%M}" if datetime.now(at.tzinfo) - at < timedelta(hours=20) else f"{at:%Y-%m-%d %H:%M}"
