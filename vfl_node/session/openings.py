"""What the other parties opened in earlier attempts: it must come again as it was, before this party opens anything more.

Masks of an attempt that repeats a section are the same, and so are all values, if everybody repeats what it sent. A party that
opens something else the second time would move the others' values under masks that it has seen before: the difference would be
theirs. So each round's openings are written down before the next share goes out, and compared when they come again.

With an audit the same is done with all that the dealer sends for a section that may be checked.

Source: ours (H-RESTART).
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vfl_node.crypto.shares.ring import Ring
from vfl_node.errors import ProtocolError, StateError

_RECORD = struct.Struct(">16s32s8s")  # place, digest, checksum of both


class OpeningLog:
    """Digests of all openings of a job, in a file.

    Args:
        path: of the file. Damaged records at its end are dropped: a power failure left them, and all before a checkpoint are
            on the disk.
        context: of the masks: in another one all of them are others.

    Raises:
        StateError: a record before others is damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, path: Path, context: bytes) -> None:
        self._context = context
        self._known: dict[bytes, bytes] = {}
        data = path.read_bytes() if path.exists() else b""
        records = list(_RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]))
        good = [check == _checksum(place, digest) for place, digest, check in records]
        count = good.index(False) if False in good else len(good)
        if any(good[count:]):
            raise StateError(
                f"record {count + 1} of {path}, which has what was opened in earlier attempts of this job, is damaged",
                code="E_STATE_CORRUPT",
                hint="submit the job again as a new one",
            )
        self._known.update((place, digest) for place, digest, _ in records[:count])
        whole = count * _RECORD.size
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._file.truncate(whole)
        self._file.seek(whole)

    def check(self, section: str, number: int, opened: Sequence[Ring]) -> None:
        """Compare a round with what it was, or write it down.

        Raises:
            StateError: another party opened something else in an earlier attempt (``E_REPLAY``).
        """
        if not self._matches(f"{section} {number}", opened):
            raise StateError(
                f"in {section} another party sends other masked values than in an earlier attempt of this job: together they "
                "would tell this party's own",
                code="E_REPLAY",
                hint="submit a new job, under new masks, if you still trust the other parties",
                for_peer="masked values differ from those of an earlier attempt",
            )

    def hold(self, section: str, corrections: Ring) -> None:
        """Compare all corrections of a section with what they were, or write them down.

        By the pace of an earlier attempt the dealer may know which sections are checked, so it must not choose again.

        Raises:
            ProtocolError: the dealer sent others in an earlier attempt (``E_DEALER``).
        """
        if not self._matches(f"{section} dealt", [corrections]):
            raise ProtocolError(
                "the coordinator deals other numbers than in an earlier attempt of this job",
                code="E_DEALER",
                hint="submit a new job, with another coordinator unless the owner of this one can explain it",
                for_peer="the coordinator deals other numbers than in an earlier attempt of this job",
            )

    def _matches(self, place: str, values: Sequence[Ring]) -> bool:
        """Whether values are what they were, or new; new ones are written down."""
        key = hashlib.sha256(self._context + f" {place}".encode()).digest()[:16]
        hashed = hashlib.sha256()
        for each in values:
            hashed.update(np.ascontiguousarray(each, "<u8").data)
        digest = hashed.digest()
        if key not in self._known:
            self._write(_RECORD.pack(key, digest, _checksum(key, digest)))
            self._known[key] = digest
        return self._known[key] == digest

    def _write(self, record: bytes) -> None:
        written = self._file.write(record)
        while written < len(record):  # what the disk has no room for raises OSError, which the node reports
            written += self._file.write(record[written:])

    def keep(self) -> None:
        """Before a checkpoint is written: when this returns, all records survive a power failure."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def _checksum(place: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(b"vfl-node openings" + place + digest).digest()[:8]
