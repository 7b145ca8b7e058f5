"""Checks 9 to 13: what the figures of a probe say."""

from __future__ import annotations

import math
import statistics
from datetime import datetime, timezone

from vfl_node.errors import UsageError
from vfl_node.node.doctor.finding import Finding, fail, ok, skip, warn
from vfl_node.node.doctor.need import JobNeed
from vfl_node.node.doctor.probe import BIG, ProbeResult
from vfl_node.node.peer_state import MOST_CLOCK_S
from vfl_node.report.words import human_seconds
from vfl_node.transport.probes import NO_ADDRESS, REACHED

CLOCK_WARN_S, CLOCK_FAIL_S = 30, 300
SLOW_MBIT_S = 1.0
QUEUED_MS = 50.0
"""A slow round trip that takes three times the usual one and so much more is one that waited, or was sent again."""

PINGS_S = 10


def check_clock(peer: str, found: ProbeResult) -> Finding:
    """Check 9: how far the clocks of both nodes are apart."""
    best = found.best
    if best is None:
        return skip(9, f"the line broke off before the clock of {peer} was read")
    offset, here = best.offset_s, best.received_us / 1e6
    figures = {"offset_s": round(offset, 3), "uncertainty_s": round(best.took_s / 2, 4)}
    if abs(offset) <= CLOCK_WARN_S:
        return ok(9, f"the clocks are {abs(offset):.2f} s apart (± {best.took_s / 2:.2f} s)", **figures)
    hint = "set both clocks by a time server: certificates and answers hold for a time"
    if not 0 < here + offset < MOST_CLOCK_S:
        return fail(9, f"the clock of {peer} says no time that can be", hint, **figures)
    ours, theirs = (f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S}" for at in (here, here + offset))
    text = f"the clock of {peer} says {theirs} UTC, and this node's says {ours}: {human_seconds(abs(offset))} apart"
    return (fail if abs(offset) > CLOCK_FAIL_S else warn)(9, text, hint, **figures)


def check_rate(peer: str, found: ProbeResult, need: JobNeed) -> Finding:
    """Check 10: round trips and rates, and how long the alignment of a job would take."""
    if not found.echoes:
        text = f"the line broke off at once ({found.broke.message if found.broke else 'no answer'})"
        return fail(10, text, f"try again; if it repeats, something between {peer} and this node ends connections")
    took_ms = sorted(1000 * each.took_s for each in found.echoes)
    median, p95 = statistics.median(took_ms), took_ms[math.ceil(0.95 * len(took_ms)) - 1]
    up, down = found.rate_mbit_s(found.up), found.rate_mbit_s(found.down)
    rates = [rate for rate in (up, down) if rate is not None]
    figures = {"rtt_ms": round(median, 2), "rtt_p95_ms": round(p95, 2), "up_mbit_s": up, "down_mbit_s": down}
    figures = {name: value if value is None else float(f"{value:.4g}") for name, value in figures.items()}
    said = f"round trip {median:.1f} ms (95 % within {p95:.1f} ms)"
    said += "".join(f", {rate:.3g} Mbit/s {way}" for rate, way in ((up, "there"), (down, "back")) if rate is not None)
    if rates and need.job and (costs := _costs(need, min(rates), median)):
        low, high = costs
        figures["alignment_s"] = round(high, 1)
        said += f"; {need.words}: the alignment takes about {human_seconds((low + high) / 2)}"
    if rates and min(rates) < SLOW_MBIT_S:
        hint = "see vfl-node estimate for what a job takes on such a line, or ask for a faster one"
        return warn(10, f"{said}: the line is slow", hint, **figures)
    if p95 > 3 * median + QUEUED_MS:
        hint = "packets are lost, or wait behind others: ask who runs the line"
        return warn(10, f"{said}: some take much longer", hint, **figures)
    return ok(10, said, **figures)


def _costs(need: JobNeed, rate_mbit_s: float, rtt_ms: float) -> tuple[float, float] | None:
    """Seconds that the job's alignment takes at the least and the most; None where nobody knows."""
    try:
        costs = need.costs(rate_mbit_s, rtt_ms)
    except UsageError:
        return None
    return costs["wall_s"] if costs else None


def check_big_messages(peer: str, found: ProbeResult) -> Finding:
    """Check 11: whether messages of 1, 4 and 16 MiB arrive as they were sent."""
    whole = sorted(set(found.up) & set(found.down))
    figures = {"whole_bytes": whole[-1] if whole else 0, "sent_bytes": sum(found.up), "received_bytes": sum(found.down)}
    if found.damaged:
        text = f"a message of {_size(found.damaged)} arrives otherwise than it was sent"
        return fail(11, text, "something between changes what passes: ask who runs the devices on the way", **figures)
    if found.tried and found.broke and not found.late:
        way = f"to {peer}" if found.upwards else f"from {peer}"
        passed = _size(sum(found.up if found.upwards else found.down))
        text = f"the line is cut in a message of {_size(found.tried)} {way}, after {passed} had passed"
        hint = "something between allows no more on one connection: ask who runs the proxies and firewalls on the way"
        return fail(11, text, hint, **figures)
    if not whole or whole[-1] < BIG[0]:
        return skip(11, "there was no time or memory for a message of 1 MiB", "see checks 10 and 17")
    missing = [size for size in BIG if size > whole[-1]]
    rest = f"; {_size(missing[0])} was left out, for want of time or memory" if missing else ""
    return ok(11, f"messages of up to {_size(whole[-1])} arrive whole, both ways{rest}", **figures)


def check_idle(peer: str, found: ProbeResult, idle_s: float) -> Finding:
    """Check 12: whether a connection that carries nothing but pings is cut."""
    if not idle_s:
        return skip(12, "it takes a while, and was not asked for", "add --idle 60")
    pings = f"pings every {PINGS_S} s"
    if found.held_s is not None:
        text = f"a connection with nothing but {pings} stays open for {found.held_s:.0f} s"
        return ok(12, f"{text}; one without pings was not tried, since no node has one", held_s=round(found.held_s))
    if found.cut_s is None:
        return skip(12, "the line broke off before")
    text = f"a connection with nothing but {pings} is cut after {found.cut_s:.0f} s"
    hint = f"have whoever runs the firewalls on the way keep connections to {peer} open while they carry pings"
    return fail(12, text, hint, cut_s=round(found.cut_s, 1))


def check_way_back(peer: str, found: ProbeResult, *, listens: bool, runs: bool) -> Finding:
    """Check 13: whether the peer reaches this node at the address that it has for it."""
    if not found.dialled:
        return skip(13, f"the line broke off before {peer} had dialled back")
    if found.dialled == NO_ADDRESS:
        here = "this node needs no listen" if listens else "this node has no listen, and needs none"
        return ok(13, f"{peer} has no address of this node and waits for its call: fine, {here}", dialled="no address")
    if found.dialled == REACHED:
        return ok(13, f"{peer} reaches this node at the address that it has", dialled="reached")
    if listens and not runs:
        return skip(13, f"this node does not run, so {peer} cannot reach it", "start it, and try again in a minute")
    text = f"this node can call {peer}, {peer} cannot call this node: fine, this node needs no listen"
    if not listens:
        return ok(13, text, dialled="not reached")
    return warn(13, text, "take the address away at both, or open the port of listen for the peer", dialled="not reached")


def _size(count: int) -> str:
    """A number of bytes in the powers of two in which they were sent."""
    return f"{count / 2**20:.3g} MiB" if count >= 1 << 20 else f"{count / 2**10:.3g} KiB"
