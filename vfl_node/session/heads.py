"""Heads of ledgers: two parties show each other how their ledgers about one another stand, before anything else of a job.

::

    Preflight    the newest head of yours that I have verified        (preflight.py)
    HeadProof    my head now, and how it continues from that one
    HeadSigned   my signature under your head

The last two come once more when both have stored their parts of the job.

A ledger that was cut, rewritten, or restored from an old backup does not continue from what the other party has seen. What each
party learns of the other's ledger: how many entries it has, and digests that say nothing about them.
"""

from __future__ import annotations

from typing import Protocol

from vfl_node.process import failpoints
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.session_pb2 import HeadProof, HeadSigned, LedgerHead

MOST_COMMITS = 4096
"""Entries that one proof goes on by. A longer ledger is shown in several jobs."""


class Heads(Protocol):
    """One party's side of it, towards one peer."""

    @property
    def seen(self) -> LedgerHead:
        """The head of the peer from which its next proof must go on: it was verified in this conversation, or before it."""

    @property
    def given_up(self) -> LedgerHead | None:
        """The newest head of the peer which this owner has accepted as lost, until there is another one."""

    @property
    def shown(self) -> LedgerHead:
        """The head of this node that the peer has signed in this conversation."""

    def prove(self, seen: LedgerHead, given_up: LedgerHead | None = None) -> HeadProof:
        """How this node's ledger goes on from the head that the peer has seen, after that which its owner accepts as lost.

        Raises:
            StateError: it does not: it is older than what the peer has seen, or another one (``E_STATE_OLDER``).
        """

    def sign(self, proof: HeadProof) -> HeadSigned:
        """Verify the peer's proof, and sign its head.

        Raises:
            ProtocolError: it is not signed by the peer (``E_LEDGER``), or does not go on from what this node has seen
                (``E_LEDGER_FORK``).
        """

    def keep(self, own: HeadProof, theirs: HeadProof, signed: HeadSigned) -> None:
        """Store both heads and the peer's signature. Raises ProtocolError if it has signed something else (``E_LEDGER``)."""


async def exchange_heads(channel: Channel, heads: Heads, seen: LedgerHead, given_up: LedgerHead | None = None) -> None:
    """Prove this party's ledger to the peer, which has ``seen`` a head of it and ``given_up`` an earlier one.

    And verify the peer's.

    Raises: as :class:`Heads`.

    Leaks: how many entries the ledger has.
    """
    own = heads.prove(seen, given_up)
    failpoints.reach("head")
    await channel.send(own)
    theirs = await channel.receive(HeadProof)
    await channel.send(heads.sign(theirs))
    heads.keep(own, theirs, await channel.receive(HeadSigned))
    failpoints.reach("headed")
