"""A file of log lines that threads and processes share, and that may be rotated under them.

It begins anew when it gets too large. Other programs may move it away or cut it, as logrotate does: each line goes to the file
that has the name now. A line is one write to the end of the file under a lock, so lines of several writers never mix.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from vfl_node.errors import UsageError


class LogFile:
    """Takes lines as a stream of text does. Safe to use from several threads and processes.

    Args:
        path: of the file, which only this user can read (0600). A symbolic link is refused.
        max_bytes: from which size on a new file begins.
        keep: how many earlier files are kept, as ``path.1`` (the newest), ``path.2``, …
        otherwise: takes the lines that cannot be written there.

    Raises:
        UsageError: the file cannot be opened (``E_FILE``).
    """

    def __init__(self, path: Path, max_bytes: int, keep: int, otherwise: Callable[[str], object]) -> None:
        self._path, self._max_bytes, self._keep, self._otherwise = path, max_bytes, keep, otherwise
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        try:
            self._open()
        except OSError as error:
            raise UsageError(
                f"log.file: {path} cannot be opened: {error.strerror}",
                code="E_FILE",
                hint="name a file in a folder where this node's user may write; it must be no symbolic link",
            ) from None

    def write(self, text: str) -> None:
        """Add a line to the file that has the name now; if that fails, give it to ``otherwise``."""
        line = text.encode("utf-8", "backslashreplace")
        with self._lock:
            try:
                self._write(line)
            except OSError:
                self._otherwise(text)

    def flush(self) -> None:
        """Nothing waits here to be written."""

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        with self._lock:
            self._close()

    def _write(self, line: bytes) -> None:
        while True:
            descriptor = self._open() if self._descriptor is None else self._descriptor
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                size = self._size_if_current(descriptor)
                if size is not None and (size == 0 or size + len(line) <= self._max_bytes):
                    while line:
                        line = line[os.write(descriptor, line) :]
                    return
                if size is not None:
                    self._rotate()
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._close()  # it has another name now

    def _size_if_current(self, descriptor: int) -> int | None:
        """The size of the open file; None: another file has its name, or none."""
        opened = os.fstat(descriptor)
        try:
            named = self._path.lstat()
        except FileNotFoundError:
            return None
        return opened.st_size if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino) else None

    def _rotate(self) -> None:
        """Give each file the next name. The lock is held on the file that has the name, so no other writer does it as well."""
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._keep + 1))]
        for earlier, later in reversed(list(pairwise(names))):
            if earlier.exists():
                earlier.replace(later)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe without a reader is refused
        self._descriptor = os.open(self._path, flags, 0o600)
        os.fchmod(self._descriptor, 0o600)
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
