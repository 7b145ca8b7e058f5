"""What it means for a job that its machine has no room, files, threads or memory left.

None of this is final. The job ends in a state from which it goes on, with the same bytes, once the owner has removed the cause;
the peers are told that this party comes back.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vfl_node.errors import GaveWay, Paused, PeerLost, StateError, VflError
from vfl_node.process.files import fault

RESUMABLE = frozenset(
    {
        "E_PEER_LOST",
        "E_PEER_ABSENT",
        "E_FENCED",
        "E_STALLED",
        "E_WORKER",
        "E_DISK_FULL",
        "E_FILES",
        "E_STATE",
        "E_STATE_LOCKED",
        "E_STATE_LOST",
        "E_THREAD",
        "E_MEMORY",
        "E_GPU_MEMORY",
        "E_QUARANTINED",
        "E_NO_PROGRESS",
        "E_DEVICE",
        "E_VERSION",
    }
)
"""Codes of errors after which a job may go on: everything it needs stays stored."""

LEAST_FREE = 1 << 17
"""Bytes without which an index of jobs cannot be opened: it and its journals, of which SQLite takes pages ahead."""

JOB_DONE = "E_JOB_DONE"
"""Code with which a peer says that the job is done there, so that all parties are known to have stored their parts."""

NOT_NOW = RESUMABLE | {Paused.default_code, GaveWay.default_code}
"""Codes with which a peer says that it takes part in a job, but cannot at the moment."""


def returns(error: VflError) -> bool:
    """Whether the party where ``error`` occurred comes back to the job, so that the others wait for it."""
    resumable = error.code in RESUMABLE and error.code != "E_VERSION"  # for which two owners must see to their nodes
    return isinstance(error, PeerLost | Paused) or resumable


def explain(error: BaseException) -> VflError:
    """``error`` as a VflError with a code; ``E_INTERNAL`` if it is a defect of this program."""
    match error:
        case VflError():
            return error
        case OSError():
            return fault(error)
        case sqlite3.Error():
            return _index_error(str(error))
        case RuntimeError() if type(error).__qualname__ == "OutOfMemoryError":  # of torch, which may not be loaded
            return _refusal("the GPU's memory is full", "E_GPU_MEMORY", "free its memory", "its memory is full")
        case MemoryError():
            return _refusal("this machine's memory is full", "E_MEMORY", "free memory", "its memory is full")
        case RuntimeError() if "start new thread" in str(error):
            raise_it = "raise the limit of threads (ulimit -u, TasksMax)"
            return _refusal("no more threads can be started", "E_THREAD", raise_it, "it has no thread to spare")
    return VflError(f"internal error: {type(error).__name__}", hint="see the node's log")


def cannot_use(folder: Path, error: OSError | sqlite3.Error) -> StateError:
    """The error of a node that cannot start, because the system refuses to read or write its state ``folder``."""
    cause = explain(error)
    if isinstance(cause, StateError) and cause.code == "E_STATE_CORRUPT":
        return cause
    code, reason = cause.code, getattr(error, "strerror", None) or str(error)
    if code == "E_STATE" and _is_full(folder):  # what SQLite maps into memory it reports as an I/O error
        code, reason = "E_DISK_FULL", "the disk is full"
    hint = "free space, or set state_dir to a folder this user can write, on a disk with room; then start the node again"
    if code == "E_STATE_LOCKED":
        hint = "end what holds jobs.sqlite open, then start the node again"
    return StateError(f"cannot use the state folder {folder}: {reason}", code=code, hint=hint)


@contextmanager
def starting(folder: Path) -> Iterator[None]:
    """Turns what the system refuses while a node starts into :func:`cannot_use`. Raises StateError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise cannot_use(folder, error) from None


@contextmanager
def explaining() -> Iterator[None]:
    """Turns errors of the system and of SQLite into a StateError that says what to do."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise explain(error) from None


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < LEAST_FREE
    except OSError:
        return False


def _index_error(text: str) -> StateError:
    """The error of a node whose index of jobs SQLite could not read or write, for SQLite's message."""
    text = text.lower()
    stuck = "it cannot store its state"
    if "full" in text:
        return _refusal(f"no room for the job index: {text}", "E_DISK_FULL", "free space", "its disk is full")
    if "locked" in text or "busy" in text:
        return _refusal(f"the job index is locked: {text}", "E_STATE_LOCKED", "end what holds jobs.sqlite open", stuck)
    if "malformed" in text or "not a database" in text:
        hint = "stop the node, and restore jobs.sqlite from a backup or move it away to begin with an empty index"
        return StateError(f"the job index is damaged: {text}", code="E_STATE_CORRUPT", hint=hint, for_peer=stuck)
    return _refusal(f"the job index cannot be read or written: {text}", "E_STATE", "see to the disk of state_dir", stuck)


def _refusal(what: str, code: str, remedy: str, for_peer: str) -> StateError:
    return StateError(what, code=code, hint=f"{remedy}, then go on: vfl-node resume JOB", for_peer=for_peer)
