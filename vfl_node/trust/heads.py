"""Heads of a node's lanes, shown to the partner and signed by it: neither can change what was counted without the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vfl_node.errors import ProtocolError, StateError
from vfl_node.transport.generated.vfl.v1.session_pb2 import HeadProof, HeadSigned, LedgerHead
from vfl_node.trust.lane_check import is_signed
from vfl_node.trust.lanes import NO_LINK, Lane, LaneEntry, chain, entry_text, public_text, seen_text

_NO_HEAD = LedgerHead(link=NO_LINK)

BEGIN, LEARNT, HEAD, LOST, PEER_LOST = "begin", "learnt", "head", "loss", "peer-loss"
"""Kinds of entries: a job; what both learnt by it; both heads; what the partner has seen and is lost here; what it has lost."""


class Claims(Protocol):
    """What the partner has seen of a lane and the lane lacks, until the owner accepts the loss."""

    def read(self) -> LedgerHead | None:
        """The head that is missing; None if none is."""

    def write(self, seen: LedgerHead | None) -> None:
        """Write down that this head is missing; None: none is any more."""


class LaneHeads:
    """The heads of one lane (:class:`vfl_node.session.heads.Heads`).

    Attributes:
        seen: as :attr:`vfl_node.session.heads.Heads.seen`.
        given_up: as :attr:`vfl_node.session.heads.Heads.given_up`.
        shown: as :attr:`vfl_node.session.heads.Heads.shown`.
    """

    def __init__(self, lane: Lane, most: int, claims: Claims) -> None:
        """Show a lane to its partner; a proof goes on by at most ``most`` entries. Raises StateError if it is damaged."""
        self._lane, self._most, self._claims = lane, most, claims
        heads = self._theirs()
        self.seen = _head(heads[-1]) if heads else _NO_HEAD
        lost = [] if heads else lane.list(PEER_LOST)
        self.given_up = (
            LedgerHead(entries=lost[-1].body["entries"], link=bytes.fromhex(lost[-1].body["link"])) if lost else None
        )
        self.shown = _NO_HEAD

    def prove(self, seen: LedgerHead, given_up: LedgerHead | None = None) -> HeadProof:
        """As :meth:`vfl_node.session.heads.Heads.prove`.

        A head that was missing once stays missing, whatever the partner says later, until it is here again or the owner has
        accepted the loss. What the partner's owner has accepted this owner must accept, too.
        """
        lane = self._lane
        for missing in (seen, given_up, self._claims.read()):
            if missing and lane.find_link(missing.entries) != missing.link:
                accepted = any(_is_loss_of(entry, missing) for entry in lane.entries)
                if accepted and missing is not seen:
                    continue
                if not accepted:
                    self._claims.write(missing)
                raise older_error(lane.peer, lane.signing.name, missing.entries, len(lane.entries), accepted=accepted)
        self._claims.write(None)
        shown = lane.entries[seen.entries : seen.entries + self._most]
        number = seen.entries + len(shown)
        head = LedgerHead(entries=number, link=lane.find_link(number))
        if key := lane.signing.key:  # of today, whichever key has signed the entry
            head.signature = key.sign(entry_text(lane.signing.name, lane.peer, number, head.link))
        return HeadProof(head=head, commits=[entry.commit for entry in shown])

    def sign(self, proof: HeadProof) -> HeadSigned:
        """As :meth:`vfl_node.session.heads.Heads.sign`."""
        lane, head, own = self._lane, proof.head, self._lane.signing.name
        links = {self.seen.entries: self.seen.link}
        for number, commit in enumerate(proof.commits, self.seen.entries + 1):
            links[number] = chain(links[number - 1], commit)
        others = self._theirs()  # also those that jobs at the same time have seen
        if (
            max(links) != head.entries
            or links[head.entries] != head.link
            or any(links.get(each["entries"], bytes.fromhex(each["link"])).hex() != each["link"] for each in others)
        ):
            raise ProtocolError(
                f"the ledger of {lane.peer} about this node does not go on from what it has shown before",
                code="E_LEDGER_FORK",
                hint=f"{lane.peer} has changed or lost entries: its owner puts the newest copy of its state back. If there is "
                f"none, and you accept that its ledger begins anew: vfl-node accept-loss {lane.peer} --of-peer",
                for_peer="its ledger does not go on from what it has shown before",
            )
        _verify(self._peer_key, head.signature, entry_text(lane.peer, own, head.entries, head.link), lane.peer)
        key = lane.signing.key
        return HeadSigned(signature=key.sign(seen_text(lane.peer, own, head.entries, head.link)) if key else b"")

    def keep(self, own: HeadProof, theirs: HeadProof, signed: HeadSigned) -> None:
        """As :meth:`vfl_node.session.heads.Heads.keep`; nothing is written where both have added nothing but heads."""
        lane, head, key = self._lane, own.head, self._peer_key
        _verify(key, signed.signature, seen_text(lane.signing.name, lane.peer, head.entries, head.link), lane.peer)
        self.seen, self.shown = theirs.head, head
        if lane.entries[-1].kind == HEAD and len(theirs.commits) <= 1:
            return
        signed_head = LedgerHead(entries=head.entries, link=head.link, signature=signed.signature)
        by = {"key": public_text(key)} if key else {}
        lane.append(HEAD, {"theirs": _body(theirs.head), "ours": _body(signed_head), **by})

    def _theirs(self) -> list[Mapping[str, Any]]:
        """All heads of the partner since this owner has last accepted that it lost some. Other jobs may add to them."""
        begun = max((entry.number for entry in self._lane.list(PEER_LOST)), default=0)
        return [entry.body["theirs"] for entry in self._lane.list(HEAD) if entry.number > begun]

    @property
    def _peer_key(self) -> Ed25519PublicKey | None:
        """The key that the peer signs with; None if it has no card here. Raises as reading the card."""
        card = self._lane.signing.card(self._lane.peer)
        return card.verifying_key if card else None


def older_error(peer: str, own: str, seen: int, entries: int, *, accepted: bool = False) -> StateError:
    """The error of the node ``own`` whose ledger about ``peer`` lacks what ``peer`` has seen of it."""
    missing = f"{peer} has seen entry {seen} of this node's ledger about it, and it is not among the {entries} that are here"
    if accepted:
        return StateError(
            f"{missing}: the loss is accepted here, and not by {peer}",
            code="E_STATE_OLDER",
            hint=f"the owner of {peer} must accept it, too: vfl-node accept-loss {own} --of-peer",
            for_peer="it has lost what it remembers of earlier jobs with this node, and its owner has accepted that",
        )
    return StateError(
        f"{missing}: what this node remembers of {peer} is older than that, or gone, as after a backup was restored",
        code="E_STATE_OLDER",
        hint=f"stop this node, put the newest copy of state/partners/{peer} back, and start it; if there is none: vfl-node "
        f"accept-loss {peer}, which counts as a changed set, since {peer} can compare what is drawn from now on with what is "
        f"lost, and leaves hidden trainings nothing to spend. The owner of {peer} must accept the loss, too",
        for_peer="what it remembers of earlier jobs with this node is older than they are, or gone; its owner has to decide",
    )


def _is_loss_of(entry: LaneEntry, seen: LedgerHead) -> bool:
    return entry.kind == LOST and (entry.body["entries"], entry.body["link"]) == (seen.entries, seen.link.hex())


def _head(body: Mapping[str, Any]) -> LedgerHead:
    return LedgerHead(entries=body["entries"], link=bytes.fromhex(body["link"]), signature=bytes.fromhex(body["signature"]))


def _body(head: LedgerHead) -> dict[str, object]:
    return {"entries": head.entries, "link": head.link.hex(), "signature": head.signature.hex()}


def _verify(key: Ed25519PublicKey | None, signature: bytes, text: bytes, peer: str) -> None:
    """Raise ProtocolError unless the owner of ``key`` has signed ``text``; nothing can be verified without a key."""
    if key is not None and not is_signed(key, signature, text):
        raise ProtocolError(
            f"{peer} has not signed what it shows of the ledger with the key on its card",
            code="E_LEDGER",
            hint=f"{peer} has another signing key than on the card that you have: pair with it again",
            for_peer="a signature under a ledger is not by the key on the card",
        )
