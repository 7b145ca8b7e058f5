"""Heads of a node's lanes, shown to the partner and signed by it: neither can change what was counted without the other."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vfl_node.errors import PolicyError, ProtocolError, StateError, UsageError
from vfl_node.transport.generated.vfl.v1.session_pb2 import HeadProof, HeadSigned, LedgerHead
from vfl_node.trust.lane_check import is_signed
from vfl_node.trust.lanes import NO_LINK, Lane, LaneEntry, chain, entry_text, seen_text

log = structlog.get_logger()

_NO_HEAD = LedgerHead(link=NO_LINK)

BEGIN, LEARNT, HEAD, LOST = "begin", "learnt", "head", "loss"
"""Kinds of entries: a job; what both learnt by it; both heads as exchanged; what the partner has seen and is lost here."""


class LaneHeads:
    """The heads of one lane (:class:`vfl_node.session.heads.Heads`).

    Attributes:
        seen: as :attr:`vfl_node.session.heads.Heads.seen`.
        shown: as :attr:`vfl_node.session.heads.Heads.shown`.
    """

    def __init__(self, lane: Lane, most: int, claim: Callable[[LedgerHead], None]) -> None:
        """Show a lane to its partner.

        Args:
            lane: of the partner.
            most: entries that one proof goes on by.
            claim: called with what the partner has seen and this lane lacks, before that is an error.

        Raises:
            StateError: the lane is damaged (``E_STATE_CORRUPT``).
        """
        self._lane, self._most, self._claim = lane, most, claim
        heads = self._theirs()
        self.seen = heads[-1] if heads else _NO_HEAD
        self.shown = _NO_HEAD

    def _theirs(self) -> list[LedgerHead]:
        """All heads of the partner that were verified, since it last lost some. Other jobs may add to them at any time."""
        heads = [entry.body for entry in self._lane.entries if entry.kind == HEAD]
        lost = max((place for place, body in enumerate(heads) if body.get("lost")), default=0)
        return [_head(body["theirs"]) for body in heads[lost:]]

    def prove(self, seen: LedgerHead) -> HeadProof:
        """As :meth:`vfl_node.session.heads.Heads.prove`, with ``lost`` if the owner has accepted that it does not go on."""
        lane = self._lane
        lost = lane.find_link(seen.entries) != seen.link
        if lost and not any(_is_loss_of(entry, seen) for entry in lane.entries):
            self._claim(seen)
            raise older_error(lane.peer, seen.entries, len(lane.entries))
        start = 0 if lost else seen.entries
        shown = lane.entries[start : start + self._most]
        newest = shown[-1] if shown else lane.entries[start - 1] if start else None
        head = LedgerHead(entries=newest.number, link=newest.link, signature=newest.signature) if newest else _NO_HEAD
        return HeadProof(head=head, commits=[entry.commit for entry in shown], lost=lost)

    def sign(self, proof: HeadProof) -> HeadSigned:
        """As :meth:`vfl_node.session.heads.Heads.sign`."""
        lane, head = self._lane, proof.head
        seen = _NO_HEAD if proof.lost else self.seen
        links = {seen.entries: seen.link}
        for number, commit in enumerate(proof.commits, seen.entries + 1):
            links[number] = chain(links[number - 1], commit)
        others = [] if proof.lost else self._theirs()  # also those that jobs at the same time have seen
        if max(links) != head.entries or any(each.link != links.get(each.entries, each.link) for each in (head, *others)):
            raise ProtocolError(
                f"the ledger of {lane.peer} about this node does not go on from entry {seen.entries}, which it has shown",
                code="E_LEDGER_FORK",
                hint=f"{lane.peer} has changed or lost entries: its owner puts the newest copy of its state back, or accepts "
                "the loss (vfl-node accept-loss)",
                for_peer="its ledger does not go on from what it has shown before",
            )
        if head.entries:
            own = lane.signing.name
            _verify(self._peer_key, head.signature, entry_text(lane.peer, own, head.entries, head.link), lane.peer)
        key = lane.signing.key
        text = seen_text(lane.peer, lane.signing.name, head.entries, head.link)
        return HeadSigned(signature=key.sign(text) if key else b"")

    def keep(self, own: HeadProof, theirs: HeadProof, signed: HeadSigned) -> None:
        """As :meth:`vfl_node.session.heads.Heads.keep`."""
        lane, head = self._lane, own.head
        self.seen, self.shown = theirs.head, head
        if theirs.lost:
            log.warning("the owner of a peer has accepted that its ledger about this node is lost", peer=lane.peer)
        _verify(self._peer_key, signed.signature, seen_text(lane.signing.name, lane.peer, head.entries, head.link), lane.peer)
        signed_head = LedgerHead(entries=head.entries, link=head.link, signature=signed.signature)
        lane.append(HEAD, {"theirs": _body(theirs.head), "ours": _body(signed_head)} | ({"lost": True} if theirs.lost else {}))

    @property
    def _peer_key(self) -> Ed25519PublicKey | None:
        """The key that the peer signs with; None if its card is not here."""
        try:
            card = self._lane.signing.card(self._lane.peer)
        except (PolicyError, StateError, UsageError):
            return None
        return card.verifying_key if card else None


def older_error(peer: str, seen: int, entries: int) -> StateError:
    """The error of a node whose ledger about ``peer`` lacks what ``peer`` has seen of it."""
    return StateError(
        f"{peer} has seen entry {seen} of this node's ledger about it, and it is not among the {entries} that are here: what "
        f"this node remembers of {peer} is older than that, or gone, as after a backup was restored",
        code="E_STATE_OLDER",
        hint=f"put the newest copy of state/partners/{peer} back; if there is none: vfl-node accept-loss {peer}, which counts "
        f"as a changed set, since {peer} can compare what is drawn from now on with what is lost, and leaves hidden trainings "
        "nothing to spend",
        for_peer="what it remembers of earlier jobs with this node is older than they are, or gone; its owner has to decide",
    )


def _is_loss_of(entry: LaneEntry, seen: LedgerHead) -> bool:
    return entry.kind == LOST and (entry.body["entries"], entry.body["link"]) == (seen.entries, seen.link.hex())


def _head(body: dict[str, object]) -> LedgerHead:
    entries, link, signature = (body[key] for key in ("entries", "link", "signature"))
    return LedgerHead(entries=int(str(entries)), link=bytes.fromhex(str(link)), signature=bytes.fromhex(str(signature)))


def _body(head: LedgerHead) -> dict[str, object]:
    return {"entries": head.entries, "link": head.link.hex(), "signature": head.signature.hex()}


def _verify(key: Ed25519PublicKey | None, signature: bytes, text: bytes, peer: str) -> None:
    """Raise ProtocolError unless the owner of ``key`` has signed ``text``; nothing can be verified without a key."""
    if key is not None and not is_signed(key, signature, text):
        raise ProtocolError(
            f"{peer} has not signed what it shows of the ledger with the key on its card",
            code="E_LEDGER",
            hint=f"if {peer} has a new signing key: get its new card",
            for_peer="a signature under a ledger is not by the key on the card",
        )
