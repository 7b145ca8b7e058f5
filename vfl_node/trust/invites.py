"""The invite that a node has open: one at a time, for some minutes and a few tries, in memory only."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vfl_node.errors import PolicyError, UsageError
from vfl_node.trust.pairing import Draw

TRIES = 5
"""How often a guest is answered before the invite ends: who guesses then has had 5 of 2⁴⁰ codes."""

MOST_MINUTES = 60

SECRET_BYTES = 5
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no letter looks like a digit."""

_HEARD = str.maketrans("OIL", "011", "- ")


@dataclass
class _Open:
    """One invite: its secret, its end (monotonic seconds) and what is left of its tries."""

    secret: bytes
    until: float
    left: int = TRIES


class Invites:
    """The open invite of one node, if there is one. Safe to use from several threads.

    Args:
        draw: gives random bytes.
        clock: monotonic seconds.
    """

    def __init__(self, draw: Draw = os.urandom, clock: Callable[[], float] = time.monotonic) -> None:
        self._draw, self._clock = draw, clock
        self._lock = threading.Lock()
        self._invite: _Open | None = None

    def open(self, minutes: float) -> str:
        """A new invite for so many ``minutes``, in the place of any earlier one; returns its code, as a person says it.

        Raises:
            UsageError: an invite does not last so long (``E_REQUEST``).
        """
        if not 0 < minutes <= MOST_MINUTES:
            raise UsageError(f"an invite lasts for at most {MOST_MINUTES} minutes, not {minutes:g}", code="E_REQUEST")
        secret = self._draw(SECRET_BYTES)
        with self._lock:
            self._invite = _Open(secret, self._clock() + 60 * minutes)
        return spell_code(secret)

    def close(self) -> None:
        """End the invite, because it was used or its owner wants that. Idempotent."""
        with self._lock:
            self._invite = None

    @property
    def left(self) -> int:
        """How many tries the open invite has left; 0 if none is open."""
        with self._lock:
            return self._current.left if self._current else 0

    def take_try(self) -> bytes:
        """Count one try, before anything is answered; returns the secret.

        Raises:
            PolicyError: no invite is open, or all its tries were taken (``E_INVITE``).
        """
        with self._lock:
            invite = self._current
            if invite is None:
                text = "no invite is open here: it was used, is too old, or was tried too often"
                raise PolicyError(text, code="E_INVITE", hint="ask its owner for a new code", for_peer=text)
            invite.left -= 1
            return invite.secret

    def use(self, secret: bytes) -> None:
        """End the invite with this ``secret``: somebody knew it.

        Raises:
            PolicyError: it has ended meanwhile (``E_INVITE``).
        """
        with self._lock:
            if self._invite is None or self._invite.secret != secret:
                text = "the invite has ended meanwhile"
                raise PolicyError(text, code="E_INVITE", hint="ask its owner for a new code", for_peer=text)
            self._invite = None

    @property
    def _current(self) -> _Open | None:
        invite = self._invite
        return invite if invite and invite.left > 0 and self._clock() < invite.until else None


def spell_code(secret: bytes) -> str:
    """A secret as its owner says it: ``7KQ4-M2XP``."""
    number = int.from_bytes(secret, "big")
    letters = "".join(ALPHABET[number >> shift & 31] for shift in range(35, -1, -5))
    return f"{letters[:4]}-{letters[4:]}"


def parse_code(said: str) -> bytes:
    """The secret that somebody heard: small letters, O for 0, I and L for 1 are the same.

    Raises:
        UsageError: it is no code (``E_INVITE``); what was typed is not repeated.
    """
    letters = said.upper().translate(_HEARD)
    if len(letters) != 8 or not set(letters) <= set(ALPHABET):
        raise UsageError(
            "this is no code of an invite", code="E_INVITE", hint="it looks like HOST:PORT/7KQ4-M2XP; letters may be small"
        )
    number = 0
    for letter in letters:
        number = number << 5 | ALPHABET.index(letter)
    return number.to_bytes(SECRET_BYTES, "big")
