"""Requests for more of a budget as a node keeps them: of each partner the newest either way, and all that were agreed on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import structlog

from vfl_node.errors import StateError, VflError
from vfl_node.node.persons import Yes
from vfl_node.node.store import Store
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Settings
from vfl_node.trust.extensions import EXTEND, ExtensionRequest, make_entry, parse_request

log = structlog.get_logger()

Side = Literal["ours", "theirs"]
"""Whose request it is."""

SIDES: tuple[Side, ...] = ("ours", "theirs")

State = Literal["drafted", "asked", "refused", "withdrawing", "withdrawn", "agreed", "expired"]
"""``drafted``: a second person of who asks must say yes. ``withdrawing``: who was asked has not heard that it is taken back."""


@dataclass(frozen=True)
class Kept:
    """A request as this node keeps it.

    Attributes:
        request: as it was signed.
        state: of it, but for agreed and expired.
        said: persons of this node who have said yes to it.
        why: it was refused, in words of the partner's node.
    """

    request: ExtensionRequest
    state: State
    said: tuple[Yes, ...] = ()
    why: str = ""

    def to_bytes(self) -> bytes:
        """JSON."""
        said = [asdict(each) for each in self.said]
        kept = {"envelope": self.request.envelope.decode(), "state": self.state, "said": said, "why": self.why}
        return json.dumps(kept).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Kept:
        """As :meth:`to_bytes` wrote it. Raises ValueError, KeyError, TypeError or PolicyError if it is of another release."""
        kept = json.loads(data)
        said = tuple(Yes(**each) for each in kept["said"])
        return cls(parse_request(kept["envelope"].encode()), kept["state"], said, kept["why"])


class ExtensionRequests:
    """The requests between one node and its peers. One that is damaged is none: its owner asks again.

    Args:
        settings: of this node.
        store: its memory of partners.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def all(self) -> Iterator[tuple[str, Side, Kept, State]]:
        """The newest of and to each peer with a link, with its state; not those with whom the ledger is damaged."""
        for partner in self._settings.connected:
            for side in SIDES:
                try:
                    if kept := self.recall(partner, side):
                        yield partner, side, kept, self.state(partner, kept)
                except StateError as error:
                    log.warning("requests of a partner cannot be looked up", peer=partner, code=error.code)

    def recall(self, partner: str, side: Side) -> Kept | None:
        """The newest one; None if there is none that can be read."""
        try:
            return Kept.from_bytes(read_checked(self._path(partner, side)))
        except FileNotFoundError:
            return None
        except (VflError, ValueError, KeyError, TypeError):
            log.warning("a request for more of a budget cannot be read any more", peer=partner, side=side)
            return None

    def keep(self, partner: str, side: Side, kept: Kept) -> None:
        """Keep it in place of the one before. Raises OSError, StateError."""
        _ = self._store.partner(partner)  # which makes the folder
        write_checked(self._path(partner, side), kept.to_bytes())

    def agree(self, partner: str, request: ExtensionRequest, approval: bytes) -> None:
        """Write down in the ledger what both owners have agreed on, once. Raises OSError, StateError."""
        with (lane := self._store.partner(partner).lane).held():
            if self.approval(partner, request.id) is None:
                lane.append(EXTEND, make_entry(request, approval))
                log.info("more of a budget is agreed on", peer=partner, request=request.id, budget=request.wish.budget)

    def approval(self, partner: str, request_id: str) -> bytes | None:
        """The approval of a request that was agreed on; else None. Raises StateError."""
        if not self._path(partner, "ours").parent.exists():
            return None
        entries = self._store.partner(partner).lane.list(EXTEND)
        return next((entry.body["approval"].encode() for entry in entries if entry.body["id"] == request_id), None)

    def state(self, partner: str, kept: Kept) -> State:
        """How it stands. Raises StateError."""
        if self.approval(partner, kept.request.id) is not None:
            return "agreed"
        late = kept.request.is_over if kept.state == "withdrawing" else kept.request.has_expired
        return "expired" if kept.state in ("drafted", "asked", "withdrawing") and late else kept.state

    def _path(self, partner: str, side: Side) -> Path:
        return self._settings.state_dir / "partners" / partner / f"extension-{side}.kept"
