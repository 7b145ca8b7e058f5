"""Checks 4 to 6: the name of a peer's address, its port, and a proxy on the way."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from vfl_node.errors import PeerLost
from vfl_node.node.doctor.finding import Finding, fail, ok, warn
from vfl_node.node.doctor.route import PeerRoute

CONNECT_S = 5.0
"""How long an address may take to answer."""

SLOW_NAME_S = 1.0

Address = tuple[int, tuple[object, ...]]
"""Family and place, as :func:`socket.getaddrinfo` has them."""

_FAMILIES: dict[int, str] = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
_REASONS = {
    errno.ECONNREFUSED: "refused: nothing listens on that port, or a firewall refuses",
    errno.ETIMEDOUT: "no answer: the address is wrong, or a firewall drops the packets",
    errno.ENETUNREACH: "no route to that network",
    errno.EHOSTUNREACH: "no route to that machine",
    errno.EINVAL: "no route: this machine drops what goes there",
}


def check_name(route: PeerRoute, look_up: Callable[..., Any] = socket.getaddrinfo) -> tuple[list[Address], Finding]:
    """Check 4: the addresses to which gRPC would connect, and what was found."""
    (host, port), began = route.first, time.monotonic()
    whose = "the proxy " if route.proxy else ""
    try:
        found = look_up(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = f"{whose}{host} is not known to the network"
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            text = f"no DNS server answers about {whose}{host}"
        return [], fail(4, text, "compare the name with the one that the peer's owner gave; ask who runs DNS here")
    took_s = time.monotonic() - began
    addresses: list[Address] = list(dict.fromkeys((each[0], each[4]) for each in found))
    shown = ", ".join(str(place[0]) for _, place in addresses)
    text = f"{whose}{host} is {shown}" if host != shown else f"{whose}{host} is an address, and needs no name"
    figures = {"took_s": round(took_s, 3), "addresses": [str(place[0]) for _, place in addresses]}
    if took_s > SLOW_NAME_S:
        return addresses, warn(4, f"{text}; the answer took {took_s:.1f} s", "ask who runs DNS here", **figures)
    return addresses, ok(4, text, **figures)


def check_port(route: PeerRoute, addresses: list[Address], timeout_s: float = CONNECT_S) -> Finding:
    """Check 5: whether the port of each address accepts connections; all are tried at the same time."""
    outcomes = _connect_all(addresses, timeout_s)
    port, whose = route.first[1], "the proxy's port" if route.proxy else "port"
    open_ones = [place for place, error in outcomes.items() if not error]
    failed = {place: error for place, error in outcomes.items() if error}
    causes = {place: reason(error) for (_, place), error in failed.items()}
    figures = {"open": [place for _, place in open_ones], "failed": causes}
    if not open_ones:
        said = "; ".join(f"{place}: {cause}" for place, cause in causes.items())
        hint = "is that node running, and does it listen there? Ask its owner and whoever runs the firewalls on the way"
        return fail(5, f"{whose} {port} cannot be reached ({said})", hint, **figures)
    if failed:
        family, place = next(iter(failed))
        text = f"{whose} {port} is open at {open_ones[0][1]}, and not at {place} ({_FAMILIES[family]}; {causes[place]})"
        return warn(5, text, "correct the name's addresses: gRPC may try the dead one first", **figures)
    return ok(5, f"{whose} {port} is open", **figures)


def reason(error: int) -> str:
    """Why a connection was not made, for people; ``error``: number of the system."""
    return _REASONS.get(error, os.strerror(error).lower())


def _connect_all(addresses: list[Address], timeout_s: float) -> dict[tuple[int, str], int]:
    """Family and address → number of the error; 0: it is open."""
    outcomes: dict[tuple[int, str], int] = {}
    waiting: dict[int, tuple[socket.socket, tuple[int, str]]] = {}
    poll = select.poll()
    for family, place in addresses:
        key = family, str(place[0])
        try:
            plain = socket.socket(family, socket.SOCK_STREAM)
            plain.setblocking(False)
            error = plain.connect_ex(place)
        except OSError as failure:  # this machine has no such family
            outcomes[key] = failure.errno or errno.EHOSTUNREACH
            continue
        if error == errno.EINPROGRESS:
            waiting[plain.fileno()] = plain, key
            poll.register(plain, select.POLLOUT)
        else:
            outcomes[key] = error
            plain.close()
    limit = time.monotonic() + timeout_s
    while waiting and (left := limit - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(1000 * left):
            plain, key = waiting.pop(descriptor)
            poll.unregister(descriptor)
            outcomes[key] = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            plain.close()
    for plain, key in waiting.values():
        outcomes[key] = errno.ETIMEDOUT
        plain.close()
    return outcomes


def check_proxy(route: PeerRoute) -> Finding:
    """Check 6: whether a proxy stands on the way, by what the environment says, and lets connections through."""
    if not route.proxy:
        return ok(6, "no proxy is used: the environment names none for this address")
    named = f"the proxy {route.proxy} ({route.variable})"
    hint = "ask who runs the proxy to let CONNECT through to this port, or name the peer in no_proxy"
    try:
        route.connect(CONNECT_S).close()
    except PeerLost as error:
        return fail(6, f"{named} does not let the connection through: {error.message}", hint, proxy=route.proxy)
    except OSError as error:
        return fail(6, f"{named} does not answer ({error.strerror or error})", hint, proxy=route.proxy)
    text = f"{named} lets the connection through; jobs depend on it"
    return warn(6, text, "let the peer be reached without it, by no_proxy, if the network allows it", proxy=route.proxy)
