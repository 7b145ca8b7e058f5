"""More of a budget by agreement of two owners: asked for at one node, approved at the other, counted in the ledgers of both.

Of each partner one request either way is open at most. What may not have been heard is said again whenever the link comes up: a
request, that it is taken back, an approval. So both nodes end with the same answer, whatever is lost on the way.

::

    asks                            is asked
    request                   →
                              ←     approval, which stands in its ledger; or a code: it is refused
    code: it is taken back    →
                              ←     approval, if it was approved before; or a code: nothing is asked any more
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError

from vfl_node.errors import PolicyError, UsageError, peer_text
from vfl_node.node.extension_requests import ExtensionRequests, Kept, Side, State
from vfl_node.node.faults import explain
from vfl_node.node.persons import NEEDED, count_yes, hear_yes
from vfl_node.node.store import Store
from vfl_node.process.logs import Seldom
from vfl_node.settings.bounds import total_of
from vfl_node.settings.node import Settings
from vfl_node.transport.calls import ERROR_CODE
from vfl_node.transport.generated.vfl.v1.session_pb2 import ExtensionSaid, Notice
from vfl_node.trust.extensions import (
    ID_DIGITS,
    ExtensionRequest,
    Wish,
    check_approval,
    parse_request,
    read_request,
    sign_approval,
    sign_request,
    unusable,
    utc,
)
from vfl_node.trust.people import People
from vfl_node.trust.signers import Signers

log = structlog.get_logger()

REFUSED, WITHDRAWN, UNASKED = "E_REFUSED", "E_WITHDRAWN", "E_NOT_ASKED"
"""Codes with which a peer hears that its request is refused; that one is taken back; that it is not asked here any more."""


class Extensions:
    """The requests of one running node and of its peers. Safe to use from several threads.

    Args:
        settings: of this node.
        store: its memory of partners.
        people: who may say yes, besides the owner.

    Attributes:
        kind: of the notices that are heard here.
        tell: sends a notice to a peer if its link is up.
    """

    kind = "extension"

    def __init__(self, settings: Settings, store: Store, people: People) -> None:
        self.tell: Callable[[str, Notice], object] = lambda peer, notice: None
        self._settings, self._people, self._requests = settings, people, ExtensionRequests(settings, store)
        self._signers = Signers(settings)
        self._lock, self._logged = threading.RLock(), Seldom()

    def list(self) -> list[dict[str, Any]]:
        """The newest request of and to each partner.

        Each has id, partner, side (ours, theirs), budget, more, until, reason, at, expires, needs (persons who must say yes
        here), yes (those who have), why, and state (:data:`vfl_node.node.extension_requests.State`).
        """
        return [self._describe(*each) for each in self._requests.all()]

    def ask(self, partner: str, budget: str, more: float, until: str, reason: str, person: str | None = None) -> dict[str, Any]:
        """Ask the owner of a partner for more of a budget; one request is open at a time.

        Args:
            partner: a peer with which this node has a link.
            budget: a name of :data:`vfl_node.trust.extensions.Extendable`.
            more: how much.
            until: the last day, ISO 8601.
            reason: why, for people.
            person: who asks; None: the owner.

        Returns:
            It, as in :meth:`list`.

        Raises:
            UsageError: there is no such peer or budget, or nothing to sign with; two persons must ask (``E_PERSON``); or an
                earlier request is open (``E_BUSY``).
            PolicyError: the policy does not allow it (``E_POLICY``).
            StateError: it cannot be kept.
        """
        self._check_allowed(partner)
        key, _ = self._keys(partner)
        try:
            last = date.fromisoformat(until)
            about = {"at": utc(), "federation": self._settings.federation, "by": self._settings.name, "to": partner}
            said = {"budget": budget, "more": more, "until": last, "reason": reason}
            wish = Wish.model_validate(about | said)
        except ValidationError as error:
            first = error.errors()[0]
            text = ": ".join(map(str, (*first["loc"], first["msg"].removeprefix("Value error, "))))
            raise UsageError(f"this cannot be asked for: {text}", code="E_REQUEST") from None
        except ValueError:
            raise UsageError(f"{until[:20]!r} is no day", code="E_REQUEST", hint="such as 2027-01-31") from None
        if total_of(getattr(self._settings.rules.limits_of(partner).budgets, budget)) is None:
            raise UsageError(f"{budget} with {partner} has no bound here", code="E_REQUEST", hint="vfl-node policy show")
        kept = Kept(sign_request(wish, key), "asked")
        with self._storing():
            before = self._requests.recall(partner, "ours")
            if before and self._requests.state(partner, before) in ("asked", "withdrawing"):
                what = "is open" if before.state == "asked" else f"is taken back, and {partner} has not heard it"
                hint = f"vfl-node ledger refuse {before.request.id} takes it back; it ends when {partner} has answered"
                raise UsageError(f"request {before.request.id} {what}", code="E_BUSY", hint=hint)
            kept = self._hear_yes(kept, person)
            if self._needed > len(kept.said):
                kept = replace(kept, state="drafted")
            self._requests.keep(partner, "ours", kept)
        return self._told(partner, "ours", kept, _requested(kept.request) if kept.state == "asked" else None)

    def approve(self, request_id: str, person: str | None = None) -> dict[str, Any]:
        """Say yes to a request of a partner, or as a second person to one of this node. Returns it, as in :meth:`list`.

        Raises:
            UsageError: there is none that waits (``E_NOT_ASKED``), or it is too late (``E_CONSENT``); or as :meth:`ask`.
            PolicyError: as :meth:`ask`; or it is not signed by the key that its party has by now (``E_SIGNATURE``).
            StateError: it cannot be written down.
        """
        with self._storing():
            partner, side, kept = self._find(request_id, ours=("drafted",))
            if kept.request.has_expired:
                raise UsageError("it is too late to approve this request", code="E_CONSENT", hint="it must be asked again")
            self._check_allowed(partner)
            key, card_key = self._keys(partner)
            if side == "theirs":
                self._read(partner, kept.request.envelope, card_key)
            kept = self._hear_yes(kept, person)
            whole = len(kept.said) >= self._needed
            if whole and side == "theirs":
                self._requests.agree(partner, kept.request, sign_approval(kept.request, key))
            else:
                kept = replace(kept, state="asked" if whole else kept.state)
                self._requests.keep(partner, side, kept)
            answer = self._approved(partner, kept.request.id) if side == "theirs" else _requested(kept.request)
        return self._told(partner, side, kept, answer if whole else None)

    def refuse(self, request_id: str) -> dict[str, Any]:
        """Refuse a request of a partner, or take one of this node back. Returns it, as in :meth:`list`.

        Raises:
            UsageError: there is none that waits (``E_NOT_ASKED``).
            StateError: that cannot be kept.
        """
        with self._storing():
            partner, side, kept = self._find(request_id, ours=("drafted", "asked"))
            told = kept.state == "asked"
            ours: State = "withdrawing" if told else "withdrawn"
            kept = replace(kept, state=ours if side == "ours" else "refused")
            self._requests.keep(partner, side, kept)
        return self._told(partner, side, kept, _declined(kept) if told else None)

    def show(self, peer: str) -> Sequence[Notice]:
        """What a peer hears when its link comes up: all that it may not have heard."""
        said: Sequence[Notice] = ()
        with self._lock:
            if ours := self._requests.recall(peer, "ours"):
                state = self._requests.state(peer, ours)
                said = {"asked": (_requested(ours.request),), "withdrawing": (_declined(ours),)}.get(state, ())
            theirs = self._requests.recall(peer, "theirs")
            if theirs and not theirs.request.is_over and self._requests.state(peer, theirs) == "agreed":
                said = (*said, self._approved(peer, theirs.request.id))
        return said

    def hear(self, peer: str, said: ExtensionSaid) -> Notice | None:
        """Hear a request or an answer of ``peer``; returns what it is answered at once. Raises OSError, StateError."""
        try:
            with self._lock:
                if said.request:
                    return self._hear_request(peer, said.request)
                if said.approval:
                    self._hear_approval(peer, said)
                    return None
                return self._hear_no(peer, said)
        except PolicyError as error:
            if self._logged.lets((peer, error.code)):
                log.warning("what a peer says of a budget was refused", peer=peer, code=error.code, reason=error.message)
            return _no(said.id, error.peer_code, error.for_peer) if said.request else None

    def _hear_request(self, peer: str, envelope: bytes) -> Notice | None:
        request_id = parse_request(envelope).id
        if self._requests.approval(peer, request_id) is not None:
            return self._approved(peer, request_id)
        known = self._requests.recall(peer, "theirs")
        if known and known.request.id == request_id:
            return _declined(known) if known.state == "refused" else None
        request = self._read(peer, envelope, self._keys(peer)[1])
        if known and known.request.wish.at > request.wish.at:
            raise unusable("there was a later one")
        self._check_allowed(peer)
        self._requests.keep(peer, "theirs", Kept(request, "asked"))
        if self._logged.lets((peer, "asks")):
            log.info("a peer asks for more of a budget", peer=peer, request=request.id, budget=request.wish.budget)
        return None

    def _hear_approval(self, peer: str, said: ExtensionSaid) -> None:
        kept = self._requests.recall(peer, "ours")
        if not kept or kept.request.id != said.id:
            raise unusable("it is approved, and not asked for here")
        state = self._requests.state(peer, kept)
        if state != "agreed":
            if state not in ("asked", "withdrawing", "expired") or kept.request.is_over:
                raise unusable(f"it is approved, and {state} here")
            check_approval(said.approval, kept.request, self._keys(peer)[1])
            self._requests.agree(peer, kept.request, said.approval)

    def _hear_no(self, peer: str, said: ExtensionSaid) -> Notice | None:
        code = said.code if ERROR_CODE.fullmatch(said.code) else REFUSED
        side: Side = "theirs" if code == WITHDRAWN else "ours"
        kept = self._requests.recall(peer, side)
        kept = kept if kept and kept.request.id == said.id else None
        state = self._requests.state(peer, kept) if kept else None
        if side == "theirs":
            if state == "agreed":
                return self._approved(peer, said.id)
            if kept and state == "asked":
                self._requests.keep(peer, side, replace(kept, state="withdrawn"))
            return _no(said.id[:ID_DIGITS], UNASKED, "it is not asked any more")
        if kept and state in ("asked", "withdrawing", "expired"):
            why = f"{peer_text(said.reason)} ({code})" if kept.state == "asked" else ""
            ended: State = "refused" if kept.state == "asked" else "withdrawn"
            self._requests.keep(peer, side, replace(kept, state=ended, why=why))
            log.info("a request for more of a budget has ended", peer=peer, request=kept.request.id, code=code)
        return None

    def _told(self, partner: str, side: Side, kept: Kept, notice: Notice | None) -> dict[str, Any]:
        """Tell the partner, and describe it to the owner."""
        if notice:
            self.tell(partner, notice)
        return self._describe(partner, side, kept, self._requests.state(partner, kept))

    def _read(self, peer: str, envelope: bytes, key: Ed25519PublicKey) -> ExtensionRequest:
        return read_request(envelope, federation=self._settings.federation, own=self._settings.name, peer=peer, key=key)

    def _approved(self, partner: str, request_id: str) -> Notice:
        return Notice(extension=ExtensionSaid(id=request_id, approval=self._requests.approval(partner, request_id)))

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """A context in which nobody else changes a request; what the system refuses is a StateError."""
        with self._lock:
            try:
                yield
            except OSError as error:
                raise explain(error) from None

    @property
    def _needed(self) -> int:
        """So many persons say yes here; 0: the owner's word is enough."""
        return NEEDED if self._settings.rules.preset == "strict" else 0

    def _hear_yes(self, kept: Kept, person: str | None) -> Kept:
        if not self._needed:
            return kept
        command = f"vfl-node ledger approve {kept.request.id}"
        said = hear_yes(self._people, kept.said, person, "", to="more of a budget", command=command)
        return replace(kept, said=tuple(said))

    def _find(self, request_id: str, *, ours: tuple[str, ...]) -> tuple[str, Side, Kept]:
        """The request of this id that a partner has asked, or of this node and in one of these states."""
        for partner, side, kept, state in self._requests.all():
            waits = state if state != "expired" else kept.state
            if kept.request.id == request_id and waits in (ours if side == "ours" else ("asked",)):
                return partner, side, kept
        raise UsageError("no request of this id waits here", code="E_NOT_ASKED", hint="vfl-node ledger asks")

    def _check_allowed(self, partner: str) -> None:
        settings = self._settings
        if partner not in settings.connected:
            hint = f"its peers with a link: {', '.join(settings.connected) or 'none'}"
            raise UsageError(f"this node has no link with {partner[:63]}", code="E_UNKNOWN_PEER", hint=hint)
        if not settings.rules.limits_of(partner).budgets.extend:
            raise PolicyError(
                f"this node's policy does not allow more of a budget by agreement with {partner}",
                hint="budgets.extend: true in the policy allows it",
                for_peer="its policy does not allow more of a budget by agreement",
            )
        if settings.rules.preset == "strict" and not self._signers.is_compared(partner):
            text = f"preset strict: the words of the card of {partner} were not compared"
            raise PolicyError(text, code="E_CONSENT", hint=self._signers.advise(partner))

    def _keys(self, partner: str) -> tuple[Ed25519PrivateKey, Ed25519PublicKey]:
        """With which this node signs, and the partner. Raises UsageError (``E_CARD``) where one of them does not."""
        key, card = self._signers.key, self._signers.card(partner)
        if key is None or card is None:
            text = "requests for more of a budget are signed, and this node and its peer have no cards of each other"
            raise UsageError(text, code="E_CARD", hint=f"pair with {partner}: vfl-node invite, vfl-node join")
        return key, card.verifying_key

    def _describe(self, partner: str, side: Side, kept: Kept, state: State) -> dict[str, Any]:
        wish = kept.request.wish
        return {
            "id": kept.request.id,
            "partner": partner,
            "side": side,
            **wish.model_dump(mode="json", include={"budget", "more", "until", "at"}),
            "reason": peer_text(wish.reason, 200),
            "expires": wish.expires.isoformat(),
            "state": state,
            "needs": self._needed or 1,
            "yes": [each.person for each in count_yes(self._people, kept.said)],
            "why": kept.why,
        }


def _requested(request: ExtensionRequest) -> Notice:
    return Notice(extension=ExtensionSaid(id=request.id, request=request.envelope))


def _declined(kept: Kept) -> Notice:
    withdrawn = kept.state == "withdrawing"
    code, reason = (WITHDRAWN, "its owner has taken it back") if withdrawn else (REFUSED, "its owner refuses it")
    return _no(kept.request.id, code, reason)


def _no(request_id: str, code: str, reason: str) -> Notice:
    return Notice(extension=ExtensionSaid(id=request_id, code=code, reason=reason))
