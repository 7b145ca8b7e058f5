"""A secret of the node for what it promises to all partners alike: each of them is to see the same draws.

It lies beside the partners' folders, in a checked file, and is drawn where a job first needs it. Whether it is still the one
under which something was promised, the memory of each partner tells (:mod:`vfl_node.session.answers`).
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from vfl_node.node.partner_upgrade import SECRET_BYTES
from vfl_node.process.files import read_checked, write_checked

FILE = "own.secret"
"""Its name; no party's name has a dot."""

_LOCK = threading.Lock()  # jobs with several partners may need it at once


def own_secret(partners: Path, first: bytes | None = None) -> bytes:
    """The secret of the node whose partners' folders lie in ``partners``.

    Args:
        partners: a folder that exists.
        first: with which it begins in a trial; None: from the operating system.

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``).
    """
    path = partners / FILE
    with _LOCK:
        try:
            return read_checked(path, hint=f"put the newest copy of {path} back; under another secret labels are answered anew")
        except FileNotFoundError:
            write_checked(path, secret := first or secrets.token_bytes(SECRET_BYTES))
            return secret
