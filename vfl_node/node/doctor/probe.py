"""Measures the line to a peer by a probe: clock, round trips, rate, big messages, the way back, and silence."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vfl_node.errors import PeerError, PeerLost, ProtocolError, VflError, peer_text
from vfl_node.process.machine import free_bytes
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Hello, ProbeMessage
from vfl_node.transport.probes import PROBE_S, ProbeStream

ECHOES, FEWEST_ECHOES, ECHOES_S = 20, 3, 2.0
"""So many round trips are measured, fewer where they take longer than this in all."""

SIZES = tuple(1 << bits for bits in range(14, 25, 2))
"""Bytes of the messages that are sent, and then asked for: 16 KiB to 16 MiB."""

BIG = tuple(size for size in SIZES if size >= 1 << 20)

TRANSFER_S = 2.0
"""How long messages may take each way; a size that would take longer is left out."""

COPIES = 8
"""Copies of a message that may be in memory at once; a size for which this machine has no room is left out."""

ANSWER_S = 10.0


@dataclass(frozen=True)
class Echoed:
    """One round trip: what the clocks said, in µs since 1970, and how long it took."""

    sent_us: int
    heard_us: int
    answered_us: int
    received_us: int
    took_s: float

    @property
    def offset_s(self) -> float:
        """How far the peer's clock is ahead, if both ways take as long."""
        return ((self.heard_us - self.sent_us) + (self.answered_us - self.received_us)) / 2e6


@dataclass
class ProbeResult:
    """What a probe has measured; it may have broken off.

    Attributes:
        hello: the peer's greeting.
        kernel: of the peer.
        echoes: its round trips.
        dialled: what came of dialling back; 0: not known.
        up: size → seconds to send a message of so many bytes, a round trip aside.
        down: the same for one that the peer sends.
        tried: the size that was under way last, in bytes.
        upwards: whether this node sent it.
        broke: why the line broke off; None: it did not.
        late: whether it broke off only because a probe may take no longer.
        damaged: the size of a message that arrived otherwise than it was sent; 0: none did.
        held_s: for how many seconds the line was silent and did not break; None: that was not tried.
        cut_s: how long after the silence began the line broke; None: it did not.
    """

    hello: Hello | None = None
    kernel: str = ""
    echoes: list[Echoed] = field(default_factory=list)
    dialled: int = 0
    up: dict[int, float] = field(default_factory=dict)
    down: dict[int, float] = field(default_factory=dict)
    tried: int = 0
    upwards: bool = True
    broke: VflError | None = None
    late: bool = False
    damaged: int = 0
    held_s: float | None = None
    cut_s: float | None = None

    @property
    def best(self) -> Echoed | None:
        """The quickest round trip, which says most about clocks."""
        return min(self.echoes, key=lambda each: each.took_s, default=None)

    def rate_mbit_s(self, times: dict[int, float]) -> float | None:
        """By the largest message of ``times``; None where there is none."""
        largest = max(times, default=0)
        return largest * 8 / max(times[largest], 1e-6) / 1e6 if largest else None


def measure(dialer: Dialer, idle_s: float = 0, clock: Callable[[], float] = time.monotonic) -> ProbeResult:
    """Probe the line, and leave it silent for ``idle_s`` seconds after that.

    Raises:
        PeerError: the peer refuses the probe, with its code, or is of a release that knows none (``E_UNREACHABLE``).
    """
    stream = dialer.probe(timeout_s=ANSWER_S)
    found = ProbeResult()
    began = clock()
    try:
        first = _next(stream)
        found.hello, found.kernel = first.hello, peer_text(first.kernel, 40)
        _echo(stream, found, clock)
        found.dialled = _ask(stream, found, ProbeMessage(dial_back=True)).dialled
        for times, upwards in ((found.up, True), (found.down, False)):
            _transfer(stream, found, times, upwards=upwards, limit=began + PROBE_S, clock=clock)
        found.tried = 0
        if idle_s:
            _hold(stream, found, idle_s, clock)
    except (PeerLost, ProtocolError) as error:
        found.broke, found.late = error, clock() - began >= PROBE_S - 0.5
    finally:
        stream.close()
    return found


def _next(stream: ProbeStream, timeout_s: float = ANSWER_S) -> ProbeMessage:
    message = stream.receive(timeout_s)
    if message is None:
        raise PeerLost(f"no answer within {timeout_s:.0f} s")
    return message


def _ask(stream: ProbeStream, found: ProbeResult, question: ProbeMessage, timeout_s: float = ANSWER_S) -> ProbeMessage:
    """The answer to a question; its digest is checked. Raises PeerLost, ProtocolError."""
    question.number = len(found.echoes) + len(found.up) + len(found.down) + 1
    stream.send(question)
    answer = _next(stream, timeout_s)
    if answer.number != question.number or len(answer.random) != question.wanted_bytes:
        raise ProtocolError("an answer to another question came")
    sent = question.random + answer.random
    if sent and hashlib.sha256(sent).digest() != answer.sha256:
        found.damaged = len(sent)
    return answer


def _echo(stream: ProbeStream, found: ProbeResult, clock: Callable[[], float]) -> None:
    limit = clock() + ECHOES_S
    while len(found.echoes) < ECHOES and (clock() < limit or len(found.echoes) < FEWEST_ECHOES):
        sent_us, began = time.time_ns() // 1000, clock()
        answer = _ask(stream, found, ProbeMessage())
        took_s, received_us = clock() - began, time.time_ns() // 1000
        found.echoes.append(Echoed(sent_us, answer.heard_us, answer.answered_us, received_us, took_s))


def _transfer(
    stream: ProbeStream,
    found: ProbeResult,
    times: dict[int, float],
    *,
    upwards: bool,
    limit: float,
    clock: Callable[[], float],
) -> None:
    """Send messages or ask for them, each four times as large as the one before, while time and memory suffice."""
    best = found.best.took_s if found.best else 0.0
    found.upwards, until, spent = upwards, min(clock() + TRANSFER_S, limit - 0.5), 0.0
    room = free_bytes() / COPIES
    for size in SIZES:
        if clock() + 4 * spent > until or size > room:
            return
        found.tried, began = size, clock()
        question = ProbeMessage(random=os.urandom(size)) if upwards else ProbeMessage(wanted_bytes=size)
        _ask(stream, found, question, PROBE_S)
        spent = clock() - began
        times[size] = max(spent - best, 1e-6)


def _hold(stream: ProbeStream, found: ProbeResult, idle_s: float, clock: Callable[[], float]) -> None:
    began = clock()
    try:
        _ask(stream, found, ProbeMessage(hold_s=max(1, round(idle_s))), idle_s + ANSWER_S)
        found.held_s = clock() - began
    except PeerError:
        found.cut_s = clock() - began
