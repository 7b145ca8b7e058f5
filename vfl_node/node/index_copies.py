"""Copies of the index: for a backup, and beside it before a newer release changes its form (``jobs.sqlite.v7``)."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from vfl_node.errors import StateError
from vfl_node.process import failpoints
from vfl_node.process.files import give_to_owner_of, make_names_durable, private_file

LOCKED_S = 60.0
"""How long a copy waits for another program that has locked the index."""


def copy_index(index: Path, copy: Path) -> None:
    """Copy an index that may be written meanwhile, for this user only (0600).

    Raises:
        StateError: it is damaged (``E_BACKUP``).
        OSError: it cannot be read or written.
    """
    private_file(copy)  # SQLite fills an empty file, and leaves its mode
    try:
        with closing(sqlite3.connect(address_of(index, "rw"), uri=True, timeout=LOCKED_S)) as database:
            database.execute("VACUUM INTO ?", [str(copy)])
    except sqlite3.OperationalError as error:
        raise OSError(errno.ENOSPC if "full" in str(error) else 0, str(error), str(index)) from None
    except sqlite3.DatabaseError as error:
        raise StateError(f"the job index cannot be copied: {error}", code="E_BACKUP", hint="see the node's log") from None


def address_of(index: Path, mode: str) -> str:
    """By which SQLite opens this file with ``ro`` or ``rw``, and makes none."""
    return f"{index.absolute().as_uri()}?mode={mode}"


def path_of_copy(index: Path, version: int) -> Path:
    """Where the index lies as it was in an earlier version."""
    return index.with_name(f"{index.name}.v{version}")


def keep_copy(index: Path, version: int) -> str:
    """Copy an index of this version beside it, in the place of an earlier copy of that version, whole or not at all.

    The copy is for the owner of the index only (0600), also if root makes it.

    Returns:
        The SHA-256 of the copy, in hexadecimal.

    Raises:
        StateError: the index is damaged (``E_BACKUP``).
        OSError: it cannot be read, or the copy not be written; no part of it stays.
    """
    path = path_of_copy(index, version)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        failpoints.reach("write")
        temporary.unlink(missing_ok=True)  # of a process that was killed
        copy_index(index, temporary)
        give_to_owner_of(index, temporary)
        digest = digest_of(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # SQLite does not
        failpoints.reach("rename")
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    make_names_durable(path.parent)
    return digest


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises OSError."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()
