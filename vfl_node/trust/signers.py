"""With which key a node signs, and whose signatures it can verify.

Those are its own, those of the peers that it was paired with, and those of relayed peers by the cards that were told.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vfl_node.errors import PolicyError
from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.trust.cards import Card
from vfl_node.trust.keys import own_card, read_signing_key
from vfl_node.trust.pending import card_of
from vfl_node.trust.told import read_told


class Signers:
    """The keys are read from their files whenever they are needed: an owner may replace them, and peers come and go.

    Args:
        settings: of this node.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        """The name of this party."""
        return self._settings.name

    @property
    def key(self) -> Ed25519PrivateKey | None:
        """The key with which this node signs; None where it signs nothing: in plaintext, or under a shared authority.

        Raises:
            UsageError: the file cannot be used (``E_CERTIFICATE``, ``E_FILE``).
        """
        files = self._settings.tls
        return read_signing_key(files) if files and self._settings.pairs and files.signing_key.exists() else None

    def card(self, name: str) -> Card | None:
        """The card of a party, this one or a peer; None where there is none here.

        Raises:
            UsageError: a file cannot be read.
            PolicyError: it is not what was signed (``E_CARD``, ``E_SIGNATURE``), or a relayed peer has given its keys up
                (``E_REVOKED``).
            StateError: what is kept of the card of a relayed peer is damaged.
        """
        settings = self._settings
        if name == settings.name:
            if self.key is None or settings.tls is None:
                return None
            return own_card(load_credentials(settings.tls, name=name, federation=settings.federation)).card
        peer = settings.peers.get(name)
        if peer and peer.relayed:
            return self._told_card(name)
        return card_of(settings, name).card if peer and peer.card else None

    def _told_card(self, name: str) -> Card | None:
        if (known := read_told(self._settings, name)) is None:
            return None
        card = known[1].card
        if card.revoked:
            text = f"{name} has given its keys up"
            hint = f"if it has new ones: vfl-node card {name} --forget"
            raise PolicyError(text, code="E_REVOKED", hint=hint, for_peer=text)
        return card

    def is_compared(self, name: str) -> bool:
        """Whether two owners have compared the words of the card of a peer. Raises as :meth:`card`."""
        peer = self._settings.peers.get(name)
        if peer and peer.relayed:
            known = read_told(self._settings, name)
            return known is not None and known[0].compared is not None
        return peer is not None and peer.card is not None and peer.words_compared

    def advise(self, name: str) -> str:
        """How the owner comes to a card of a peer that was compared."""
        peer = self._settings.peers.get(name)
        if peer and peer.relayed:
            return f"the active party tells the card of {name} with a job; then: vfl-node card {name} --compared"
        return f"pair with {name}: vfl-node invite, vfl-node join"

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Party → digest of its card, of those of ``names`` whose card is here. Raises as :meth:`card`."""
        cards = {name: self.card(name) for name in names}
        return {name: card.digest for name, card in cards.items() if card}
