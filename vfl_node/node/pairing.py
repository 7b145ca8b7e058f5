"""Pairing at a node: its owner invites, or joins by a code that another owner has told him."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from vfl_node.errors import PolicyError, UsageError, VflError
from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.guests import GuestCall
from vfl_node.trust.invites import Invites, parse_code
from vfl_node.trust.keys import own_card
from vfl_node.trust.pairing import Inviter, Joiner, OwnSide
from vfl_node.trust.pending import Pending, check_new, keep

log = structlog.get_logger()

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}")

ANYWHERE = ("0.0.0.0", "[::]", "::", "")  # noqa: S104 - compared, not bound
"""Hosts at which a node listens that name no machine."""


class Pairing:
    """A running node as guests meet it (:class:`vfl_node.transport.guests.Guests`). Safe to use from several threads.

    Args:
        settings: of this node.
        credentials: its TLS material; None in plaintext, where nobody pairs.
        invites: of this node.
    """

    def __init__(self, settings: Settings, credentials: Credentials | None, invites: Invites | None = None) -> None:
        self._settings, self._credentials = settings, credentials
        self._invites = invites or Invites()
        self._address: str | None = None
        self._met = self._only = ""
        self._lock = threading.Lock()  # held while an invite ends by being used, so that nobody sees half of it

    @property
    def open(self) -> bool:
        """Whether an invite is open."""
        return self._invites.left > 0

    def invite(self, minutes: float, address: str = "", *, only: str = "", bound: str = "") -> dict[str, Any]:
        """Open an invite, in the place of an earlier one.

        Args:
            minutes: how long it lasts.
            address: where others reach this node; by default where it listens.
            only: the one party that may join; empty: any one.
            bound: where it listens, with the port that the system chose.

        Returns:
            ``address`` and ``code``.

        Raises:
            UsageError: this node does not listen, or does not pair (``E_CONFIG``).
            PolicyError: the one party that may join is a peer already (``E_EXISTS``).
        """
        if self._settings.listen is None:
            raise UsageError(
                "this node does not listen, so nobody can join it",
                code="E_CONFIG",
                hint="let the other side invite, or set listen",
            )
        if self._credentials is None:
            raise UsageError("in plaintext nobody pairs", code="E_CONFIG", hint="vfl-node init makes keys and settings")
        own_card(self._credentials.current())
        if only:
            check_new(self._settings, only)
        with self._lock:
            self._only = only
            self._met, self._address = "", address or _reachable(bound or self._settings.listen)
            return {"address": self._address, "code": self._invites.open(minutes)}

    def status(self) -> dict[str, Any]:
        """``left``: tries of the open invite, 0 if none is open; ``met``: who has joined by the latest one, or empty."""
        with self._lock:
            return {"left": self._invites.left, "met": self._met}

    def close(self) -> None:
        """End the invite. Idempotent."""
        self._invites.close()

    def answer(self, messages: Iterator[PairMessage], caller: str) -> Iterator[PairMessage]:
        """As :meth:`vfl_node.transport.guests.Guests.answer`: one try, counted before it is answered."""
        assert self._credentials  # a server without does not ask for guests
        try:
            first = next(messages)
            secret = self._invites.take_try()
            credentials = self._credentials.current()
            inviter = Inviter(secret, introduce(self._settings, credentials, self._address), leaf=_leaf(credentials))
            yield inviter.answer(first)
            last, met = inviter.meet(next(messages))
            self._check_name(met.card.card.name)
            with self._lock:
                self._invites.use(secret)
                self._met = keep(self._settings, met.card, met.address, met.role, met.words).name
            yield last
            log.info("a party has joined, and its words are to be compared", peer=self._met)
        except VflError as error:
            log.warning("a guest did not pair", caller=unquote(caller), code=error.code, left=self._invites.left)
            raise

    def _check_name(self, name: str) -> None:
        """Raise PolicyError where a party of this ``name`` may not join (``E_INVITE``), or cannot (``E_EXISTS``)."""
        if self._only not in ("", name):
            hint = "the code is in other hands than you think: make a new one, and tell it another way"
            text = f"{name} knew the code of an invite that is for {self._only}"
            raise PolicyError(text, code="E_INVITE", hint=hint, for_peer="this invite is for another party")
        check_new(self._settings, name)


def join(settings: Settings, credentials: Credentials, place: str, address: str | None = None) -> Pending:
    """Join the node that has invited, as its owner says: ``host:port/CODE``.

    Args:
        settings: of this node, which need not run.
        credentials: its TLS material.
        place: address and code of the invite.
        address: where the other node can dial this one; None: this one dials.

    Returns:
        Whom this node has met; it is kept until words are compared.

    Raises:
        UsageError: ``place`` is no address with a code (``E_INVITE``), or this node does not pair (``E_CONFIG``).
        PeerError: the other node refuses, or does not answer.
        PolicyError: the codes differ, somebody stands between, or its name is taken here.
    """
    there, slash, said = place.rpartition("/")
    secret = parse_code(said)
    if not slash or not _ADDRESS.fullmatch(there):
        raise UsageError("the address is missing before the code", code="E_INVITE", hint="it looks like HOST:PORT/7KQ4-M2XP")
    own = introduce(settings, credentials, address)
    with GuestCall(there) as call:
        joiner = Joiner(secret, own, leaf=call.leaf)
        met = joiner.meet(call.ask(joiner.confirm(call.ask(joiner.begin()))))
    return keep(settings, met.card, there, met.role, met.words)


def introduce(settings: Settings, credentials: Credentials, address: str | None) -> OwnSide:
    """What this party says of itself when it pairs. Raises UsageError or PolicyError if it has no card."""
    return OwnSide(own_card(credentials), address, settings.role)


def _leaf(credentials: Credentials) -> bytes:
    leaf = x509.load_pem_x509_certificates(credentials.certificate)[0]
    return hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).digest()


def _reachable(listen: str) -> str:
    """Where others may reach a node that listens so: where it says no machine, at this one's name."""
    host, _, port = listen.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ANYWHERE else listen
