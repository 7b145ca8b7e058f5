"""What this release would do with the state of a node that an earlier one may still run on: looked at, and nothing changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.node.backup import files_below
from vfl_node.node.backup_form import INDEX
from vfl_node.node.client import Client
from vfl_node.node.index import VERSION as INDEX_VERSION
from vfl_node.node.index import Index
from vfl_node.node.index_copies import copy_index, path_of_copy
from vfl_node.node.record import Record, damaged_record
from vfl_node.process.files import VERSION as FILES_VERSION
from vfl_node.process.files import scratch, version_of
from vfl_node.settings.node import Settings
from vfl_node.trust.lanes import FILE, Lane
from vfl_node.version import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, VERSION, common_version


@dataclass(frozen=True)
class Look:
    """One thing that was looked at.

    Attributes:
        verdict: whether the upgrade is in order; warn: its owner has something to do or to know.
        text: what was found, and what to do.
    """

    verdict: Literal["ok", "warn", "FAIL"]
    text: str


def check_upgrade(settings: Settings) -> Iterator[Look]:
    """Look at the state of a node, which may be running, as this release would find it.

    Raises:
        UsageError: there is no state (``E_FILE``).
        OSError: it cannot be read.
    """
    if not (settings.state_dir / INDEX).exists():
        raise UsageError(f"{settings.state_dir} has no state of a node", code="E_FILE", hint="there is nothing to upgrade")
    with scratch("vfl-upgrade-") as folder:
        copy_index(settings.state_dir / INDEX, copy := folder / INDEX)
        size = copy.stat().st_size
        with closing(sqlite3.connect(copy)) as database:
            before = database.execute("PRAGMA user_version").fetchone()[0]
        try:
            with closing(Index(copy)) as index:
                rows = index.rows()
        except StateError as error:
            yield Look("FAIL", f"the index: {error.message}; {error.hint}")
            return
    if before < INDEX_VERSION:
        kept = path_of_copy(settings.state_dir / INDEX, before).name
        made = f"is tried on a copy: version {before} becomes {INDEX_VERSION}, and stays beside it as {kept}"
    else:
        made = f"stays version {before}"
    yield Look("ok", f"the index {made}")
    if before < INDEX_VERSION:
        yield _look_at_room(settings.state_dir, 2 * size)  # the copy, and a journal in which every page may be written
    yield from _look_at_jobs(settings, [Record(**values) if values else damaged_record(row) for row, values in rows])  # type: ignore[arg-type]
    yield from _look_at_partners(settings)
    yield from _look_at_peers(settings)


def _look_at_room(state_dir: Path, needed: int) -> Look:
    """Whether the disk has so many bytes for the copy of the index, and for bringing the index up to date."""
    free = shutil.disk_usage(state_dir).free
    text = f"the index and its copy need up to {needed / 1e6:,.1f} MB more, and {free / 1e6:,.1f} MB are free"
    return Look("ok", text) if free >= needed else Look("FAIL", f"{text} where {state_dir} lies: free space before")


def _look_at_jobs(settings: Settings, records: Sequence[Record]) -> Iterator[Look]:
    """Whether jobs that are not over could go on in this release."""
    going_on = [record for record in records if record.open]
    for record in going_on:
        try:
            record.job  # noqa: B018 - it is parsed
        except VflError as error:
            yield Look(
                "FAIL", f"job {record.id} is {record.state}, and this release cannot read it: {error.message}. End it before"
            )
            continue
        if newer := _newer_below(settings.state_dir / "jobs" / record.id):
            yield Look("FAIL", f"job {record.id} is {record.state}, and {newer} is of a newer form. End it before")
    names = ", ".join(record.id for record in going_on)
    hint = "stop the node for the upgrade and they go on, if all their parties speak one protocol; or end them first"
    yield Look("warn", f"jobs that are not over: {names}; {hint}") if going_on else Look("ok", "no job is under way")


def _look_at_partners(settings: Settings) -> Iterator[Look]:
    """Whether this release reads what is remembered of each partner."""
    whole = []
    for path in sorted((settings.state_dir / "partners").glob(f"*/{FILE}")):
        peer = path.parent.name
        try:
            entries = len(Lane(path, peer).entries)
        except StateError as error:
            yield Look("FAIL", f"{error.message}; {error.hint}")
            continue
        if newer := _newer_below(path.parent):
            yield Look("FAIL", f"{newer} is of a newer form")
        else:
            whole.append(f"{peer} ({entries} entries)")
    if whole:
        yield Look("ok", f"ledgers are read: {', '.join(whole)}")


def _look_at_peers(settings: Settings) -> Iterator[Look]:
    """Whether this release talks with what peers said when they were last linked."""
    try:
        peers: dict[str, dict[str, Any]] = Client.from_settings(settings).health()["peers"]
    except VflError:
        yield Look("warn", "the node does not run, so it is not known which release each peer has")
        return
    spoken = (
        f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
        if OLDEST_PROTOCOL_VERSION < PROTOCOL_VERSION
        else f"{PROTOCOL_VERSION}"
    )
    for name, peer in sorted(peers.items()):
        minor = str(peer.get("version") or "").split(".")[1:2]
        if not minor or not minor[0].isdecimal():
            yield Look("warn", f"{name} was not linked since the node started: its release is not known")
        elif common_version(int(minor[0])) is None:
            text = (
                f"{name} has release {peer['version']}, and {VERSION} speaks protocol {spoken}: upgrade both at the same time"
            )
            yield Look("warn", text)
        else:
            yield Look("ok", f"{name} has release {peer['version']}, with which {VERSION} talks")


def _newer_below(folder: Path) -> Path | None:
    """A checked file below a folder that this release cannot read; None if there is none."""
    for path in files_below(folder):
        with suppress(FileNotFoundError):  # the node may be running
            if path.suffix != ".tmp" and (version_of(path) or 0) > FILES_VERSION:
                return path
    return None
