"""One node at a time uses a state folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from vfl_node.errors import StateError, UsageError

LOCK = "lock"
"""The file in the state folder by which it is held."""

RESTORING = "restoring"
"""The folder in it where a backup is made ready that is being restored."""


def hold(path: Path) -> int:
    """Lock the state folder for this process by a file in it; the descriptor keeps the lock.

    Raises:
        UsageError: another node uses the folder (``E_STATE_LOCKED``), or a restore of a backup broke off in it (``E_BACKUP``).
        OSError: the system refuses.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise UsageError(
            f"the state folder {path.parent} is in use by another node (process {holder})",
            code="E_STATE_LOCKED",
            hint="stop that node, or give this one its own state_dir",
        ) from None
    if (path.parent / RESTORING).exists():
        os.close(descriptor)
        raise UsageError(
            f"a backup was not restored to its end in {path.parent}",
            code="E_BACKUP",
            hint="empty the state folder, and restore the backup again: vfl-node restore",
        )
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def check_held(descriptor: int, path: Path) -> None:
    """Check that the file at ``path`` is still the one that :func:`hold` locked. Raises StateError (``E_STATE_LOST``)."""
    try:
        same = os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        same = False
    if not same:
        text = f"the state folder {path.parent} is gone"
        hint = "stop the node, put the folder back, and start it again: its jobs go on"
        raise StateError(text, code="E_STATE_LOST", hint=hint, for_peer="it cannot reach what it stored")
