"""A copy of what a node must not lose, in one file, made while the node runs or does not.

Nothing is stopped for it. The index is copied by SQLite while it is written. Ledgers are copied after it, each under its lock
for as long as reading it takes, so that no line is torn and no count of a job in the index is missing. The other files are
written whole under another name and renamed, so each is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from vfl_node.errors import StateError, UsageError
from vfl_node.node.backup_form import (
    FORMAT,
    INDEX,
    MANIFEST,
    POLICY,
    SUMS,
    BackupManifest,
    belongs,
    check_index,
    read_head,
    refusal,
)
from vfl_node.node.index_copies import copy_index
from vfl_node.node.lineages import FOLDER as TABLES
from vfl_node.node.schedule_states import FOLDER as SCHEDULES
from vfl_node.process.archive import ArchiveWriter
from vfl_node.process.files import give_to_owner_of, read_checked, scratch, write_checked, writing_whole
from vfl_node.settings.node import Settings
from vfl_node.trust.audit_log import FILE as AUDIT_LOG
from vfl_node.trust.audit_log import list_files, locked
from vfl_node.trust.lanes import FILE, Lane
from vfl_node.version import VERSION

LAST = "backup.json"
"""File in the state folder that says when the last backup was written."""

_OF_MODELS = ("serving", "alignment", "shown", "rows", "split", "evidence", "columns", "synthetic")
"""What predictions and later comparisons of tables need, in the folder of a job beside its artefacts."""


@dataclass(frozen=True)
class Backup:
    """A backup that was written.

    Attributes:
        manifest: of it.
        size: in bytes.
        left_out: files of partners and peers that have unexpected names.
    """

    manifest: BackupManifest
    size: int
    left_out: tuple[str, ...]


def back_up(settings: Settings, target: Path, *, models: bool) -> Backup:
    """Write a backup to the new file ``target`` (0600), and then its time into the state folder.

    Args:
        settings: of the node, which may be running.
        target: where it appears, once it is whole.
        models: whether also reports, models, what predictions need and how columns lay, of the jobs that are done.

    Raises:
        UsageError: the file is there already (``E_EXISTS``), or lies in the state folder (``E_FILE``); the node has no state.
        StateError: the index or a ledger is damaged (``E_BACKUP``, ``E_STATE_CORRUPT``), or the system refuses.
    """
    state = settings.state_dir
    if not (state / INDEX).exists():
        raise UsageError(f"{state} has no state of a node", code="E_FILE", hint="start the node once, then back it up")
    if target.exists():
        raise UsageError(f"{target} exists already", code="E_EXISTS", hint="name a new file, such as one with today's date")
    if state.resolve() in target.resolve().parents:
        raise UsageError(f"{target} would lie in the state folder", code="E_FILE", hint="name a file on another disk")
    try:
        with scratch("vfl-backup-") as stage:
            manifest = _stage(settings, stage, models=models)
            with writing_whole(target) as file:
                writer = ArchiveWriter(file)
                left_out = _write(writer, settings, stage, manifest)
                size = file.tell()
        note(state, manifest.at)
    except OSError as error:
        raise refusal(error) from None
    except ValueError as error:  # of a file that is too large for the form
        raise StateError(f"a file cannot be put into a backup: {error}", code="E_BACKUP") from None
    return Backup(manifest, size, left_out)


def last_backup(state_dir: Path) -> datetime | None:
    """When the last backup of a node was written; None: none was.

    Args:
        state_dir: of the node.

    Raises:
        StateError: the file that says so is damaged (``E_STATE_CORRUPT``), or cannot be read.
    """
    try:
        text = read_checked(state_dir / LAST, hint=f"remove {state_dir / LAST}; the next backup writes it anew")
        return datetime.fromisoformat(json.loads(text)["at"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(error) from None


def note(state: Path, at: datetime) -> None:
    """Write down when the last backup was written, in a file of the state folder's owner. Raises OSError."""
    write_checked(state / LAST, json.dumps({"at": at.isoformat()}).encode())
    give_to_owner_of(state, state / LAST)


def _stage(settings: Settings, stage: Path, *, models: bool) -> BackupManifest:
    """Copy what changes in place into the folder ``stage``: index, ledgers, audit log. Raises as :func:`back_up`."""
    state = settings.state_dir
    copy_index(state / INDEX, stage / INDEX)
    heads = {}
    for path in sorted((state / "partners").glob(f"*/{FILE}")):
        peer = path.parent.name
        if not belongs(f"partners/{peer}/{FILE}"):
            continue
        with Lane(path, peer).held():
            data = path.read_bytes()
        copy = stage / "partners" / peer / FILE
        copy.parent.mkdir(parents=True)
        copy.write_bytes(data[: data.rfind(b"\n") + 1])  # a crash may have cut the last line
        heads[peer] = read_head(copy, peer)
    if (state / AUDIT_LOG).exists():
        with locked(state):
            *full, newest = list_files(state)
            data = newest.read_bytes()
        (stage / AUDIT_LOG).write_bytes(data[: data.rfind(b"\n") + 1])
        for path in full:  # which nobody changes
            shutil.copyfile(path, stage / path.name)
    return BackupManifest(
        format=FORMAT,
        party=settings.name,
        version=VERSION,
        at=datetime.now(timezone.utc).replace(microsecond=0),
        models=models,
        ledgers=heads,
    )


def _write(writer: ArchiveWriter, settings: Settings, stage: Path, manifest: BackupManifest) -> tuple[str, ...]:
    """Write all files; returns which were left out for their names. Raises as :func:`back_up`."""
    at, left_out = int(manifest.at.timestamp()), list[str]()
    writer.add_bytes(MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n", at)
    for name, path in _list_files(settings, stage, models=manifest.models):
        if not belongs(name):
            left_out.append(name)
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:  # a job was pruned, or a peer revoked
            continue
        with os.fdopen(descriptor, "rb") as source:
            writer.add(name, source)
    sums = "".join(f"{digest}  {name}\n" for name, digest in writer.sums.items())
    writer.add_bytes(SUMS, sums.encode(), at)
    writer.close()
    return tuple(left_out)


def _list_files(settings: Settings, stage: Path, *, models: bool) -> Iterator[tuple[str, Path]]:
    """Name in the backup and place of each file, those that changed in place first."""
    state = settings.state_dir
    for path in files_below(stage):
        yield path.relative_to(stage).as_posix(), path
    for folder in ("partners", "relayed", TABLES, SCHEDULES):
        for path in files_below(state / folder):
            if path.name != FILE and path.suffix != ".tmp":
                yield path.relative_to(state).as_posix(), path
    yield "tokens", state / "tokens"
    if settings.in_force.file:
        yield POLICY, settings.in_force.file
    for path in sorted(settings.peers_dir.glob("*.*"), key=lambda path: (path.stem, path.suffix == ".yaml")):
        if path.suffix != ".tmp":
            yield f"peers/{path.name}", path
    for job in check_index(stage / INDEX) if models else ():
        place = state / "jobs" / job
        for path in [*(place / name for name in _OF_MODELS), *_artefacts(place / "artefacts")]:
            yield path.relative_to(state).as_posix(), path


def _artefacts(folder: Path) -> list[Path]:
    """What a job has left for its owner; the checksums, without which it counts as nothing, come last."""
    found = [path for path in files_below(folder) if path.suffix != ".tmp"]
    return sorted(found, key=lambda path: (path.name == SUMS, path.name))


def files_below(folder: Path) -> list[Path]:
    """The regular files in a folder and in those below it, also while some of them go; none where there is no folder."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())
