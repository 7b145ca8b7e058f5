"""Whether a node works, can take jobs, and what its owner should see to: ``/live``, ``/ready`` and ``/health``.

A *fault* keeps the node from any job: ``/ready`` is 503, and ``/health`` says ``failing``. Any other cause makes it
``degraded``: some jobs cannot run, or will not soon. Faults are looked for at most once in :data:`LOOK_S`, however often
anybody asks.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from vfl_node.errors import StateError, VflError
from vfl_node.node.backup import last_backup
from vfl_node.node.draining import Draining
from vfl_node.node.faults import explain
from vfl_node.node.ledgers import describe_heads, partners_met
from vfl_node.node.peer_state import CLOCKS_S
from vfl_node.node.peers import Peers
from vfl_node.node.policies import Policies
from vfl_node.node.schedules import Schedules
from vfl_node.node.spending import counts_with
from vfl_node.node.start_check import StartCheck
from vfl_node.node.store import Store
from vfl_node.process.machine import machine_state, utc_now
from vfl_node.settings.node import Settings

TICK_S = 10.0
"""A main loop that has not been round for so long does not live."""

LOOK_S = 2.0
"""How long what was found of the state folder, the certificate and the ledgers is used again."""

AWAY = timedelta(minutes=5)
"""A peer that has been away for longer is a cause."""

EXPIRY_DAYS = 14
"""A certificate that ends sooner is a cause: a node that can renew its own does so 30 days before."""

LOW_DISK = 10**9
"""Fewer free bytes where the state folder lies are a cause."""

_PROBE = bytes(4096)


@dataclass(frozen=True)
class Cause:
    """Something that is wrong.

    Attributes:
        about: what it is about; one thing has one cause at a time.
        code: as that of an error.
        text: what is wrong, for this node's owner.
        hint: what to do about it.
        since: when it began, where that is known better than by when it was first seen.
    """

    about: str
    code: str
    text: str
    hint: str
    since: str = ""


class Health:
    """The health of one node. Safe to use from several threads.

    Args:
        settings: of the node.
        store: its jobs.
        peers: its links.
        tables: what is known of its tables.
        policies: its policy.
        draining: whether no job may begin.
        schedules: its jobs by a clock.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        peers: Peers,
        tables: StartCheck,
        policies: Policies,
        draining: Draining,
        schedules: Schedules,
    ) -> None:
        self._settings, self._store, self._peers, self._schedules = settings, store, peers, schedules
        self._tables, self._policies, self._draining = tables, policies, draining
        self._lock = threading.Lock()
        self._ticked = time.monotonic()
        self._looked: float | None = None
        self._faults: list[Cause] = []
        self._since: dict[tuple[str, str], str] = {}

    def tick(self) -> None:
        """The main loop has been round."""
        self._ticked = time.monotonic()

    def is_live(self) -> bool:
        """Whether the main loop has been round lately. It says nothing of peers and disks: a restart would not help them."""
        return time.monotonic() - self._ticked < TICK_S

    def list_faults(self) -> list[str]:
        """Codes of what keeps this node from any job, each once; none: it is ready."""
        return list(dict.fromkeys(fault.code for fault in self._current_faults()))

    def find_status(self) -> str:
        """``ok``, ``degraded`` or ``failing``; found out with no more work than that takes, since anybody may ask."""
        return _judge(self._current_faults(), self._find_others(self._peers.status()))

    def describe(self) -> dict[str, Any]:
        """For the owner: ``status`` (ok, degraded or failing), ``causes``, ``certificates``, ``backup_age_s`` and ``ledger``.

        A cause has code, since, text and hint; those that fail come first. A certificate has party, kind and days. The ledger
        has, for each partner, entries and head_age_s (since the partner last signed what it has seen; None: never).
        """
        faults, peers = self._current_faults(), self._peers.status()
        others = list(self._find_others(peers))
        causes = [*faults, *others]
        with self._lock:
            now = utc_now()
            known = {(cause.about, cause.code): cause.since or now for cause in causes}
            self._since = {key: self._since.get(key, since) for key, since in known.items()}
            dated = [(cause, cause.since or self._since[cause.about, cause.code]) for cause in causes]
        return {
            "status": _judge(faults, others),
            "causes": [{"code": each.code, "since": since, "text": each.text, "hint": each.hint} for each, since in dated],
            "certificates": [
                {"party": party, "kind": "leaf", "days": days} for party, days in self._days_left(peers) if days is not None
            ],
            "backup_age_s": measure_backup_age(self._settings.state_dir),
            "ledger": describe_heads(self._settings, partners_met(self._settings)),
        }

    def _current_faults(self) -> list[Cause]:
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked >= LOOK_S:
                self._faults, self._looked = list(self._find_faults()), time.monotonic()
            return self._faults

    def _find_faults(self) -> Iterator[Cause]:
        for about, check in (("state", self._store.check_there), ("index", self._check_index), ("disk", self._check_writable)):
            try:
                check()
            except (VflError, OSError, sqlite3.Error) as cause:
                error = explain(cause)
                yield Cause(about, error.code, error.message, error.hint)
                if about == "state":
                    return  # all else would say the same again
                break
        if self._draining:
            yield Cause("drain", "E_DRAINING", "this node begins no job, as its owner wishes", "vfl-node drain --off")
        if (watch := self._peers.certificates) and (fault := watch.fault):
            hint = f"{self._say_how_to_renew()}; or set this machine's clock. The node reads it within 20 s"
            yield Cause("certificate", "E_CERTIFICATE", fault, hint)
        for partner in sorted({*self._settings.peers, *partners_met(self._settings)}):
            try:
                _ = counts_with(self._settings, partner).lane.entries  # checked as they are read
            except (StateError, OSError) as cause:
                error = explain(cause)
                yield Cause(f"ledger {partner}", error.code, error.message, error.hint)

    def _check_index(self) -> None:
        self._store.get("-")

    def _check_writable(self) -> None:
        path = self._store.requests / "probe"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, _PROBE)
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)

    def _find_others(self, peers: Mapping[str, Mapping[str, Any]]) -> Iterator[Cause]:
        """What is wrong beside the faults."""
        for name, error in self._tables.list_errors():
            yield Cause(f"table {name}", error["code"], error["message"], error["hint"])
        for party, days in self._days_left(peers):
            if days is not None and 0 <= days < EXPIRY_DAYS:
                own = party == self._settings.name
                renew = f"{self._say_how_to_renew()}: the node reads it by itself"
                hint = renew if own else f"ask the owner of {party} to renew it"
                text = f"the certificate of {party} ends in {days} days"
                yield Cause(f"certificate {party}", "E_CERTIFICATE", text, hint)
        for name, peer in peers.items():
            yield from _find_about_peer(name, peer)
        if fault := self._policies.fault:
            yield Cause("policy", fault.code, f"the policy that holds is an earlier one: {fault.message}", fault.hint)
        yield from self._find_about_schedules()
        free = machine_state(self._settings.state_dir)["disk_free"]
        if free is not None and free < LOW_DISK:
            text = f"{free / 1e6:.0f} MB are free where the state folder lies"
            yield Cause("room", "E_DISK_FULL", text, "free space, or remove jobs that have ended: vfl-node prune")

    def _find_about_schedules(self) -> Iterator[Cause]:
        try:
            states = self._schedules.find_states()
        except (VflError, OSError) as cause:
            error = explain(cause)
            yield Cause("schedules", error.code, error.message, error.hint)
            return
        for name, state in states.items():
            if state.paused == "refusals":
                text = f"schedule {name} is paused after {state.refusals} refusals in a row; the last: {state.reason}"
                yield Cause(f"schedule {name}", "E_SCHEDULE", text, f"mend it, then vfl-node schedule resume {name}")

    def _say_how_to_renew(self) -> str:
        """How this node's own certificate is renewed."""
        files = self._settings.tls
        if files and files.mode == "own":
            return f"vfl-node renew --config FILE, which needs {files.authority_key.name}"
        return "put a new certificate in the place of this one"

    def _days_left(self, peers: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, int | None]]:
        yield self._settings.name, self._peers.certificates.days if self._peers.certificates else None
        yield from ((name, peer["certificate_days"]) for name, peer in peers.items())


