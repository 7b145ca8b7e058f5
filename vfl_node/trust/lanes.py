"""A lane: all that a node counts and agrees with one partner, entry by entry, in a file to which it only appends.

An entry is a line of JSON ``{"e": entry, "l": link, "s": signature}``::

    commit n  =  SHA-256("vfl-entry-1|" ‖ salt ‖ entry n)            entry: JSON, keys sorted, no spaces
    link n    =  SHA-256("vfl-link-1|" ‖ link n-1 ‖ commit n)        link 0: 32 zero bytes
    signature =  Ed25519 over :func:`entry_text`                     empty where the node has no signing key

So the last link stands for the whole lane: who holds it sees whether an entry was changed, taken out or put in. A partner gets
links and commits, never entries. The salt keeps it from guessing an entry by its commit.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from vfl_node.errors import StateError
from vfl_node.process import failpoints
from vfl_node.process.files import append_durably, cut_torn_line, make_names_durable
from vfl_node.process.machine import utc_now
from vfl_node.trust.cards import Card

log = structlog.get_logger()

FILE = "ledger.log"
"""Name of a lane in the folder of its partner."""

NO_LINK = bytes(32)
"""The link before the first entry."""

KEY = "key"
"""Kind of the entry that says with which key this and all later entries are signed."""


class Signing(Protocol):
    """With which key a node signs, and whose signatures it can verify."""

    @property
    def name(self) -> str:
        """The name of this party."""

    @property
    def key(self) -> Ed25519PrivateKey | None:
        """The key with which this node signs; None if it signs nothing."""

    def card(self, name: str) -> Card | None:
        """The card of a party; None where there is none here."""


@dataclass(frozen=True)
class Unsigned:
    """A node that signs nothing, as in a trial.

    Attributes:
        name: of this party.
    """

    name: str = ""

    @property
    def key(self) -> Ed25519PrivateKey | None:
        """None."""
        return None

    def card(self, name: str) -> Card | None:
        """None."""


@dataclass(frozen=True)
class LaneEntry:
    """One entry of a lane.

    Attributes:
        number: from 1.
        kind: what it is.
        at: when it was written, UTC.
        body: what it says.
        commit: stands for it towards the partner.
        link: stands for it and all before it.
        signature: of the node over :func:`entry_text`; empty if it has not signed.
    """

    number: int
    kind: str
    at: str
    body: Mapping[str, Any]
    commit: bytes
    link: bytes
    signature: bytes


class Lane:
    """The lane of one partner; safe to use from several threads, and beside commands in other processes.

    Attributes:
        path: of the file; it and its folder need not be there.
        peer: the partner.
        signing: of this node.
        lock: held by the thread that looks or appends.
    """

    def __init__(self, path: Path, peer: str, signing: Signing | None = None) -> None:
        self.path, self.peer, self.signing = path, peer, signing or Unsigned()
        self.lock = threading.RLock()
        self._descriptor: int | None = None  # while this process alone may append
        self._entries: list[LaneEntry] = []
        self._kinds: dict[str, list[LaneEntry]] = {}
        self._read: tuple[int, int, int] = (0, 0, 0)  # inode, size and time of change of what was read
        self._newest: LaneEntry | None = None  # that this object has seen

    @property
    def entries(self) -> list[LaneEntry]:
        """All entries, oldest first. Cost: nothing if the file has not changed, else about 30 µs for each new entry.

        Raises:
            StateError: the file is not what was written, or gone since it was read (``E_STATE_CORRUPT``).
        """
        with self.lock:
            try:
                data = self._read_news()
            except FileNotFoundError:
                if self._newest:
                    raise self._damage("is gone") from None
                return []
            for line in data.splitlines(keepends=True):
                self._entries.append(entry := self._parse(line))
                self._kinds.setdefault(entry.kind, []).append(entry)
            if (newest := self._newest) and (
                len(self._entries) < newest.number or self._entries[newest.number - 1].link != newest.link
            ):
                raise self._damage(f"has lost entry {newest.number}, which this process has seen")
            self._newest = self._entries[-1] if self._entries else None
            return self._entries

    def list(self, kind: str) -> Sequence[LaneEntry]:
        """Those of one kind, oldest first. Raises as :attr:`entries`."""
        with self.lock:
            _ = self.entries
            return tuple(self._kinds.get(kind, ()))

    def find_link(self, number: int) -> bytes | None:
        """The link of an entry; of 0 that before the first; None if there is no such entry. Raises as :attr:`entries`."""
        entries = self.entries
        return NO_LINK if number == 0 else entries[number - 1].link if number <= len(entries) else None

    def append(self, kind: str, body: Mapping[str, Any]) -> LaneEntry:
        """Write an entry; it is on the disk when this returns. Cost: about 1 ms.

        Raises:
            OSError: it cannot be written; then nothing of it stays.
            StateError: as :attr:`entries`.
        """
        failpoints.reach("lane")
        with self.lock, self._opened() as descriptor:
            new = not os.fstat(descriptor).st_size
            if torn := cut_torn_line(descriptor):
                log.warning("an entry of the ledger that a crash had cut was removed", peer=self.peer, bytes=torn)
            key = self.signing.key
            if key and kind != KEY and (public := public_text(key.public_key())) != self._public:
                self._write(descriptor, KEY, {"key": public}, key)
            written = self._write(descriptor, kind, body, key)
            if new:
                make_names_durable(self.path.parent)
        failpoints.reach("laned")
        return written

    def note_key(self) -> None:
        """Write down with which key entries are signed from now on, if that has changed. Raises as :meth:`append`."""
        key = self.signing.key
        if self.entries and key and public_text(key.public_key()) != self._public:
            self.append(KEY, {"key": public_text(key.public_key())})

    def append_once(self, kind: str, job_id: str, body: Mapping[str, Any]) -> None:
        """Write an entry about a job, unless there is one of this kind about it. Raises as :meth:`append`."""
        with self.held():
            if all(entry.body.get("job") != job_id for entry in self.list(kind)):
                self.append(kind, {"job": job_id, **body})

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which nobody else appends, no thread and no command: to look and then append. Raises OSError."""
        with self.lock, self._opened():
            yield

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, to which no other process appends while the context lasts; contexts of one thread nest."""
        if self._descriptor is not None:
            yield self._descriptor
            return
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            yield self._descriptor
        finally:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _public(self) -> str | None:
        """The key that signs entries since the newest entry about one."""
        keys = self.list(KEY)
        return keys[-1].body["key"] if keys else None

    def _write(self, descriptor: int, kind: str, body: Mapping[str, Any], key: Ed25519PrivateKey | None) -> LaneEntry:
        entries = self.entries
        number, before = len(entries) + 1, entries[-1].link if entries else NO_LINK
        entry = {"n": number, "kind": kind, "at": utc_now(), "salt": secrets.token_hex(16), "body": dict(body)}
        link = chain(before, _commit(entry))
        signature = key.sign(entry_text(self.signing.name, self.peer, number, link)) if key else b""
        append_durably(descriptor, _line(entry, link, signature))
        return self.entries[-1]

    def _read_news(self) -> bytes:
        """Whole lines that were appended since the last look; all of them if anything else has changed."""
        with self.path.open("rb") as file:
            about = os.fstat(file.fileno())
            now = (about.st_ino, about.st_size, about.st_mtime_ns)
            if now == self._read:
                return b""
            inode, size, _ = self._read
            if inode != about.st_ino or size >= about.st_size:
                self._entries, self._kinds, size = [], {}, 0
            file.seek(size)
            data = file.read(about.st_size - size)
        whole = data.rfind(b"\n") + 1
        self._read = (about.st_ino, size + whole, about.st_mtime_ns)
        return data[:whole]

    def _parse(self, line: bytes) -> LaneEntry:
        number, before = len(self._entries) + 1, self._entries[-1].link if self._entries else NO_LINK
        entry = parse_line(line, number, before)
        if entry is None:
            self._entries, self._kinds, self._read = [], {}, (0, 0, 0)
            raise self._damage(f"is not what was written, from line {number} on")
        return entry

    def _damage(self, what: str) -> StateError:
        return StateError(
            f"the ledger with {self.peer}, {self.path}, {what}",
            code="E_STATE_CORRUPT",
            hint=f"stop this node, put the newest copy of {self.path.parent} back, and start it; vfl-node ledger --verify "
            "names entries that were changed",
            for_peer="what it stored is damaged",
        )


def entry_text(own: str, peer: str, number: int, link: bytes) -> bytes:
    """What a node signs of an entry, and so of all before it."""
    return f"vfl-node ledger of {own} about {peer}: entry {number} is {link.hex()}\n".encode()


def seen_text(own: str, peer: str, number: int, link: bytes) -> bytes:
    """What ``peer`` signs of the ledger of ``own`` about it, which it has seen as far as this entry."""
    return f"vfl-node ledger of {own} about {peer}: {peer} has seen entry {number}, {link.hex()}\n".encode()


def public_text(key: Ed25519PublicKey) -> str:
    """A public key as an entry, and a card, has it: base64 of its 32 bytes."""
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def key_from_text(text: object) -> Ed25519PublicKey | None:
    """What :func:`public_text` made ``text`` of; None if it is no key."""
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(str(text), validate=True))
    except ValueError:
        return None


def chain(before: bytes, commit: bytes) -> bytes:
    """The link of an entry behind the link ``before``."""
    return hashlib.sha256(b"vfl-link-1|" + before + commit).digest()


def parse_line(line: bytes, number: int, before: bytes) -> LaneEntry | None:
    """The entry on a line, the ``number``-th, behind the link ``before``; None if it is not what was written there."""
    try:
        read = json.loads(line)
        entry, link, signature = read["e"], bytes.fromhex(read["l"]), base64.b64decode(read["s"], validate=True)
        commit = _commit(entry)
        whole = _line(entry, link, signature) == line and entry["n"] == number and chain(before, commit) == link
        whole = whole and isinstance(entry["body"], dict) and isinstance(entry["kind"], str) and isinstance(entry["at"], str)
        return LaneEntry(number, entry["kind"], entry["at"], entry["body"], commit, link, signature) if whole else None
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return None


def _line(entry: Mapping[str, Any], link: bytes, signature: bytes) -> bytes:
    return _canonical({"e": entry, "l": link.hex(), "s": base64.b64encode(signature).decode()}) + b"\n"


def _commit(entry: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(b"vfl-entry-1|" + bytes.fromhex(entry["salt"]) + _canonical(entry)).digest()


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
