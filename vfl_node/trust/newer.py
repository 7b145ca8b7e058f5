"""A peer shows a newer card: it is verified by the card that this node has, and takes its place.

::

    peers/NAME.N.crt, .N.card    card N of NAME, and the authorities on it, written first
    peers/NAME.yaml              names them from then on

So a crash leaves the one card or the other, each with its own authorities. The files of the card before stay until the next
one comes: who has read NAME.yaml just before can still read them.
"""

from __future__ import annotations

from datetime import datetime

import yaml

from vfl_node.process import failpoints
from vfl_node.process.files import remove, write_whole
from vfl_node.settings.node import Settings
from vfl_node.trust.cards import SignedCard, check_newer, read_card
from vfl_node.trust.pending import alone, card_of, check_paired, peer_file, writing


def take_newer(settings: Settings, name: str, envelope: bytes, *, now: datetime | None = None) -> SignedCard | None:
    """Pin the card that ``name`` shows, if it is a newer one than that which this node has.

    Args:
        settings: of this node.
        name: the peer, as its certificate has proven.
        envelope: the card, as it came.
        now: UTC.

    Returns:
        The card that was pinned, or that gives the peer's keys up; None if it says nothing new.

    Raises:
        PolicyError: it cannot be used, or does not follow on the one that is here (``E_CARD``, ``E_SIGNATURE``).
        UsageError: this node has no card of ``name`` (``E_UNKNOWN_PEER``), or the disk refuses (``E_FILE``).
    """
    folder, file = settings.peers_dir, settings.peers_dir / f"{name}.yaml"
    check_paired(settings, name)
    with writing(), alone(folder):
        pinned, peer = card_of(settings, name), settings.peers[name]
        if envelope == pinned.envelope:
            return None
        shown = read_card(envelope, federation=settings.federation, now=now)
        if shown.says_what(pinned):
            return None
        check_newer(pinned.card, shown, now=now)
        if shown.card.revoked:
            return shown
        files = {"authority": f"{name}.{shown.card.serial}.crt", "card": f"{name}.{shown.card.serial}.card"}
        write_whole(folder / files["authority"], shown.card.authority_pem)
        write_whole(folder / files["card"], shown.envelope)
        failpoints.reach("card")
        write_whole(file, peer_file(name, yaml.safe_load(file.read_text()) | files))
        failpoints.reach("carded")
        for left in folder.glob(f"{name}.*"):
            if left not in (file, peer.authority, peer.card) and left.name not in files.values():
                remove(left)
    return shown
