"""Checks 15 and 19: the tables, and what this node remembers of earlier jobs."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

from vfl_node.errors import StateError, VflError
from vfl_node.job import Job
from vfl_node.node.backup import last_backup
from vfl_node.node.check import TableCheck, check_table
from vfl_node.node.doctor.finding import Finding, fail, ok, skip, warn
from vfl_node.node.index import check_version, check_whole
from vfl_node.node.index_copies import address_of
from vfl_node.node.ledgers import partners_met, verify_own
from vfl_node.settings.node import Data, Settings

OLD = timedelta(days=7)
"""A head of a ledger that the partner has not seen for longer, and an older backup, is named."""


def check_data(settings: Settings, job: Job | None, limit_s: float) -> Finding:
    """Check 15: the tables, whole, as ``vfl-node check`` looks at them; no longer than ``limit_s`` seconds."""
    if settings.role == "coordinator":
        return skip(15, "a coordinator has no data")
    if not settings.tables and job is None:
        return skip(15, "this node has no data yet", "set data.path in its configuration")
    tables: dict[str, Data | None] = {"": None} if job else dict(settings.tables)
    found: dict[str, TableCheck | Exception] = {}
    thread = threading.Thread(target=_look, args=(settings, job, tables, found), name="doctor data", daemon=True)
    thread.start()
    thread.join(limit_s)
    rows = 0
    for name in tables:
        said = f"table {name}: " if len(tables) > 1 else ""
        checked = found.get(name)
        if checked is None:
            text = f"{said}it was not read to its end within {limit_s:.0f} s"
            return skip(15, text, "look at it alone: vfl-node check --config FILE")
        if isinstance(checked, Exception):
            raise checked
        if checked.errors:
            error = checked.errors[0]
            return fail(15, f"{said}{error.message} ({error.code})", error.hint or "see vfl-node check --config FILE")
        if checked.warnings:
            return warn(15, f"{said}{checked.warnings[0]}", "see vfl-node check --config FILE", warnings=len(checked.warnings))
        rows += checked.profile.rows if checked.profile else 0
    return ok(15, f"{len(tables)} table{'s' * (len(tables) > 1)} with {rows:,} rows can be used", rows=rows, tables=len(tables))


def _look(
    settings: Settings, job: Job | None, tables: dict[str, Data | None], found: dict[str, TableCheck | Exception]
) -> None:
    for name, data in tables.items():
        try:
            found[name] = check_table(settings, data=data, job=job)
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            found[name] = error


def check_past(settings: Settings) -> Finding:
    """Check 19: the index of jobs, and the ledgers with all partners."""
    index, partners = settings.state_dir / "jobs.sqlite", partners_met(settings)
    if not index.exists() and not partners:
        return skip(19, "this node has not run yet, and remembers nothing")
    if index.exists() and (broken := broken_index(index)):
        return fail(19, broken, "stop the node, and restore its state from a backup")
    unseen = []
    for partner in partners:
        try:
            verdict = verify_own(settings, partner)
        except (OSError, VflError) as error:
            return fail(19, f"the ledger with {partner} cannot be read ({type(error).__name__})", "restore it from a backup")
        if verdict.faults:
            text = f"the ledger with {partner} is not what was written: {verdict.faults[0]}"
            return fail(19, text, f"see vfl-node ledger --verify --partner {partner}")
        newer = verdict.entries > verdict.seen + 1  # the head itself is the entry after what was seen
        if newer and verdict.seen_at and _is_old(verdict.seen_at):
            unseen.append(f"{partner} has seen no entry since {verdict.seen_at[:10]}")
    text = f"the index is whole, and so are ledgers with {', '.join(partners) or 'nobody'}"
    saved = last_backup(settings.state_dir)
    days = (datetime.now(timezone.utc) - saved).days if saved else None
    figures = {"ledgers": len(partners), "backup_days": days}
    if unseen:
        hint = "run a job with this partner, so that both heads are signed"
        return warn(19, f"{text}; {unseen[0]}", hint, **figures)
    if days is None or saved is None or datetime.now(timezone.utc) - saved > OLD:
        age = "there is no backup yet" if days is None else f"the last backup is {days} days old"
        return warn(19, f"{text}; {age}", "vfl-node backup OUT.tar --config FILE", **figures)
    return ok(19, f"{text}; the last backup is {days} days old", **figures)


def broken_index(path: Path) -> str:
    """What is wrong with the index of jobs, read without changing it; empty if nothing is."""
    try:
        with closing(sqlite3.connect(address_of(path, "ro"), uri=True, timeout=5)) as database:
            check_whole(database, path)
            check_version(database, path)
    except StateError as error:
        return error.message
    except sqlite3.DatabaseError as error:
        return f"the job index {path} cannot be read: {error}"
    return ""


def _is_old(moment: str) -> bool:
    return datetime.now(timezone.utc) - datetime.fromisoformat(moment) > OLD
