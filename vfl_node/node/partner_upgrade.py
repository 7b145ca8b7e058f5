"""The memory of a partner that earlier versions wrote, in the form of this version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from vfl_node.errors import StateError
from vfl_node.process.files import holds_checked, read_checked, remove, write_checked
from vfl_node.session.spent import loss_line
from vfl_node.trust.lanes import Lane

CLAIMED = "claimed-head"
"""File with what the peer has seen of this node's lane and is not in it."""

IMPORT = "import"
"""Kind of the entry with what earlier versions had counted."""

SECRET_BYTES = 32

_KINDS = ("inputs", "changes", "trainings", "models", "linkages", "spent", "forgotten", "answers")
"""Files with the lines of one kind each, of before they were in a lane."""

_OTHERS = ("met", "claimed", "accepted")
"""Files with numbers of alignments, which heads of lanes have replaced."""


def import_counts(folder: Path, lane: Lane) -> None:
    """Move what earlier versions counted in files into the lane, as one entry; nothing happens to a memory of this version.

    The files are removed last: if that broke off, the entry is there, and only what is not in it is moved.

    Args:
        folder: of this partner; it need not be there.
        lane: of it.

    Raises:
        StateError: a file is damaged (``E_STATE_CORRUPT``); then all stay.
    """
    upgrade(folder, lane.peer)
    if not any((folder / kind).exists() for kind in (*_KINDS, *_OTHERS)):
        return
    with lane.held():
        known = {line for entry in lane.entries for lines in entry.body.get("lines", {}).values() for line in lines}
        lines = {kind: _read(folder / kind).splitlines() for kind in _KINDS}
        if accepted := _read(folder / "accepted"):
            for kind in ("inputs", "changes", "linkages", "spent"):
                lines[kind].append(loss_line(int(accepted)))
        elif claimed := _read(folder / "claimed"):
            write_checked(folder / CLAIMED, json.dumps({"entries": int(claimed), "link": ""}).encode())
        new = {kind: [line for line in dict.fromkeys(each) if line not in known] for kind, each in lines.items()}
        if new := {kind: each for kind, each in new.items() if each}:
            lane.append(IMPORT, {"lines": new})
        for name in (*_KINDS, *_OTHERS):
            remove(folder / name)


def _read(path: Path) -> str:
    try:
        return read_checked(path, hint="put the newest copy of state/partners back").decode()
    except FileNotFoundError:
        return ""


def upgrade(folder: Path, peer: str) -> None:
    """Give the files of such a memory checksums; nothing happens to one of this version.

    The secret, the pairs of sets that were aligned and the trainings go on to count. The secret is rewritten last: by its
    size an upgrade that broke off is known, and goes on.

    Args:
        folder: of this partner.
        peer: its name.

    Raises:
        StateError: a number of dummies in it is none (``E_STATE_CORRUPT``).
    """
    secret = folder / "secret"
    if not secret.exists() or secret.stat().st_size != SECRET_BYTES:
        return
    _promise([path for path in sorted(folder.glob("*.kept")) if not holds_checked(path)], folder, peer)
    for path in (folder / "inputs", folder / "trainings", secret):
        if path.exists() and not holds_checked(path):
            write_checked(path, path.read_bytes())


def _promise(drawn: Sequence[Path], folder: Path, peer: str) -> None:
    """Turn what hid how many records are shared into promises, and remove it.

    It was drawn for sets that this version names otherwise, so what hides them is drawn anew: each pair counts as a change.
    That they are hidden, and by how many dummies, is promised for every set, as nobody knows which ones they were.
    """
    pairs = sorted({path.stem.removesuffix("-size") for path in drawn})
    changes = folder / "changes"
    if pairs and not changes.exists():  # it is written last: otherwise an upgrade broke off behind it
        try:
            dummies = [int(path.read_bytes()) for path in drawn if path.stem.startswith("dummies-")]
        except ValueError:
            raise StateError(
                f"what {folder} holds of dummies is damaged",
                code="E_STATE_CORRUPT",
                hint=f"restore it from a backup; drawn anew, {peer} may compare new alignments with earlier ones",
                for_peer="what it stored is damaged",
            ) from None
        if dummies:
            write_checked(folder / "dummies.kept", b"%d" % max(dummies))
        write_checked(folder / "hidden.kept", b"")
        lines = (hashlib.sha256(f"earlier {pair}".encode()).hexdigest().encode() for pair in pairs)
        write_checked(changes, b"\n".join(lines))
    for path in drawn:
        remove(path)
