"""How much one sender has had decrypted, stored so that it outlives an attempt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vfl_node.process.files import read_checked, write_checked


@dataclass
class DecryptionCount:
    """What one sender has had decrypted, in all attempts.

    Attributes:
        step: the last iteration answered; −1: none.
        requests: number of answers.
        repeated: number of answers that had been given before.
        values: number of values in all answers.
        bits: number of bits of these values that were sent back.
        columns: of the sender's side, as its plan has them; 0 before the first answer.
    """

    step: int = -1
    requests: int = 0
    repeated: int = 0
    values: int = 0
    bits: int = 0
    columns: int = 0


class DecryptionLog(Protocol):
    """Stores the count of one sender."""

    def read(self) -> DecryptionCount:
        """The newest count."""

    def write(self, count: DecryptionCount) -> None:
        """Store ``count``; when this returns it survives a crash."""


class FileDecryptionLog:
    """A log in a file.

    Args:
        path: of the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> DecryptionCount:
        """As :meth:`DecryptionLog.read`.

        Raises:
            StateError: the file is damaged (``E_STATE_CORRUPT``).
        """
        try:
            return DecryptionCount(**json.loads(read_checked(self._path, hint="submit the job again as a new one")))
        except FileNotFoundError:
            return DecryptionCount()

    def write(self, count: DecryptionCount) -> None:
        """As :meth:`DecryptionLog.write`."""
        write_checked(self._path, json.dumps(vars(count)).encode())


class MemoryDecryptionLog:
    """A log that lives as long as the object."""

    def __init__(self) -> None:
        self._count = DecryptionCount()

    def read(self) -> DecryptionCount:
        """As :meth:`DecryptionLog.read`."""
        return DecryptionCount(**vars(self._count))

    def write(self, count: DecryptionCount) -> None:
        """As :meth:`DecryptionLog.write`."""
        self._count = DecryptionCount(**vars(count))
