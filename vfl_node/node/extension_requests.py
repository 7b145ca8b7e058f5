"""Requests for more of a budget as a node keeps them: of each partner the newest either way, and all that were agreed on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import structlog

from vfl_node.node.persons import Yes
from vfl_node.node.store import Store
from vfl_node.settings.node import Settings
from vfl_node.trust.extensions import EXTEND, ExtensionRequest, make_entry, parse_request

log = structlog.get_logger()

Side = Literal["ours", "theirs"]
"""Whose request it is."""

SIDES: tuple[Side, ...] = ("ours", "theirs")

OPEN = ("drafted", "asked")
"""States of a request that is not decided: it waits for a second person of who asks; it waits for who was asked."""


@dataclass(frozen=True)
class Kept:
    """A request as this node keeps it.

    Attributes:
        request: as it was signed.
        state: drafted, asked, refused or withdrawn; whether it was agreed on is in the ledger.
        said: persons of this node who have said yes to it.
        why: it was refused, in words of the partner's node.
    """

    request: ExtensionRequest
    state: str
    said: tuple[Yes, ...] = ()
    why: str = ""

    def to_bytes(self) -> bytes:
        """JSON."""
        said = [asdict(each) for each in self.said]
        kept = {"envelope": self.request.envelope.decode(), "state": self.state, "said": said, "why": self.why}
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Kept:
        """As :meth:`to_bytes` wrote it."""
        kept = json.loads(data)
        said = tuple(Yes(**each) for each in kept["said"])
        return cls(parse_request(kept["envelope"].encode()), kept["state"], said, kept["why"])


class ExtensionRequests:
    """The requests between one node and its peers.

    Args:
        settings: of this node.
        store: its memory of partners.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def all(self) -> Iterator[tuple[str, Side, Kept]]:
        """The newest of and to each peer with a link."""
        for partner in self._settings.connected:
            for side in SIDES:
                if kept := self.recall(partner, side):
                    yield partner, side, kept

    def recall(self, partner: str, side: Side) -> Kept | None:
        """The newest one. Raises StateError where it is damaged."""
        met = (self._settings.state_dir / "partners" / partner).exists()
        data = self._store.partner(partner).recall(f"extension-{side}") if met else None
        return Kept.from_bytes(data) if data else None

    def keep(self, partner: str, side: Side, kept: Kept) -> None:
        """Keep it in place of the one before. Raises OSError, StateError."""
        self._store.partner(partner).update(f"extension-{side}", lambda _: kept.to_bytes())

    def agree(self, partner: str, request: ExtensionRequest, approval: bytes) -> None:
        """Write down in the ledger what both owners have agreed on. Raises OSError, StateError."""
        self._store.partner(partner).lane.append(EXTEND, make_entry(request, approval))
        log.info("more of a budget is agreed on", peer=partner, request=request.id, budget=request.wish.budget)

    def approval(self, partner: str, request: ExtensionRequest) -> bytes | None:
        """The approval of a request that was agreed on; else None."""
        entries = self._store.partner(partner).lane.list(EXTEND)
        return next((entry.body["approval"].encode() for entry in entries if entry.body["id"] == request.id), None)

    def state(self, partner: str, kept: Kept) -> str:
        """One of drafted, asked, refused, withdrawn, agreed, expired."""
        if self.approval(partner, kept.request) is not None:
            return "agreed"
        return "expired" if kept.state in OPEN and kept.request.has_expired else kept.state
