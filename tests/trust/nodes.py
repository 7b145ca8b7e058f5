"""Servers that take guests, over loopback, and who pairs with them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.trust.parties import FEDERATION, Party
from vfl_node.errors import PolicyError, VflError
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.transport.guests import GuestCall
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.probes import ProbeStream
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import StreamPipe
from vfl_node.trust import pairing
from vfl_node.trust.invites import Invites, parse_code
from vfl_node.trust.pairing import Inviter, Joiner, Met, OwnSide

PROTECTIONS = ("binding", "card", "code", "fresh", "end", "tries")
"""What a pairing may be without, in tests alone.

That it is bound to the certificate that answers, and to the card that the joiner shows; that both must know one code; that each
try draws anew; that an invite ends when it was used, and after some tries.
"""


class CarelessInvites(Invites):
    """An invite that lacks one of :data:`PROTECTIONS`."""

    without = ""

    def take_try(self) -> bytes:
        assert self._invite
        return self._invite.secret if self.without == "tries" else super().take_try()

    def use(self, secret: bytes) -> None:
        if self.without != "end":
            super().use(secret)


class CarelessInviter(Inviter):
    """Takes whatever card comes, and not only the one that was announced."""

    def answer(self, first: PairMessage) -> PairMessage:
        return super().answer(PairMessage(element=first.element))

    def meet(self, third: PairMessage) -> tuple[PairMessage, Met]:
        theirs = pairing._unpack(self._key, b"joiner", third.box)
        self._card_digest = hashlib.sha256(theirs.card.encode()).digest()
        return super().meet(third)


class CarelessJoiner(Joiner):
    """Its end of that."""

    def __init__(self, code: bytes, own: OwnSide, *, leaf: bytes) -> None:
        super().__init__(code, own, leaf=leaf)
        self._side = pairing.SPAKE2_B(code, idA=pairing._identity(b"A", leaf), idB=pairing._identity(b"B", b""))


class Host:
    """A party's server, and its end of pairings.

    Args:
        party: whose.
        without: one of :data:`PROTECTIONS` that its pairings lack; empty: none.
    """

    def __init__(self, party: Party, *, without: str = "") -> None:
        self.party, self.invites, self.without = party, CarelessInvites(), without
        self.invites.without = without
        self.met: list[Met] = []
        self.answered = 0
        self.ended: list[str] = []  # how pairings failed here
        self.took: list[str] = []  # who got through with Link or Converse
        self.known: set[str] = {"lab"}
        self.server = NodeServer(
            "127.0.0.1:0",
            own=party.name,
            federation=FEDERATION,
            credentials=party.credentials,
            peers=self.known,
            on_converse=self._take_call,
            on_link=self._take_link,
            on_probe=self._take_link,
            guests=self,
        )
        self.address = self.server.start()

    @property
    def open(self) -> bool:
        return self.invites.left > 0

    @property
    def leaf(self) -> bytes:
        return b"" if self.without == "binding" else leaf_of(self.party)

    def answer(self, messages: Iterator[PairMessage], caller: str) -> Iterator[PairMessage]:
        try:
            first = next(messages)
            secret = self.invites.take_try()
            kind = CarelessInviter if self.without == "card" else Inviter
            draw = (lambda size: b"\7" * size) if self.without == "fresh" else os.urandom
            code = b"" if self.without == "code" else secret
            inviter = kind(code, self.party.own, leaf=self.leaf, draw=draw)
            self.answered += 1
            yield inviter.answer(first)
            last, met = inviter.meet(next(messages))
            self.invites.use(secret)
            self.met.append(met)
            yield last
        except VflError as error:
            self.ended.append(error.code)
            raise

    def invite(self) -> bytes:
        return parse_code(self.invites.open(5))

    def stop(self) -> None:
        self.server.stop(0)

    def _take_call(self, party: str, job: str, pipe: StreamPipe) -> None:
        self.took.append(party)
        raise PolicyError("not here")

    def _take_link(self, party: str, link: LinkStream | ProbeStream) -> None:
        self.took.append(party)
        raise PolicyError("not here")


def leaf_of(party: Party) -> bytes:
    """SHA-256 of a party's certificate."""
    leaf = x509.load_pem_x509_certificate(party.credentials.certificate)
    return hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).digest()


def join(party: Party, address: str, code: bytes, *, without: str = "") -> Met:
    """Pair with who answers at ``address``. Raises VflError."""
    with GuestCall(address) as call:
        kind = CarelessJoiner if without == "card" else Joiner
        joiner = kind(b"" if without == "code" else code, party.own, leaf=b"" if without == "binding" else call.leaf)
        return joiner.meet(call.ask(joiner.confirm(call.ask(joiner.begin()))))


def failure(party: Party, address: str, code: bytes, *, without: str = "") -> str:
    """The code of the error with which pairing fails; empty if it succeeds."""
    try:
        join(party, address, code, without=without)
    except VflError as error:
        return error.code
    return ""


def guess_at_once(party: Party, address: str, codes: list[bytes]) -> list[str]:
    """Pair with several ``codes`` at the same time, each again as long as another guest is there."""
    outcomes: list[str] = []

    def guess(code: bytes) -> None:
        while (outcome := failure(party, address, code)) == "E_BUSY":
            pass
        outcomes.append(outcome)

    threads = [threading.Thread(target=guess, args=(code,)) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    return outcomes


class Relay(Host):
    """A party that lets a guest in by its own certificate, and passes every message on to another server, perhaps changed.

    Args:
        party: the one that stands between.
        target: where it passes messages on to.
        change: what it makes of the message with this number, from 1 on.
    """

    def __init__(
        self, party: Party, target: str, change: Callable[[int, PairMessage], PairMessage] = lambda number, message: message
    ) -> None:
        super().__init__(party)
        self.target, self.change = target, change
        self.heard: list[PairMessage] = []
        self.invite()

    def answer(self, messages: Iterator[PairMessage], caller: str) -> Iterator[PairMessage]:
        numbers = count(1)
        with GuestCall(self.target) as onward:
            for message in messages:
                self.heard.append(message)
                answer = onward.ask(self.change(next(numbers), message))
                yield self.change(next(numbers), answer)
