"""Tokens that a node's owner gives to people and programs: made once, kept as SHA-256, ended by date or at a word.

They stand in ``state/tokens``, a checked file. Whoever changes it holds ``state/tokens.lock``; whoever reads it sees by the
file's time and number that it has changed. So a token that the command line revokes is refused by a running node at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vfl_node.errors import StateError, UsageError
from vfl_node.job import Name
from vfl_node.process.files import fault, read_checked, write_checked, write_whole
from vfl_node.trust.people import OWNER, PERSON_ROLES, Person, PersonRole

PREFIX = "vfl_"
"""Each token begins with it, so that tools which look for secrets in files find one."""

MOST_DAYS = 365
MOST_TOKENS = 100
DAY_S = 86400

_HINT = "restore it from a backup, or remove it: then give people new tokens"


@dataclass(frozen=True)
class Token:
    """What is kept of one.

    Attributes:
        name: of the person.
        roles: of the person.
        sha256: of the token, in hexadecimal.
        created: when it was made, in seconds since the epoch.
        expires: from when on it is refused.
        used: the day when it was last used, ``YYYY-MM-DD``; empty: never.
    """

    name: str
    roles: tuple[PersonRole, ...]
    sha256: str = field(repr=False)
    created: float
    expires: float
    used: str = ""

    @property
    def person(self) -> Person:
        """Whose it is."""
        return Person(self.name, frozenset(self.roles), self.sha256[:16])

    def describe(self) -> dict[str, Any]:
        """What its owner may see of it: name, roles, created, expires and used."""
        times = {"created": _iso(self.created), "expires": _iso(self.expires)}
        return {"name": self.name, "roles": list(self.roles), **times, "used": self.used or None}


class Tokens:
    """The tokens of one node; safe to use from several threads and processes.

    Args:
        state_dir: of the node.
        clock: seconds since the epoch.

    Raises:
        StateError: what is kept is damaged (``E_STATE_CORRUPT``), or cannot be read.
    """

    def __init__(self, state_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = state_dir / "tokens", clock
        self._lock = threading.RLock()
        self._seen: tuple[int, ...] = ()
        self._damage: StateError | None = None
        self._tokens: dict[str, Token] = {}
        self._noted: set[tuple[str, str]] = set()  # token and day whose use was written, or could not be
        self._load()

    def create(self, name: str, roles: Collection[str], days: int) -> str:
        """A new token, which nothing shows again.

        Args:
            name: of the person or program.
            roles: of it.
            days: for how many it holds, 1 to 365.

        Raises:
            UsageError: an argument cannot be used; or this person has a token that still holds (``E_EXISTS``).
            StateError: it cannot be written.
        """
        wanted = _check(name, roles, days)
        token = PREFIX + secrets.token_urlsafe(32)
        with self._editing() as tokens:
            now = self._clock()
            if name in tokens and now < tokens[name].expires:
                hint = f"revoke it first, vfl-node token revoke {name}, or choose another name"
                raise UsageError(f"{name} has a token already", code="E_EXISTS", hint=hint)
            for old in [old.name for old in tokens.values() if old.expires <= now]:
                del tokens[old]
            if len(tokens) >= MOST_TOKENS:
                raise UsageError(f"there are {MOST_TOKENS} tokens already", hint="revoke some: vfl-node token list")
            tokens[name] = Token(name, wanted, _digest(token), now, now + days * DAY_S)
        return token

    def revoke(self, name: str) -> None:
        """End a token at once.

        Raises:
            UsageError: nobody of this name has one (``E_UNKNOWN_PERSON``).
            StateError: it cannot be written.
        """
        with self._editing() as tokens:
            if tokens.pop(name, None) is None:
                hint = "vfl-node token list names them"
                raise UsageError(f"nobody here is called {name!r}", code="E_UNKNOWN_PERSON", hint=hint)

    def tokens(self) -> list[dict[str, Any]]:
        """What may be seen of each (:meth:`Token.describe`), by name. Raises StateError."""
        with self._lock:
            self._load()
            return [self._tokens[name].describe() for name in sorted(self._tokens)]

    def find(self, token: str) -> Person | None:
        """Whose token this is; None if it is nobody's, revoked or too old. Each is compared, in constant time."""
        digest = _digest(token)
        right = [kept for kept in self._valid().values() if hmac.compare_digest(kept.sha256, digest)]
        if not right:
            return None
        self._note_use(right[0])
        return right[0].person

    def get(self, name: str) -> Person | None:
        """The person of this name; None if there is none with a token that holds."""
        found = self._valid().get(name)
        return found.person if found else None

    def _valid(self) -> dict[str, Token]:
        """Those that hold; none where what is kept cannot be read."""
        with self._lock:
            try:
                self._load()
            except StateError as error:
                if self._tokens:
                    import structlog  # not loaded by commands, which read this, too

                    structlog.get_logger().error("no token is accepted any more", code=error.code, reason=error.message)
                self._tokens = {}
            now = self._clock()
            return {name: token for name, token in self._tokens.items() if now < token.expires}

    def _note_use(self, token: Token) -> None:
        """Write that a token was used today, if that does not stand there yet."""
        today = datetime.fromtimestamp(self._clock(), timezone.utc).date().isoformat()
        with self._lock:
            if token.used == today or (token.sha256, today) in self._noted:
                return
            self._noted = {(digest, day) for digest, day in self._noted if day == today} | {(token.sha256, today)}
            with suppress(StateError), self._editing() as tokens:  # who asks is answered all the same
                if token.name in tokens and tokens[token.name].sha256 == token.sha256:
                    tokens[token.name] = replace(token, used=today)

    @contextmanager
    def _editing(self) -> Iterator[dict[str, Token]]:
        """The tokens, to be changed; written when the context ends without an error. Raises StateError."""
        with self._lock:
            try:
                lock = os.open(self._path.with_name("tokens.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise fault(error) from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._load()
                tokens = dict(self._tokens)
                yield tokens
                write_checked(self._path, json.dumps([asdict(token) for token in tokens.values()]).encode())
                self._load()
            except OSError as error:
                raise fault(error) from None
            finally:
                os.close(lock)

    def _load(self) -> None:
        """Read the file if it has changed. Raises StateError."""
        with self._lock:
            try:
                about = self._path.stat()
                seen = (about.st_mtime_ns, about.st_ino, about.st_size)
                if seen != self._seen:
                    self._seen, self._damage = seen, None
                    kept = _parse(read_checked(self._path, hint=_HINT))
                    self._tokens = {token.name: token for token in kept}
            except FileNotFoundError:
                self._seen, self._damage, self._tokens = (), None, {}
            except OSError as error:
                self._seen = ()
                raise fault(error) from None
            except StateError as error:
                self._damage = error
            if self._damage:
                raise self._damage


def _parse(data: bytes) -> list[Token]:
    """The tokens of the file. Raises StateError (``E_STATE_VERSION``) where another release wrote it."""
    try:
        return [Token(**{**fields, "roles": tuple(fields["roles"])}) for fields in json.loads(data)]
    except (ValueError, TypeError, KeyError):
        text = "another release wrote state/tokens"
        raise StateError(text, code="E_STATE_VERSION", hint=f"start the node with that release, or {_HINT}") from None


def _check(name: str, roles: Collection[str], days: int) -> tuple[PersonRole, ...]:
    """The roles, in their order. Raises UsageError."""
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        raise UsageError(f"{name!r} is no name", hint="small letters, digits and hyphens, such as anna") from None
    if name == OWNER:
        raise UsageError(f"{OWNER} is who has the node's own token", hint="choose another name")
    if unknown := set(roles).difference(PERSON_ROLES):
        raise UsageError(f"{min(unknown)!r} is no role", hint=f"choose from {', '.join(PERSON_ROLES)}")
    if not roles:
        raise UsageError("no role is named", hint=f"choose from {', '.join(PERSON_ROLES)}")
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"{days} days are not from 1 to {MOST_DAYS}", hint="make a new token when this one ends")
    return tuple(role for role in PERSON_ROLES if role in roles)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def node_token(folder: Path) -> str:
    """The secret of a node's own programs, from its file in the state ``folder``; drawn if the file is missing or empty."""
    path = folder / "token"
    if not (path.exists() and path.read_text().strip()):
        write_whole(path, secrets.token_urlsafe(24).encode())
    return path.read_text().strip()  # an editor, or echo, ends its last line
