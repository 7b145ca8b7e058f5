"""Who did what at a node's HTTP port: a file of JSON lines, each with the digest of the one before.

A line that is changed, taken out or put in anywhere but at the end no longer fits those around it (:func:`verify_log`).
Whoever may write the file can rewrite all of it from some line on, or cut its end. Against that an owner keeps the last digest
elsewhere.

The file is ``state/audit.log`` (0600). When it is large it becomes ``audit-N.log`` with the number of its last line, and the
next file carries the chain on. Nothing is removed. Processes that append hold ``state/audit.lock``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from vfl_node.errors import peer_text
from vfl_node.process.files import append_durably, cut_torn_line, make_names_durable

FILE = "audit.log"
MOST_BYTES = 8 << 20
"""Size from which on the next line begins another file."""

REFUSALS_S = 1.0
"""How often a line about refusals is written, for each person and for all strangers together: they must not fill the disk."""

BEGIN = "0" * 64
"""What the first line of all has for the digest of the one before."""

_MOST_TEXT = 200
_TAIL_BYTES = 64 << 10  # more than any line has
_LAST_BYTES = 4 << 10  # as many as the last line mostly has, or more


@dataclass(frozen=True)
class Deed:
    """What somebody did, or tried.

    Attributes:
        person: who; empty: nobody knows.
        how: by what that is known: socket, token, cookie, or files for a command while the node is stopped.
        address: from where, if over the port.
        method: of HTTP.
        route: pattern of the path.
        object: id of the job, or name of the peer or person.
        result: status of the answer.
    """

    person: str
    how: str
    address: str
    method: str
    route: str
    object: str
    result: int

    @property
    def refused(self) -> bool:
        """Whether it was refused, or somebody without credentials failed."""
        return self.result in (401, 403) or (not self.person and self.result >= 400)


@dataclass
class _Line:
    """What is to be written, and whether that was done, or tried."""

    content: dict[str, Any]
    over: bool = False


class AuditLog:
    """The log of one node; safe to use from several threads and processes.

    Args:
        state_dir: of the node.
        clock: seconds since the epoch.
    """

    def __init__(self, state_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = state_dir, clock
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._last = (0, BEGIN)  # number and digest of the newest line that this process knows
        self._counts: dict[str, int] = {}  # person → refusals that are not written yet
        self._refused: dict[str, Deed] = {}  # person → the newest of them
        self._due: dict[str, float] = {}  # person → when the next line may be written
        self._timer: threading.Timer | None = None
        self._waiting: deque[_Line] = deque()

    def add(self, deed: Deed) -> None:
        """Append a line, at once. Refusals are counted instead, where one was written shortly before. Never raises."""
        self.add_all([deed])

    def add_all(self, deeds: Sequence[Deed]) -> Sequence[None]:
        """The same of several; those that were not refused come first, and wait for the disk once. Returns None for each."""
        if done := [vars(deed) for deed in deeds if not deed.refused]:
            self._append(done)
        for deed in deeds:
            if deed.refused:
                self._refuse(deed)
        return [None] * len(deeds)

    def _refuse(self, deed: Deed) -> None:
        with self._counting:
            self._counts[deed.person] = self._counts.get(deed.person, 0) + 1
            self._refused[deed.person] = deed
            if (wait := self._due.get(deed.person, 0.0) - time.monotonic()) > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self.flush)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self.flush()

    def flush(self) -> None:
        """Write the refusals that are only counted so far. Never raises."""
        with self._counting:
            now = time.monotonic()
            refused, counts, self._timer = self._refused, self._counts, None
            self._refused, self._counts = {}, {}
            self._due = {person: due for person, due in self._due.items() if due > now} | dict.fromkeys(
                refused, now + REFUSALS_S
            )
        for person, deed in refused.items():
            self._append([vars(deed) | {"count": counts[person]}])

    def newest(self, size: int, before: int | None = None) -> list[dict[str, Any]]:
        """The last ``size`` lines, or the last before the one of this number, newest first; unreadable ones are left out.

        Raises:
            OSError: a file cannot be read.
        """
        found: list[dict[str, Any]] = []
        with locked(self._folder):
            for path in reversed(list_files(self._folder)):
                for line in reversed(path.read_bytes().splitlines()):
                    if len(found) == size:
                        return found
                    entry = _parse(line)
                    if entry and (before is None or entry["n"] < before):
                        found.append(entry)
        return found

    def _append(self, contents: Sequence[dict[str, Any]]) -> None:
        """Append lines; who comes first writes for all who wait for their turn, so that they wait for the disk once."""
        waiting = [_Line(content) for content in contents]
        self._waiting.extend(waiting)
        with self._lock:
            if all(line.over for line in waiting):
                return
            together = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                with locked(self._folder):
                    self._write([line.content for line in together])
            except OSError as error:
                import structlog  # not loaded by commands, which read this, too

                for line in together:
                    structlog.get_logger().error("the audit log cannot be written", reason=str(error), **line.content)
            finally:
                for line in together:
                    line.over = True

    def _write(self, contents: Sequence[dict[str, Any]]) -> None:
        """Append lines, and one before them if something is wrong with the end of the file. Raises OSError."""
        path = self._folder / FILE
        new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            cut = cut_torn_line(descriptor)
            number, digest = (
                _end_of(_tail(descriptor, _LAST_BYTES)) or _end_of(_tail(descriptor, _TAIL_BYTES)) or self._earlier()
            )
            lost = self._last[0] > number or (self._last[0] == number and self._last[1] != digest)
            if lost:  # what this process wrote is not there any more: the gap stays to be seen
                number, digest = self._last
            if os.fstat(descriptor).st_size >= MOST_BYTES:
                path.rename(path.with_name(f"audit-{number:010d}.log"))
                full, new = descriptor, True
                descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
                os.close(full)
            notes = [f"a torn line of {cut} bytes was cut"] if cut else []
            notes += ["lines before this one are not those that were written"] if lost else []
            text = b""
            for entry in (*({"note": note} for note in notes), *contents):
                number += 1
                line, digest = _make_line(number, digest, datetime.fromtimestamp(self._clock(), timezone.utc), entry)
                text += line
            append_durably(descriptor, text)
            self._last = (number, digest)
        finally:
            os.close(descriptor)
        if new:
            make_names_durable(self._folder)

    def _earlier(self) -> tuple[int, str]:
        """Number and digest of the last line of the file before."""
        for path in reversed(list_files(self._folder)):
            if found := _end_of(path.read_bytes()[-_TAIL_BYTES:]):
                return found
        return self._last


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A context in which no other process appends. Raises OSError."""
    lock = os.open(folder / "audit.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def list_files(folder: Path) -> list[Path]:
    """The files of the log, oldest first."""
    current = folder / FILE
    return [*sorted(folder.glob("audit-*.log")), *([current] if current.exists() else [])]


@dataclass(frozen=True)
class LogVerdict:
    """What a look at the whole log has found.

    Attributes:
        lines: how many there are.
        first: number of the first one; more than 1 where earlier files were moved away.
        last: number of the last one.
        digest: of the last one; to be kept elsewhere.
        faults: what does not fit, each with its file and line.
    """

    lines: int
    first: int
    last: int
    digest: str
    faults: tuple[str, ...]


def verify_log(folder: Path) -> LogVerdict:
    """Whether each line is as it was written, and follows on the one before. Raises OSError."""
    faults: list[str] = []
    lines, first, number, digest = 0, 0, 0, BEGIN
    with locked(folder):
        for path in list_files(folder):
            text = path.read_bytes()
            for place, line in enumerate(text.splitlines(keepends=True), 1):
                lines += 1
                where, entry = f"{path.name}, line {place}", _parse(line.rstrip(b"\n"))
                if entry is None or not line.endswith(b"\n") or line != _canonical(entry) or _digest(entry) != entry["sha256"]:
                    faults.append(f"{where}: it is not what was written")
                    number, digest = number + 1, entry["sha256"] if entry else ""
                    continue
                if not first:
                    first = entry["n"]
                    fits = first > 1 or entry["before"] == BEGIN
                else:
                    fits = entry["n"] == number + 1 and digest in ("", entry["before"])
                if not fits:
                    faults.append(f"{where}: it does not follow on the line before, number {number}")
                number, digest = entry["n"], entry["sha256"]
    return LogVerdict(lines, first, number, digest, tuple(faults))


def _make_line(number: int, before: str, at: datetime, content: dict[str, Any]) -> tuple[bytes, str]:
    """A line, and its digest."""
    shown = {key: peer_text(value, _MOST_TEXT) if isinstance(value, str) else value for key, value in content.items()}
    entry: dict[str, Any] = {"n": number, "at": at.isoformat(timespec="milliseconds"), **shown, "before": before}
    entry["sha256"] = _digest(entry)
    return _canonical(entry), entry["sha256"]


def _canonical(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _digest(entry: dict[str, Any]) -> str:
    """The digest of a line, which covers the digest of the line before."""
    return hashlib.sha256(_canonical({key: value for key, value in entry.items() if key != "sha256"})).hexdigest()


def _parse(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it is none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(entry, dict) and type(entry.get("n")) is int
    return entry if whole and isinstance(entry.get("sha256"), str) and isinstance(entry.get("before"), str) else None


def _end_of(text: bytes) -> tuple[int, str] | None:
    """Number and digest of the last line that can be read; None if there is none."""
    for line in reversed(text.splitlines()):
        if entry := _parse(line):
            return entry["n"], entry["sha256"]
    return None


def _tail(descriptor: int, most: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, most, max(0, size - most))
