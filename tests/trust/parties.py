"""Parties with an authority and a card of their own, in files as `vfl-node init` writes them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vfl_node.settings.node import Tls
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.transport.credentials import load_credentials, write_private
from vfl_node.trust.cards import make_card
from vfl_node.trust.pairing import OwnSide

FEDERATION = "trial"


class Party:
    """One party's keys, certificate and card."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.folder = name, folder
        authority, self.authority_key = make_authority(FEDERATION)
        key, request = make_key_and_request(name, FEDERATION)
        files = Tls(ca=folder / "authority.crt", certificate=folder / "node.crt", key=folder / "node.key")
        files.ca.write_bytes(authority)
        files.certificate.write_bytes(sign(authority, self.authority_key, request))
        write_private(files.key, key)
        self.credentials = load_credentials(files, name=name, federation=FEDERATION)
        self.signing = Ed25519PrivateKey.generate()
        self.card = make_card(self.credentials, self.signing, self.authority_key, serial=1)
        self.own = OwnSide(self.card, None, "passive")
