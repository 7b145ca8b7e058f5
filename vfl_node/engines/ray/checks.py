"""What this machine must have before a node uses a Ray cluster."""

from __future__ import annotations

import os
import stat
from importlib import metadata
from pathlib import Path

from vfl_node.errors import UsageError
from vfl_node.settings.engine import EngineSettings

_LEAST = (2, 52)
"""The first version of Ray that asks for a token."""


def check_engine(settings: EngineSettings) -> None:
    """Refuse settings of a cluster that this machine cannot use, or not safely. Does nothing for ``kind: local``.

    Raises:
        UsageError: Ray is absent or too old, the environment carries its token or a runtime environment, or a secret file is
            absent or not private (``E_CONFIG``).
    """
    if settings.kind == "local":
        return
    if "RAY_AUTH_TOKEN" in os.environ:
        raise _refusal("RAY_AUTH_TOKEN is in the environment, where others may read it", "unset it: token_file names it")
    if found := sorted(name for name in os.environ if name.startswith("RAY_RUNTIME_ENV")):
        raise _refusal(f"{found[0]} would change what the workers run", "unset it, and install the same wheel on all machines")
    for key in ("token_file", "key"):
        if (path := getattr(settings, key)) is not None:
            _check_private(path, f"engine.{key}")
    for key in ("ca", "cert"):
        if (path := getattr(settings, key)) is not None and not path.is_file():
            raise _refusal(f"engine.{key}: there is no file {path}", "put the file there, or correct the path")
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise _refusal("engine.kind is ray, and Ray is not installed", "pip install 'vfl-node[ray]'") from None
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST:
        raise _refusal(f"Ray {version} has no token", "pip install 'vfl-node[ray]' on all machines, for Ray 2.52 or newer")


def _check_private(path: Path, key: str) -> None:
    try:
        about = path.stat()
    except OSError as error:
        raise _refusal(f"{key}: {path} cannot be read: {error.strerror}", "put the file there, or correct the path") from None
    if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o177 or about.st_uid != os.geteuid():
        raise _refusal(f"{key}: {path} must be this user's alone (mode 0600)", f"chmod 600 {path}, as the user of the node")


def _refusal(message: str, hint: str) -> UsageError:
    return UsageError(message, code="E_CONFIG", hint=hint)
