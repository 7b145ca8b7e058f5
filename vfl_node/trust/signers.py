"""With which key a node signs, and whose signatures it can verify: its own, and those of the peers that it was paired with."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.trust.cards import Card
from vfl_node.trust.keys import own_card, read_signing_key
from vfl_node.trust.pending import card_of


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
            PolicyError: it is not what was signed (``E_CARD``, ``E_SIGNATURE``).
        """
        settings = self._settings
        if name == settings.name:
            if self.key is None or settings.tls is None:
                return None
            return own_card(load_credentials(settings.tls, name=name, federation=settings.federation)).card
        peer = settings.peers.get(name)
        return card_of(settings, name).card if peer and peer.card else None

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Party → digest of its card, of those of ``names`` whose card is here. Raises as :meth:`card`."""
        cards = {name: self.card(name) for name in names}
        return {name: card.digest for name, card in cards.items() if card}
