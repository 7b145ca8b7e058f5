"""One node at a time uses a state folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from vfl_node.errors import UsageError


def hold(path: Path) -> int:
    """Lock the state folder for this process by a file in it; the descriptor keeps the lock.

    Raises:
        UsageError: another node uses the folder (``E_STATE_LOCKED``).
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
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