def _judge(faults: Iterable[Cause], others: Iterable[Cause]) -> str:
    return "failing" if any(faults) else "degraded" if any(others) else "ok"


def measure_backup_age(state_dir: Path) -> float | None:
    """Seconds since the last backup of a node; None: there was none, or nobody can tell."""
    try:
        last = last_backup(state_dir)
    except StateError:
        return None
    return (datetime.now(timezone.utc) - last).total_seconds() if last else None


def _find_about_peer(name: str, peer: Mapping[str, Any]) -> Iterator[Cause]:
    """What is wrong with the link to a peer, as its status says."""
    if peer["online"] is False:
        if datetime.now(timezone.utc) - datetime.fromisoformat(peer["since"]) > AWAY:
            text = f"{name} is away" + (f": {peer['cause']}" if peer["cause"] else "")
            hint = f"ask the owner of {name} whether its node runs; jobs with it wait meanwhile"
            yield Cause(f"peer {name}", "E_PEER_ABSENT", text, hint, peer["since"])
    elif abs(peer["clock_ahead_s"] or 0) > CLOCKS_S:
        ahead = peer["clock_ahead_s"]
        text = f"the clock of {name} was {abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} this node's when they met"
        yield Cause(f"clock {name}", "E_CLOCK", text, "set both clocks by a time server, then restart the node whose was wrong")
