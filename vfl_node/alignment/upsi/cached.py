"""Lists that outlive a job: of tags, at the party that asks and at the one that answers, and of the records they stand for.

They are files ``PEER-EPOCH-NAME`` for this user only (0600), with a checksum. At the party that asks they lie in
``state/cached``, at the one that answers in ``served`` below it. A newer epoch removes those of earlier ones. One that is gone
is sent, or computed, again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from vfl_node.errors import StateError
from vfl_node.process.files import add_head, locked_folder, private_folder, read_checked, write_checked

MOST_LISTS = 4
"""Lists of one peer that are kept: a node may align several tables with it."""

_HEAD_BYTES = len(add_head(b""))


class CachedLists:
    """Lists that a party keeps of, or for, one peer.

    Args:
        folder: where they lie.
        peer: name of the peer.
        epoch: of its key, or of this party's for it.
        name: of the list, 16 bytes.
    """

    def __init__(self, folder: Path, peer: str, epoch: int, name: bytes) -> None:
        self._folder, self._peer, self._path = folder, peer, folder / f"{peer}-{epoch}-{name.hex()}"

    def read(self, size: int, suffix: str = "") -> bytes | None:
        """What :meth:`write` has kept; None where there is nothing.

        Args:
            size: bytes that it must have; more are not read.
            suffix: as for :meth:`write`.

        Raises:
            StateError: it is another text (``E_CACHE``).
        """
        path = self._place(suffix)
        try:
            if path.stat().st_size != _HEAD_BYTES + size:
                raise self.error(suffix)
            return read_checked(path)
        except FileNotFoundError:
            return None
        except StateError:
            raise self.error(suffix) from None

    def size(self, suffix: str = "") -> int:
        """How many bytes are kept; 0: none."""
        return max(0, self.stamp(suffix)[0] - _HEAD_BYTES)

    def stamp(self, suffix: str = "") -> tuple[int, ...]:
        """What is another one once something else is kept; its first number is the size of the file, 0: there is none."""
        try:
            stat = self._place(suffix).stat()
        except FileNotFoundError:
            return (0,)
        return stat.st_size, stat.st_ino, stat.st_mtime_ns

    def write(self, data: bytes, suffix: str = "", check: Callable[[], None] = lambda: None) -> None:
        """Keep ``data``, and remove what is of other epochs, and the oldest lists of this one if there are many.

        Args:
            data: the list.
            suffix: of the file, of something kept beside the list.
            check: called when no other job can write; what it raises keeps the file as it is.
        """
        private_folder(self._folder)
        with locked_folder(self._folder):
            check()
            write_checked(self._place(suffix), data)
            for path in self._list_old():
                path.unlink(missing_ok=True)

    def error(self, suffix: str = "") -> StateError:
        """That what is kept is not what it should be."""
        path = self._place(suffix)
        return StateError(
            f"{path} is not the list that {self._peer} and this node have in common",
            code="E_CACHE",
            hint=f"remove {path}, then submit a new job: the list is then sent, or computed, again",
            for_peer="the list of tags that it keeps cannot be used",
        )

    def _place(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _list_old(self) -> list[Path]:
        """Files of this peer that are to go."""
        pattern = re.compile(re.escape(self._peer) + r"-(\d+)-([0-9a-f]{32})(\.\w+)?")
        found = [(path, match) for path in self._folder.iterdir() if (match := pattern.fullmatch(path.name))]
        newest = sorted(
            {match[2] for _, match in found if match[1] == self._epoch},
            key=lambda name: max(path.stat().st_mtime_ns for path, match in found if match[2] == name),
        )
        return [path for path, match in found if match[1] != self._epoch or match[2] not in newest[-MOST_LISTS:]]

    @property
    def _epoch(self) -> str:
        return self._path.name.removeprefix(f"{self._peer}-").partition("-")[0]
