"""A node's state from a backup: only where no state is, and with an entry in every ledger that says so.

What was under way when the backup was made has lost its secrets, so it ends as failed (``E_RESTORED``). What such a job had set
aside counts from then on, because nobody knows whether it was used after the backup. A partner that has seen more of a ledger
than is in the backup says so before the next job (:mod:`vfl_node.trust.heads`).

All is made ready in :data:`vfl_node.node.state_lock.RESTORING` inside the state folder. A node does not start while that is
there, so a restore that broke off leaves nothing that runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vfl_node.configuration.models import text_of
from vfl_node.configuration.yaml_text import read
from vfl_node.errors import StateError, UsageError
from vfl_node.node.backup import note
from vfl_node.node.backup_form import MANIFEST, POLICY, SUMS, BackupManifest, refusal, unpack_backup
from vfl_node.node.state_lock import LOCK, RESTORING, hold
from vfl_node.node.store import Store
from vfl_node.process.files import private_folder, write_whole
from vfl_node.settings.connection import PEERS_DIR
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.trust.lanes import FILE, KEY, Lane
from vfl_node.trust.signers import Signers

_NO_STATE = {"lost+found", LOCK}
"""What may lie in an empty state folder: of a file system, and of a restore that was refused."""


@dataclass(frozen=True)
class Restored:
    """What was restored.

    Attributes:
        manifest: of the backup.
        settings: of the node.
        ended: jobs that were under way, and have ended.
        written: files beside the settings that were not there.
        kept: files beside the settings that are others than in the backup, and stay.
    """

    manifest: BackupManifest
    settings: Settings
    ended: tuple[str, ...]
    written: tuple[Path, ...]
    kept: tuple[Path, ...]


def restore(backup: Path, config: Path) -> Restored:
    """Restore a backup into the empty state folder of a node, and its policy and peers where these files are gone.

    Args:
        backup: as :func:`vfl_node.node.backup.back_up` wrote it.
        config: the settings of the node, with its keys where they say.

    Raises:
        UsageError: the state folder is not empty (``E_EXISTS``), the backup is of another party (``E_CONFIG``), or the settings
            cannot be used.
        StateError: as :func:`vfl_node.node.backup_form.unpack_backup`, or the system refuses.
    """
    if not isinstance(document := read(text_of(config), str(config)), Mapping):
        load_settings(config)  # which says what is wrong
        raise UsageError(f"{config} holds no settings", code="E_CONFIG")
    base = config.resolve().parent
    state = base / str(document.get("state_dir", "state"))
    try:
        with _making_ready(state) as stage:
            manifest = unpack_backup(backup, stage)
            if manifest.party != document.get("name"):
                raise UsageError(
                    f"the backup is of {manifest.party}, and {config} of {document.get('name')}",
                    code="E_CONFIG",
                    hint="name the settings of the node whose backup it is",
                )
            written, kept = _put_beside(stage, base, document)
            settings = load_settings(config)
            _check_keys(settings, stage)
            ended = _bring_up_to_date(stage, settings, manifest)
            _move_up(stage)
            note(state, manifest.at)
        os.sync()
    except OSError as error:
        raise refusal(error) from None
    return Restored(manifest, settings, ended, written, kept)


@contextmanager
def _making_ready(state: Path) -> Iterator[Path]:
    """A folder in the empty state folder, which no node can use meanwhile; a failure leaves it empty. Raises OSError."""
    private_folder(state)
    if there := sorted(path.name for path in state.iterdir() if path.name not in _NO_STATE):
        raise UsageError(
            f"{state} is not empty: it has {there[0]}",
            code="E_EXISTS",
            hint="a backup is restored into an empty state folder only: move what is there to another place, and keep it",
        )
    holder, stage = hold(state / LOCK), state / RESTORING
    try:
        stage.mkdir(mode=0o700)
        yield stage
        shutil.rmtree(stage)
    except BaseException:
        if (state / "partners").exists():  # it broke off in the middle of the last step: the node must not start
            raise
        shutil.rmtree(stage, ignore_errors=True)
        raise
    finally:
        os.close(holder)


def _put_beside(stage: Path, base: Path, document: Mapping[str, object]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Put the policy and the files of peers where the settings look for them; what is there stays. Raises OSError."""
    places: dict[Path, Path] = {}
    if isinstance(policy := document.get("policy"), str) and (stage / POLICY).exists():
        places[stage / POLICY] = base / policy
    peers = base / str(document.get("peers_dir", PEERS_DIR))
    for path in sorted(stage.glob("peers/*"), key=lambda path: (path.stem, path.suffix == ".yaml")):
        places[path] = peers / path.name
    written, kept = list[Path](), list[Path]()
    for path, place in places.items():
        if not place.exists():
            if path.parent != stage:
                private_folder(place.parent)
            write_whole(place, path.read_bytes())
            written.append(place)
        elif place.read_bytes() != path.read_bytes():
            kept.append(place)
    shutil.rmtree(stage / "peers", ignore_errors=True)
    for name in (POLICY, MANIFEST, SUMS):
        (stage / name).unlink(missing_ok=True)
    return tuple(written), tuple(kept)


def _check_keys(settings: Settings, stage: Path) -> None:
    """Raise UsageError (``E_FILE``) where the node's keys are not there: unsigned entries do not belong in a signed ledger."""
    if settings.tls is None:
        return
    signed = any(Lane(path, path.parent.name).list(KEY) for path in stage.glob(f"partners/*/{FILE}"))
    needed = [settings.tls.key, settings.tls.certificate, *([settings.tls.signing_key] if settings.pairs and signed else [])]
    for path in needed:
        if not path.exists():
            raise UsageError(
                f"{path} is not there",
                code="E_FILE",
                hint="no backup has keys and certificates: put them back from where you keep them, then restore again",
            )


def _bring_up_to_date(stage: Path, settings: Settings, manifest: BackupManifest) -> tuple[str, ...]:
    """End the jobs that were under way, and write into each ledger that it was restored; the ids of those jobs.

    The index gets the form of this release and its journal (WAL) again as it is opened.
    """
    at = manifest.at.isoformat()
    store, ended = Store(stage, signing=Signers(settings)), list[str]()
    try:
        for record in store.records():
            if record.open:
                store.update(record.fail(_restored_error(at)))
                ended.append(record.id)
        for path in sorted((stage / "partners").glob(f"*/{FILE}")):
            store.partner(path.parent.name).note_restore(at)
    finally:
        store.close()
    shutil.rmtree(store.requests)
    (stage / LOCK).unlink()
    return tuple(ended)


def _move_up(stage: Path) -> None:
    """Move everything into the state folder, the memory of partners first and as a whole. Raises OSError."""
    for path in sorted(stage.iterdir(), key=lambda path: (path.name != "partners", path.name)):
        path.rename(stage.parent / path.name)


def _restored_error(at: str) -> StateError:
    return StateError(
        f"the job was under way on {at[:16]}, when the backup was made from which this node was restored: a backup has no "
        "secrets of jobs under way",
        code="E_RESTORED",
        hint="submit it again as a new job",
        for_peer="it was restored from a backup, which has no secrets of jobs under way",
    )
