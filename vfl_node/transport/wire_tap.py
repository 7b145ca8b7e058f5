"""What a party of a job sent and received, by phase and type of message, and whether planted values were in it.

Bodies of messages are looked through and hashed, and never kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from typing_extensions import override

from vfl_node.errors import peer_text
from vfl_node.process.counters import MOVED
from vfl_node.transport.bounds import type_label
from vfl_node.transport.pipe import Digest
from vfl_node.transport.trace import MOST_CHARACTERS, Trace, TracedFrame


class Planted(Protocol):
    """Values of this party that are searched for in what it sends."""

    def find(self, body: bytes) -> Counter[str]:
        """What kinds of values are in a message, and how often."""

    def describe(self) -> dict[str, Any]:
        """How many values are searched for, in which forms, drawn by which seed."""


@dataclass
class TappedMessages:
    """Messages of one type in one phase, one way.

    Attributes:
        messages: how many.
        size: bytes of their frames.
        digest: SHA-256 over their bodies in order; the other party has the same.
        found: kind of planted value → how often.
    """

    messages: int = 0
    size: int = 0
    digest: Digest = field(default_factory=hashlib.sha256)
    found: Counter[str] = field(default_factory=Counter)


class WireTap(Trace):
    """A trace that also looks through what it takes; for a job of an owner who wants to know.

    Args:
        plant: gives what is searched for, once, before the first message that is sent; None: there is nothing.
        job_id: of the job.
    """

    def __init__(self, plant: Callable[[], Planted | None], job_id: str) -> None:
        super().__init__()
        self._job_id, self._before = job_id, MOVED.read(job_id)
        self._plant: Callable[[], Planted | None] | None = plant
        self._planted: Planted | None = None
        self._flows: dict[tuple[str, bool, str, str], TappedMessages] = {}
        self._tap = threading.Lock()

    @override
    def add(self, peer: str, attempt: int, frame: TracedFrame, since: int, *, sent: bool) -> None:
        super().add(peer, attempt, frame, since, sent=sent)
        body, phase, kind = bytes(frame.body), peer_text(frame.phase, MOST_CHARACTERS), type_label(frame.type)
        with self._tap:
            if sent and self._plant:
                self._planted, self._plant = self._plant(), None
            found = self._planted.find(body) if sent and self._planted else Counter[str]()
            flow = self._flows.setdefault((peer, sent, phase, kind), TappedMessages())
            flow.messages, flow.size = flow.messages + 1, flow.size + frame.ByteSize()
            flow.digest.update(body)
            flow.found += found

    def tell(self) -> dict[str, Any]:
        """What was looked at, once the job has ended.

        Returns:
            Searched (:meth:`Planted.describe`, None where nothing is); flows: peer, way, phase, type, and so on; metric: the
            bytes that ``vfl_peer_bytes_total`` rose by since this tap was made, and of what others of these were.
        """
        (total, others), (total_before, before) = MOVED.read(self._job_id), self._before
        metric = {
            "bytes": total - total_before,
            "others": {what: rise for what, size in others.items() if (rise := size - before.get(what, 0))},
        }
        with self._tap:
            flows = [
                {
                    "peer": peer,
                    "way": "sent" if sent else "received",
                    "phase": phase,
                    "type": kind,
                    "messages": flow.messages,
                    "bytes": flow.size,
                    "sha256": flow.digest.digest().hex(),
                    "found": dict(flow.found),
                }
                for (peer, sent, phase, kind), flow in self._flows.items()
            ]
            return {"searched": self._planted.describe() if self._planted else None, "flows": flows, "metric": metric}
