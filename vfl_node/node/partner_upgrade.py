"""The memory of a partner that a development version before checksums wrote, in the form of this version."""

from __future__ import annotations

from pathlib import Path

from vfl_node.errors import StateError
from vfl_node.files import holds_checked, write_checked

_SECRET_BYTES = 32


def upgrade(folder: Path, peer: str) -> None:
    """Give the files of such a memory checksums; nothing happens to one of this version.

    The secret, the pairs of sets that were aligned and the trainings go on to count. The secret is rewritten last: by its
    size an upgrade that broke off is known, and goes on.

    Args:
        folder: of this partner.
        peer: its name.

    Raises:
        StateError: jobs over it hid how many records are shared (``E_STATE_VERSION``). What hid that was drawn and stored for
            the sets in another way, so this version would draw it anew, or could be asked not to hide it.
    """
    secret = folder / "secret"
    if not secret.exists() or secret.stat().st_size != _SECRET_BYTES:
        return
    if any(folder.glob("*.kept")):
        raise StateError(
            f"{folder} was written by an earlier vfl-node, without checksums, and holds what hid how many records are shared",
            code="E_STATE_VERSION",
            hint="go on with that version; or move the folder away at both nodes: all that hid something from "
            f"{peer} is drawn anew then, and it may compare new alignments with earlier ones",
            for_peer="what it remembers of this partner is of an earlier version",
        )
    for path in (folder / "inputs", folder / "trainings", secret):
        if path.exists() and not holds_checked(path):
            write_checked(path, path.read_bytes())
