"""The active party of a job tells passive parties, which do not meet, each other's cards: of this job's parties, and no others.

What the peer learns: name and public keys of the other passive parties of a job with it, whose names stand in the job.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from vfl_node.errors import PolicyError, UsageError
from vfl_node.settings.node import Settings
from vfl_node.trust.cards import read_card
from vfl_node.trust.manifest import Manifest, parse_manifest
from vfl_node.trust.pending import card_of
from vfl_node.trust.told import keep_told

log = structlog.get_logger()


def cards_for(settings: Settings, manifest: Manifest, peer: str) -> list[bytes]:
    """The cards that this node tells ``peer`` with a job: those of parties of it that ``peer`` does not meet.

    Raises:
        PolicyError: one is not what was signed (``E_CARD``, ``E_SIGNATURE``).
        UsageError: one cannot be read.
    """
    if manifest.active != settings.name or peer not in manifest.passive:
        return []
    known = [name for name in manifest.passive if name != peer and (at := settings.peers.get(name)) and at.card]
    return [card_of(settings, name).envelope for name in known]


def list_newer(settings: Settings, peer: str, manifest: bytes) -> list[bytes]:
    """The cards for ``peer`` where its job was refused because its ``manifest`` has other ones than this node.

    Nothing is told of parties with which this node's policy allows no job: such a job is refused before its manifest is read.
    """
    try:
        return cards_for(settings, parse_manifest(manifest), peer)
    except (PolicyError, UsageError):  # the refusal says more
        return []


def hear_cards(settings: Settings, manifest: Manifest, peer: str, envelopes: Sequence[bytes]) -> None:
    """Keep the cards that ``peer`` tells of parties that this node meets through the active party alone.

    Raises:
        PolicyError: one cannot be used, or is of no such party; or it differs from one that was compared (``E_CARD``,
            ``E_SIGNATURE``).
        StateError: what is kept here is damaged.
        UsageError: the disk refuses (``E_FILE``).
    """
    for envelope in envelopes:
        shown = read_card(envelope, federation=settings.federation, stored=True)  # the peer has verified it some time ago
        name = shown.card.name
        if peer != manifest.active or settings.name not in manifest.passive or name not in manifest.passive:
            text = f"{peer} tells the card of {name}, which only the active party of a job tells, and of passive parties"
            raise PolicyError(text, code="E_CARD", for_peer=text)
        known = settings.peers.get(name)
        if not (settings.pairs and known and known.relayed):  # whose card is here by pairing, or whose owner wants none
            continue
        if told := keep_told(settings, peer, shown):
            say, what = (log.warning, "another card") if told.changed else (log.info, "a card")
            hint = "" if told.compared else f"compare its words: vfl-node card {name} --compared"
            say(f"{what} of a relayed peer was told", party=name, by=peer, hint=hint)
