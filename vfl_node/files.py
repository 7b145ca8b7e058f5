"""Files that survive a crash: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` under a temporary name, make it durable, then rename it to ``path``; a failure leaves neither."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    _make_names_durable(path.parent)


def remove(path: Path) -> None:
    """Remove ``path``, if it is there; when this returns it stays removed."""
    path.unlink(missing_ok=True)
    _make_names_durable(path.parent)


def _make_names_durable(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
