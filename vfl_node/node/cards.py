"""A party's card is shown to its peers when a link comes up, and when the card changes. Newer ones of theirs are taken."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from vfl_node.errors import VflError, peer_text
from vfl_node.settings.connection import Roster, read_paired
from vfl_node.settings.node import Settings
from vfl_node.transport.calls import ERROR_CODE
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.generated.vfl.v1.session_pb2 import CardShown, Notice
from vfl_node.trust.cards import SignedCard
from vfl_node.trust.keys import shown_card
from vfl_node.trust.newer import take_newer

log = structlog.get_logger()


class Cards:
    """The cards of one running node and of its peers.

    Args:
        settings: of this node.
        roster: its peers.

    Attributes:
        kind: of the notices that are heard here.
        on_given_up: called with a peer that says that its keys are given up.
    """

    kind = "card"

    def __init__(self, settings: Settings, roster: Roster) -> None:
        self.on_given_up: Callable[[str], None] = lambda peer: None
        self._settings, self._roster = settings, roster
        self._shown = self._own()

    def show(self, peer: str) -> list[Notice]:
        """What tells a peer this party's card; nothing where this party has none, or it cannot be used now."""
        self._shown = self._own()
        return [Notice(card=CardShown(envelope=self._shown.envelope))] if self._shown else []

    def show_changed(self) -> list[Notice]:
        """The same for all peers if the card says something else than when it was last shown; nothing otherwise."""
        before, now = self._shown, self._own()
        return self.show("") if now and not (before and now.says_what(before)) else []

    def hear(self, peer: str, shown: CardShown) -> Notice | None:
        """Take the card that ``peer`` shows; returns an answer where it cannot be taken."""
        if not shown.envelope:
            code = shown.code if ERROR_CODE.fullmatch(shown.code) else "E_CARD"
            log.warning("a peer does not take this party's card", peer=peer, code=code, reason=peer_text(shown.reason))
            return None
        known = self._roster.get(peer)
        if known is None or not known.paired:
            return None
        try:
            taken = take_newer(self._settings, peer, shown.envelope)
            if taken is None:
                return None
            if taken.card.revoked:
                log.warning("a peer has given its keys up", peer=peer, serial=taken.card.serial)
                self.on_given_up(peer)
                return None
            self._roster.admit(peer, read_paired(self._settings.peers_dir)[peer])
            log.info("a peer has a newer card", peer=peer, serial=taken.card.serial, authority=taken.fingerprints[0])
        except VflError as error:
            log.warning("the card of a peer was refused", peer=peer, code=error.code, reason=error.message, hint=error.hint)
            return Notice(card=CardShown(code=error.peer_code, reason=error.for_peer))
        return None

    def _own(self) -> SignedCard | None:
        files = self._settings.tls
        if files is None or not self._settings.pairs:
            return None
        try:
            return shown_card(load_credentials(files, name=self._settings.name, federation=self._settings.federation))
        except VflError as error:
            log.warning("this party's card cannot be shown", code=error.code, reason=error.message)
            return None
