"""Files that survive a crash, whole or not at all, that only their user reads, and what a node keeps under a checksum.

A checked file is 4 bytes that say so, a version (2 bytes, big-endian), the SHA-256 of everything else, and the data. A disk
that returns other bytes than were written, a file cut short or one put in the place of another kind never passes for
what was kept.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vfl_node.errors import StateError, UsageError
from vfl_node.process import failpoints

_MAGIC = b"VFLc"
_HEAD_BYTES = 4 + 2 + 32
_TAIL_BYTES = 64 << 10
_FULL = (errno.ENOSPC, errno.EDQUOT)

VERSION = 1
"""Version of checked files; raised when what they hold can no longer be read by earlier releases."""


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, as :func:`writing_whole`."""
    try:
        with writing_whole(path) as file:
            file.write(data)
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(error.errno, f"{error.strerror}, {len(data)} bytes are needed", str(path)) from None
        raise


@contextmanager
def writing_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name (0600), make it durable, then rename it to ``path``; a failure leaves neither.

    A symbolic link under either name is replaced, never followed.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        failpoints.reach("write")
        temporary.unlink(missing_ok=True)  # of a process that was killed, or planted
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        failpoints.reach("rename")
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    make_names_durable(path.parent)


def fault(error: OSError) -> StateError:
    """What it means that the system refused to read or write: an error after which a job may go on once that is mended."""
    where = f" at {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        return StateError(
            f"the disk is full{where}: {error.strerror}",
            code="E_DISK_FULL",
            hint="free space, then go on: vfl-node resume JOB",
            for_peer="its disk is full",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StateError(
            f"too many files are open{where}: {error.strerror}",
            code="E_FILES",
            hint="raise the limit (ulimit -n, LimitNOFILE), then go on: vfl-node resume JOB",
            for_peer="it has too many files open",
        )
    return StateError(
        f"cannot read or write{where}: {error.strerror or error}",
        hint="see to the disk of state_dir, then go on: vfl-node resume JOB",
        for_peer="it cannot store its state",
    )


def write_checked(path: Path, data: bytes) -> None:
    """As :func:`write_whole`, with a head by which :func:`read_checked` knows that ``data`` are what was written."""
    write_whole(path, add_head(data))


def read_checked(path: Path, *, hint: str = "restore it from a backup") -> bytes:
    """The data that :func:`write_checked` kept at ``path``.

    Args:
        path: of the file.
        hint: for its owner, where the file cannot be used.

    Raises:
        FileNotFoundError: there is none.
        StateError: other bytes than were written (``E_STATE_CORRUPT``), or a newer release wrote them (``E_STATE_VERSION``).
    """
    return verify(path.read_bytes(), str(path), hint=hint)


def holds_checked(path: Path) -> bool:
    """Whether the file at ``path`` says that :func:`write_checked` wrote it; whether it is whole is another question."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def version_of(path: Path) -> int | None:
    """The version of the checked file at ``path``, as it says, whether or not it is whole; None if it is no such file."""
    with path.open("rb") as file:
        head = file.read(len(_MAGIC) + 2)
    return int.from_bytes(head[len(_MAGIC) :], "big") if head.startswith(_MAGIC) else None


def add_head(data: bytes) -> bytes:
    """``data`` behind its head."""
    version = VERSION.to_bytes(2, "big")
    return _MAGIC + version + _digest(version, data) + data


def verify(file: bytes, name: str, *, hint: str) -> bytes:
    """What :func:`add_head` made ``file`` of; args as :func:`read_checked`, ``name`` for its errors. Raises StateError."""
    head, data = file[:_HEAD_BYTES], file[_HEAD_BYTES:]
    version = head[4:6]
    if head[:4] != _MAGIC or head[6:] != _digest(version, data):
        raise StateError(
            f"{name} is damaged: it is not what was written there",
            code="E_STATE_CORRUPT",
            hint=hint,
            for_peer="what it stored is damaged",
        )
    if int.from_bytes(version, "big") > VERSION:
        raise StateError(
            f"{name} was written by a newer vfl-node (version {int.from_bytes(version, 'big')} of its files, this one reads "
            f"{VERSION})",
            code="E_STATE_VERSION",
            hint="start the newer release again",
            for_peer="what it stored is of a newer release",
        )
    return data


def private_folder(path: Path) -> None:
    """Make ``path`` and what is missing above it, for this user only (0700).

    Raises:
        OSError: it is there already and is no folder, is a symbolic link, or belongs to another user.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(opened)
    finally:
        os.close(opened)
    if about.st_uid not in (os.geteuid(), 0) or (about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX):
        raise PermissionError(errno.EACCES, "the folder is another user's, or everybody may write there", str(path))


def private_file(path: Path) -> None:
    """Make ``path``, if it is not there, and see that only this user reads it (0600). Raises OSError for a symbolic link."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(opened, 0o600)
    finally:
        os.close(opened)


def give_to_owner_of(other: Path, path: Path) -> None:
    """Where root works on the node of another user: give ``path`` the owner and the group of ``other``. Raises OSError."""
    about = other.stat()
    if about.st_uid != os.geteuid():
        os.chown(path, about.st_uid, about.st_gid, follow_symlinks=False)


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """A context in which no other process or thread holds the folder ``path`` so. Raises OSError."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Another name of ``path``, while the context lasts, that fits the 108 bytes of a Unix socket's address."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def temporary_place() -> Path:
    """The folder for files that need not stay: that of ``TMPDIR``, ``/tmp``, or what the system has in its place.

    Raises:
        UsageError: none of them can be written (``E_FILE``).
    """
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise _no_scratch(error) from None


def scratch_folder(prefix: str) -> Path:
    """A new folder there for this user only (0700), which its caller removes. Raises as :func:`temporary_place`."""
    place = temporary_place()
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    except OSError as error:
        raise _no_scratch(error) from None


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """As :func:`scratch_folder`, while the context lasts."""
    folder = scratch_folder(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _no_scratch(error: OSError) -> UsageError:
    return UsageError(
        f"there is no folder for temporary files that can be written: {error.strerror}",
        code="E_FILE",
        hint="set TMPDIR to a folder that this user can write, on a disk with room",
    )


def remove(path: Path) -> None:
    """Remove ``path``, if it is there; when this returns it stays removed."""
    path.unlink(missing_ok=True)
    make_names_durable(path.parent)


def cut_torn_line(descriptor: int) -> int:
    """Remove what follows the last end of a line, which a crash has left; how many bytes that was. Raises OSError."""
    size = os.fstat(descriptor).st_size
    end = size
    while end:
        start = max(0, end - _TAIL_BYTES)
        if (found := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
    return size - end


def append_durably(descriptor: int, data: bytes) -> None:
    """Append ``data`` and wait for the disk. Raises OSError, and then leaves nothing of it."""
    size = os.fstat(descriptor).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _digest(version: bytes, data: bytes) -> bytes:
    hashed = hashlib.sha256(_MAGIC + version)
    hashed.update(data)
    return hashed.digest()


def make_names_durable(folder: Path) -> None:
    """Wait until the disk has the names of the files in ``folder``. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
