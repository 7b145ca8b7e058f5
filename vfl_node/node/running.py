"""Where a running node is reached: a file in its state folder, written when it listens and removed when it stops."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.process.files import write_whole
from vfl_node.settings.node import Settings

OWNERS_SOCKET = "owner.sock"
"""In the state folder: whoever can open it is the owner, and needs no token."""

_FILE = "running.json"


def announce(state_dir: Path, *, listen: str | None, http: str | None, https: bool = False) -> None:
    """Write down where this process listens.

    Args:
        state_dir: of the node.
        listen: bound gRPC address; None: it only dials out.
        http: bound HTTP address; None: only the owner's socket.
        https: whether that port speaks TLS.
    """
    place = {"pid": os.getpid(), "listen": listen, "http": http, "https": https}
    write_whole(state_dir / _FILE, json.dumps(place).encode())


def withdraw(state_dir: Path) -> None:
    """Remove what :func:`announce` wrote. Idempotent."""
    (state_dir / _FILE).unlink(missing_ok=True)


def running(settings: Settings) -> dict[str, Any]:
    """``pid``, ``listen``, ``http`` and ``https`` of the running node of these settings, as :func:`announce` wrote them.

    Raises:
        UsageError: it is not running (``E_NOT_RUNNING``).
    """
    path = settings.state_dir / _FILE
    try:
        return json.loads(path.read_text())
    except OSError:
        raise UsageError(
            f"node {settings.name} is not running (no {path})",
            code="E_NOT_RUNNING",
            hint=f"start it: vfl-node --role {settings.role} --config FILE",
        ) from None
