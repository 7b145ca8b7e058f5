"""What lies in a backup of a node, and whether one that is read is what was written.

::

    manifest.json                 first: format, party, version, time, and how each ledger stands
    jobs.sqlite                   the index
    partners/…                    what is remembered of each partner, with the ledger; and the node's own secret
    tables/…                      which tables are about the same records, and marks of these
    schedules/…                   how each schedule stands, and marks of the records that its last job read
    relayed/NAME                  cards of parties that were told
    tokens, audit.log, audit-N.log
    policy.yaml, peers/…          what lies beside the settings
    jobs/JOB/…                    with --models: report, model, what predictions need, and how columns lay
    SHA256SUMS                    last: of all before it, as sha256sum writes them

Keys and certificates of the node, the owner's token, and secrets of jobs under way are never in it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from vfl_node.errors import StateError, UsageError
from vfl_node.job import Name
from vfl_node.node.index_copies import address_of
from vfl_node.process.archive import damage_error, unpack
from vfl_node.process.files import fault, holds_checked, read_checked
from vfl_node.trust.lanes import FILE, NO_LINK, Lane

FORMAT = 2
"""Version of this form; raised when earlier releases can no longer read it."""

MANIFEST, INDEX, POLICY, SUMS = "manifest.json", "jobs.sqlite", "policy.yaml", "SHA256SUMS"

MOST_MANIFEST_BYTES = 1 << 20

_PARTY = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_EXPECTED = re.compile(
    rf"manifest\.json|jobs\.sqlite|tokens|audit(?:-\d{{10,20}})?\.log|policy\.yaml|SHA256SUMS"
    rf"|tables/(?:index\.json|{_PARTY}(?:~\d{{1,9}})?\.(?:marks|ever))|schedules/(?:index\.json|{_PARTY}\.marks)"
    rf"|relayed/{_PARTY}|peers/{_PARTY}\.(?:yaml|crt|card)"
    rf"|partners/(?:own\.secret|{_PARTY}/[a-z0-9](?:[a-z0-9-]|\.(?!tmp)){{0,99}})"
    r"|jobs/[a-z0-9][a-z0-9-]{0,62}/(?:serving|alignment|shown|rows|split|evidence|columns|synthetic"
    r"|artefacts/[A-Za-z0-9][A-Za-z0-9_-]{0,67}(?:\.[a-z0-9]{1,12})?)"
)


def belongs(name: str) -> bool:
    """Whether a file of this name may be in a backup."""
    return _EXPECTED.fullmatch(name) is not None


class Head(BaseModel):
    """How a ledger stood.

    Attributes:
        entries: how many there were.
        link: of the last one, in hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: int
    link: str


class BackupManifest(BaseModel):
    """What a backup says of itself.

    Attributes:
        format: as :data:`FORMAT`.
        party: whose it is.
        version: of the release that wrote it.
        at: when.
        models: whether reports and models are in it.
        ledgers: partner → how the ledger stood.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    party: Name
    version: str
    at: AwareDatetime
    models: bool
    ledgers: Mapping[Name, Head]


def unpack_backup(path: Path, folder: Path) -> BackupManifest:
    """Unpack a backup into an empty folder, and check that each file, the index and each ledger are what was written.

    Signatures in ledgers are another question (:func:`vfl_node.trust.lane_check.verify_lane`).

    Args:
        path: of the backup.
        folder: for this user only.

    Raises:
        UsageError: there is no such file (``E_FILE``).
        StateError: it is damaged or no backup (``E_BACKUP``, ``E_STATE_CORRUPT``), a newer release wrote it
            (``E_STATE_VERSION``), or the disk refuses.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a file", code="E_FILE", hint="name a backup that vfl-node backup has written")
    try:
        with path.open("rb") as file:
            manifest, sums = None, dict[str, str]()
            for name, digest in unpack(file, folder, belongs):
                if not sums:
                    manifest = _read_manifest(folder / MANIFEST, name)
                sums[name] = digest
        if manifest is None or sums.pop(SUMS, None) is None:
            raise damage_error("it is cut")
        _check_sums(folder / SUMS, sums)
        _check_files(folder, manifest)
    except OSError as error:
        raise refusal(error) from None
    return manifest


def refusal(error: OSError) -> StateError:
    """The error of a command about a backup to which the system refuses something."""
    cause = fault(error)
    hint = "see to the disks of the backup, of state_dir and of TMPDIR, then run the command again"
    return StateError(cause.message, code=cause.code, hint=hint)


def _read_manifest(path: Path, first: str) -> BackupManifest:
    if first != MANIFEST or path.stat().st_size > MOST_MANIFEST_BYTES:
        raise damage_error("it is no archive that vfl-node backup wrote")
    try:
        manifest = BackupManifest.model_validate_json(path.read_bytes())
    except ValidationError:
        raise damage_error("its manifest cannot be read; perhaps a newer release wrote it") from None
    if manifest.format > FORMAT:
        raise StateError(
            f"vfl-node {manifest.version} wrote this backup in form {manifest.format}, and this one reads up to {FORMAT}",
            code="E_STATE_VERSION",
            hint="install that release",
        )
    return manifest


def _check_sums(path: Path, found: Mapping[str, str]) -> None:
    lines = (line.partition("  ") for line in path.read_text(errors="replace").splitlines())
    stated = {name: digest for digest, _, name in lines}
    if stated != found:
        wrong = sorted(name for name in stated.keys() | found.keys() if stated.get(name) != found.get(name))
        raise damage_error(f"{wrong[0] if belongs(wrong[0]) else 'a file'} is not what {SUMS} says")


def _check_files(folder: Path, manifest: BackupManifest) -> None:
    """Look into what was unpacked: each kind by the checksums of its own. Raises StateError."""
    check_index(folder / INDEX)
    for path in [
        *folder.glob("partners/own.secret"),
        *folder.glob("partners/*/*"),
        *folder.glob("relayed/*"),
        *folder.glob("tables/*"),
        folder / "tokens",
    ]:
        if path.name != FILE and path.exists() and holds_checked(path):
            try:
                read_checked(path)
            except StateError:
                raise damage_error(f"{path.relative_to(folder)} was damaged before it was copied") from None
    ledgers = {path.parent.name: path for path in folder.glob(f"partners/*/{FILE}")}
    if ledgers.keys() != manifest.ledgers.keys():
        raise damage_error("its ledgers are not those that its manifest names")
    for peer, path in ledgers.items():
        if read_head(path, peer) != manifest.ledgers[peer]:
            raise damage_error(f"the ledger with {peer} does not end as its manifest says")


def read_head(path: Path, peer: str) -> Head:
    """How a copy of the ledger with ``peer`` stands. Raises StateError (``E_STATE_CORRUPT``) if it is not what was written."""
    entries = Lane(path, peer).entries
    return Head(entries=len(entries), link=(entries[-1].link if entries else NO_LINK).hex())


def check_index(path: Path) -> list[str]:
    """The ids of the jobs in a copy of the index that are done. Raises StateError (``E_BACKUP``) if it is damaged."""
    try:
        with closing(sqlite3.connect(address_of(path, "ro"), uri=True)) as index:
            verdict = index.execute("PRAGMA integrity_check(1)").fetchone()[0]
            done = [str(job) for (job,) in index.execute("SELECT id FROM jobs WHERE state = 'done'")]
    except sqlite3.Error as error:
        raise damage_error(f"its index is damaged: {error}") from None
    if verdict != "ok":
        raise damage_error(f"its index is damaged: {verdict}")
    return done
