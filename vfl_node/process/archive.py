"""Archives of plain files that any ``tar`` reads: written in one go, and read block by block within bounds.

What is read may be anybody's: only regular files with expected names are taken, each once, and none is larger than what the
archive itself has. A file appears under the folder that the reader names, and nowhere else. Every byte is hashed as it passes.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from vfl_node.errors import StateError

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_PIECE = 1 << 20
_FORM: Final = tarfile.USTAR_FORMAT  # its longest names and largest files suffice, and one header stands for one file

MOST_MEMBERS = 1_000_000
"""Files of an archive that is read."""


class ArchiveWriter:
    """Writes an archive to an open file.

    Args:
        file: it is written from where it stands.

    Attributes:
        sums: name → SHA-256 of each file so far, in hexadecimal.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sums: dict[str, str] = {}

    def add(self, name: str, source: BinaryIO) -> None:
        """Add a file as long as it is now; nothing is read that is appended meanwhile.

        Raises:
            OSError: it cannot be read or written, or has become shorter.
            ValueError: the name is too long, or the file larger than 8 GiB.
        """
        about = os.fstat(source.fileno())
        self._head(name, about.st_size, int(about.st_mtime))
        digest, left = hashlib.sha256(), about.st_size
        while left:
            if not (piece := source.read(min(left, _PIECE))):
                raise OSError(0, "the file became shorter while it was read", name)
            digest.update(piece)
            self._file.write(piece)
            left -= len(piece)
        self._pad(about.st_size)
        self.sums[name] = digest.hexdigest()

    def add_bytes(self, name: str, data: bytes, at: int) -> None:
        """Add a file with these bytes, of this time in seconds since the epoch. Raises as :meth:`add`."""
        self._head(name, len(data), at)
        self._file.write(data)
        self._pad(len(data))
        self.sums[name] = hashlib.sha256(data).hexdigest()

    def close(self) -> None:
        """Write the end of the archive. Raises OSError."""
        self._file.write(_END)

    def _head(self, name: str, size: int, at: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, at
        self._file.write(info.tobuf(_FORM, "ascii", "strict"))

    def _pad(self, size: int) -> None:
        self._file.write(bytes(-size % _BLOCK))


def unpack(file: BinaryIO, folder: Path, expects: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Unpack an archive, file by file (0600, in folders 0700).

    Args:
        file: the archive, a regular file.
        folder: there already, and empty.
        expects: whether a file of this name may be in the archive; it accepts no ``..`` and no leading ``/``.

    Yields:
        Name and SHA-256 of each file, when it lies in ``folder``.

    Raises:
        StateError: it is no such archive (``E_BACKUP``).
        OSError: the system refuses.
    """
    size, seen = os.fstat(file.fileno()).st_size, set[str]()
    while (block := file.read(_BLOCK)) != _END[:_BLOCK]:
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeError):
            raise damage_error("it is cut, or no archive that vfl-node wrote") from None
        if info.type != tarfile.REGTYPE or not expects(info.name) or info.name in seen or len(seen) >= MOST_MEMBERS:
            raise damage_error(f"its file number {len(seen) + 1} does not belong in a backup")
        if not 0 <= info.size <= size - file.tell():
            raise damage_error(f"its file number {len(seen) + 1} is cut")
        seen.add(info.name)
        yield info.name, _take(file, info.size, folder / info.name)
        if len(file.read(-info.size % _BLOCK)) != -info.size % _BLOCK:
            raise damage_error("it is cut")


def _take(file: BinaryIO, size: int, path: Path) -> str:
    """Copy the next bytes of an archive to ``path``; returns their SHA-256."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), size
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
        while left:
            if not (piece := file.read(min(left, _PIECE))):
                raise damage_error("it is cut")
            digest.update(piece)
            out.write(piece)
            left -= len(piece)
    return digest.hexdigest()


def damage_error(what: str) -> StateError:
    """The error of an archive of which ``what`` is wrong."""
    return StateError(f"the backup cannot be used: {what}", code="E_BACKUP", hint="take another one: vfl-node backup verify")
