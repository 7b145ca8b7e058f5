"""Two parties' ledgers about each other, without a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vfl_node.node.partners import Partner
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead
from vfl_node.trust.heads import LaneHeads
from vfl_node.trust.lanes import Lane, LaneEntry


@dataclass
class Signer:
    """A party that signs (:class:`vfl_node.trust.lanes.Signing`).

    Attributes:
        name: of it.
        key: its own.
        keys: of others, by name, as their cards have them.
    """

    name: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    keys: dict[str, Ed25519PrivateKey] = field(default_factory=dict)

    def card(self, name: str) -> Any:
        return SimpleNamespace(verifying_key=self.keys[name].public_key()) if name in self.keys else None


def signers(one: str, other: str) -> tuple[Signer, Signer]:
    """Two parties that have each other's card."""
    both = Signer(one), Signer(other)
    both[0].keys[other], both[1].keys[one] = both[1].key, both[0].key
    return both


@dataclass
class Claimed:
    """A claim in memory (:class:`vfl_node.trust.heads.Claims`)."""

    missing: LedgerHead | None = None

    def read(self) -> LedgerHead | None:
        return self.missing

    def write(self, seen: LedgerHead | None) -> None:
        self.missing = seen


def heads_of(lane: Lane, most: int = 4096, claims: Claimed | None = None) -> LaneHeads:
    return LaneHeads(lane, most, claims or Claimed())


def exchange(one: LaneHeads, other: LaneHeads) -> None:
    """What two nodes show each other before a job."""
    seen = (one.seen, one.given_up), (other.seen, other.given_up)
    proofs = one.prove(*seen[1]), other.prove(*seen[0])
    signed = one.sign(proofs[1]), other.sign(proofs[0])
    one.keep(proofs[0], proofs[1], signed[1])
    other.keep(proofs[1], proofs[0], signed[0])


def meet(one: Partner, other: Partner, job: str) -> None:
    exchange(one.heads(job, {}), other.heads(job, {}))


def kinds(entries: list[LaneEntry]) -> list[str]:
    return [entry.kind for entry in entries]
