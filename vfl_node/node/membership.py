"""Who is a peer of a node that runs: one that was paired with is taken up, and one that is revoked, or leaves, goes at once."""

from __future__ import annotations

import structlog

from vfl_node.errors import PolicyError, UsageError, peer_text
from vfl_node.node.peers import Peers
from vfl_node.node.works import Works
from vfl_node.settings.connection import Roster, read_paired
from vfl_node.settings.node import Settings
from vfl_node.trust.pending import check_paired, forget

log = structlog.get_logger()

MOST_REASON = 200
"""Characters of why a peer is revoked."""


class Membership:
    """Changes of the peers of one node. Safe to use from several threads.

    Args:
        settings: of this node.
        roster: its peers.
        works: its jobs.
        peers: its links.
    """

    def __init__(self, settings: Settings, roster: Roster, works: Works, peers: Peers) -> None:
        self._settings, self._roster, self._works, self._peers = settings, roster, works, peers

    def admit(self, name: str) -> None:
        """Take up a peer whose file pairing has written.

        Raises:
            UsageError: there is none (``E_UNKNOWN_PEER``), or it cannot be read.
        """
        peer = read_paired(self._settings.peers_dir).get(name)
        if peer is None:
            hint = "pair with it: vfl-node invite, vfl-node join"
            raise UsageError(f"this node was not paired with {name}", code="E_UNKNOWN_PEER", hint=hint)
        self._roster.admit(name, peer)
        self._peers.admit(name, peer.address)
        log.info("peer admitted", peer=name)

    def revoke(self, name: str, reason: str) -> list[str]:
        """End everything with a peer that this node was paired with; returns the jobs that are paused.

        Raises:
            UsageError: this node was not paired with it (``E_UNKNOWN_PEER``).
            Paused: this node is stopping.
        """
        check_paired(self._settings, name)
        told = f"{self._settings.name} has revoked {name}" + (f": {given}" if (given := peer_text(reason, MOST_REASON)) else "")
        error = PolicyError(f"{name} was revoked", code="E_REVOKED", hint="pair with it again", for_peer=told)
        with self._works.beginning():  # nothing with it begins between the two, and nothing after them
            paused = self._works.pause_with(name, error)
            self._roster.dismiss(name)
        try:
            forget(self._settings, name)
        finally:  # a disk that refuses must not keep the peer connected
            self._peers.dismiss(name, error)
            log.warning("peer revoked", peer=name, paused=len(paused))
        return paused

    def take_leave(self, name: str) -> None:
        """End everything with a peer whose own card says that its keys are given up. Raises as :meth:`revoke`."""
        self.revoke(name, "its own card says that its keys are given up")
