"""A node's figures in the text format of Prometheus: those of the moment, and what its process has counted.

docs/reference/metrics-for-prometheus.md has every name; a test compares both ways. At most :data:`MOST_SERIES` series are told,
whatever peers, jobs and people do: names in labels are those of this node's settings, words of this program, and ids of running
jobs and of models. There is never the name of a job, a person, a path, an id or a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from vfl_node.node.reasons import KINDS
from vfl_node.node.states import State
from vfl_node.process.counters import COUNTED
from vfl_node.version import PROTOCOL_VERSION, VERSION

MOST_SERIES = 2200

MOST_JOBS, MOST_ATTACKS, MOST_COLUMNS, MOST_PEERS, MOST_TABLES = 16, 6, 100, 22, 16
"""So many running jobs, attacks on each, rebuilt columns, peers and tables have series of their own."""


@dataclass(frozen=True)
class NodeFigures:
    """What a node tells Prometheus of this moment.

    Attributes:
        role: of the node.
        kernel: that computes on groups.
        faults: codes of what keeps it from any job; none: it can take jobs.
        states: of every job.
        running: the jobs that run (:meth:`vfl_node.node.jobs.Jobs.views`).
        waits: what jobs wait for (:data:`vfl_node.node.reasons.KINDS`) → how many do; without those that wait for this owner.
        oldest_s: for how long the oldest of these has waited, in seconds.
        peers: the status of each peer (:meth:`vfl_node.node.peers.Peers.status`).
        ends: party, kind and end of each certificate.
        crl_due: when the first list of revoked certificates is due; None: there is none.
        budgets: partner → budget → {used, allowed, per}; None where it cannot be read.
        ledgers: partner → {entries, head_age_s}.
        tables: name → what is known of a table (:meth:`vfl_node.node.start_check.StartCheck.health`).
        unusable: names of the tables that cannot be used now.
        backup_age_s: seconds since the last backup; None: there was none.
        disk_free: bytes where the state folder lies.
        state_bytes: kind → size of what is stored.
        reserved: bytes of memory that jobs have reserved.
        memory_limit: bytes that they may; None: no limit is set.
        schedules: how many are ``on``, and how many are paused by ``owner`` or ``refusals``.
        columns: whether names of columns may be told.
    """

    role: str
    kernel: str
    faults: Sequence[str] = ()
    states: Sequence[str] = ()
    running: Sequence[Mapping[str, Any]] = ()
    waits: Mapping[str, int] = field(default_factory=dict)
    oldest_s: float = 0.0
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ends: Iterable[tuple[str, str, datetime]] = ()
    crl_due: datetime | None = None
    budgets: Mapping[str, Mapping[str, Mapping[str, Any] | None] | None] = field(default_factory=dict)
    ledgers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unusable: frozenset[str] = frozenset()
    backup_age_s: float | None = None
    disk_free: int | None = None
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    reserved: int = 0
    memory_limit: int | None = None
    schedules: Mapping[str, int] = field(default_factory=dict)
    columns: bool = False


def write_figures(figures: NodeFigures) -> bytes:
    """The figures, and all that was counted."""
    page = _Page()
    about = (VERSION, figures.kernel, figures.role, PROTOCOL_VERSION, 1)
    page.add("vfl_build_info", "What runs here", "version kernel role protocol", [about])
    page.add("vfl_ready", "Whether this node can take jobs, as /ready says", "", [(int(not figures.faults),)])
    page.add("vfl_not_ready", "Why this node can take no job", "code", [(code, 1) for code in figures.faults])
    _add_jobs(page, figures)
    _add_leaks(page, figures)
    _add_peers(page, figures)
    _add_partners(page, figures)
    _add_machine(page, figures)
    return generate_latest(page.registry) + generate_latest(COUNTED)


class _Page:
    """Gauges, made for one answer."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def add(self, name: str, text: str, labels: str, series: Iterable[tuple[Any, ...]]) -> None:
        """A gauge; ``series``: the values of its ``labels``, and then its value; None: there is none, and the name alone."""
        known = [each for each in series if each[-1] is not None]
        gauge = Gauge(name, text, labels.split() if known else ["none"], registry=self.registry)
        for *words, value in known:
            (gauge.labels(*words) if words else gauge).set(value)


def _add_jobs(page: _Page, figures: NodeFigures) -> None:
    states = Counter(figures.states)
    page.add("vfl_jobs", "Jobs in the index of this node", "state", [(state, states[state]) for state in get_args(State)])
    running = [(view["id"], view["phase"], view["done"], view["total"]) for view in figures.running[:MOST_JOBS]]
    text = "Steps of the phase under way, of running jobs; 0 where that is not known"
    page.add("vfl_job_steps", text, "job phase", [(job, phase, total) for job, phase, _, total in running])
    text = "Steps done in the phase under way, of running jobs"
    page.add("vfl_job_steps_done", text, "job phase", [(job, phase, done) for job, phase, done, _ in running])
    waiting = Counter(figures.waits) + Counter(consent=states["asked"])
    waits = [(kind, waiting[kind]) for kind in KINDS]
    page.add("vfl_queue_jobs", "Jobs that wait, and what for", "reason", waits)
    text = "For how long the oldest job that waits has been here; 0 without one"
    page.add("vfl_queue_oldest_seconds", text, "", [(figures.oldest_s,)])
    schedules = [(state, figures.schedules.get(state, 0)) for state in ("on", "owner", "refusals")]
    page.add("vfl_schedules", "Schedules that are on, and those paused by the owner or by refusals", "state", schedules)
    page.add("vfl_asks_pending", "Jobs that wait for an answer of this node's owner", "", [(states["asked"],)])


def _add_leaks(page: _Page, figures: NodeFigures) -> None:
    running = figures.running[:MOST_JOBS]
    for name, key, text in (
        ("vfl_attack_auc", "attacks", "AUC of this node's own attack on what it sends, in the newest epoch; 0.5 is chance"),
        ("vfl_label_auc", "labels", "AUC, folded, of this node's own attack on its labels by what a passive party has"),
    ):
        found = [(view["id"], attack, value) for view in running for attack, value in islice(view[key].items(), MOST_ATTACKS)]
        page.add(name, text, "job attack", found)
    text = "How well this node itself rebuilds a column of its own from what it sends, in the newest epoch; of the worst column"
    rebuilt = [
        (view["id"], column, attack, success)
        for view in running
        for column, successes in view["rebuilt"].items()
        for attack, success in islice(successes.items(), MOST_ATTACKS)
        if success is not None
    ]
    if figures.columns:
        page.add("vfl_feature_attack", text, "job column attack", rebuilt[:MOST_COLUMNS])
        return
    worst: dict[tuple[str, str], float] = {}
    for job, _, attack, success in rebuilt:
        worst[job, attack] = max(success, worst.get((job, attack), success))
    page.add("vfl_feature_attack", text, "job attack", [(*words, success) for words, success in worst.items()])


def _add_peers(page: _Page, figures: NodeFigures) -> None:
    peers = [(name, peer) for name, peer in islice(figures.peers.items(), MOST_PEERS) if peer["online"] is not None]
    text = "Whether the standing link with a peer is up"
    page.add("vfl_peer_up", text, "peer", [(name, int(bool(peer["online"]))) for name, peer in peers])
    trips = [(name, peer["round_trip_ms"] / 1000) for name, peer in peers if peer["round_trip_ms"] is not None]
    page.add("vfl_peer_rtt_seconds", "Shortest of the last round trips of a notice", "peer", trips)
    text = "How far a peer's clock was ahead of this node's when the link went up"
    page.add("vfl_peer_clock_offset_seconds", text, "peer", [(name, peer["clock_ahead_s"]) for name, peer in peers])
    ends = [(party, kind, end.timestamp()) for party, kind, end in islice(figures.ends, 2 * MOST_PEERS)]
    page.add("vfl_certificate_expiry_timestamp_seconds", "When a certificate ends", "party kind", ends)
    due = None if figures.crl_due is None else figures.crl_due.timestamp()
    text = "When the first list of revoked certificates is due"
    page.add("vfl_crl_next_update_timestamp_seconds", text, "", [(due,)])


def _add_partners(page: _Page, figures: NodeFigures) -> None:
    uses = [
        (partner, budget, use.get("per") or "ever", use)
        for partner, budgets in islice(figures.budgets.items(), MOST_PEERS)
        for budget, use in (budgets or {}).items()
        if use and use["allowed"] is not None
    ]
    text = "How much of a budget the policy allows with a partner"
    page.add("vfl_budget_limit", text, "partner budget period", [(*words, use["allowed"]) for *words, use in uses])
    page.add(
        "vfl_budget_spent", "How much of it is used", "partner budget period", [(*words, use["used"]) for *words, use in uses]
    )
    ledgers = list(islice(figures.ledgers.items(), MOST_PEERS))
    entries = [(partner, ledger["entries"]) for partner, ledger in ledgers]
    page.add("vfl_ledger_entries", "Entries of the ledger with a partner", "partner", entries)
    text = "Time since a partner last signed what it has seen of this node's ledger"
    page.add("vfl_ledger_head_age_seconds", text, "partner", [(partner, ledger["head_age_s"]) for partner, ledger in ledgers])


def _add_machine(page: _Page, figures: NodeFigures) -> None:
    tables = [(name, table) for name, table in islice(figures.tables.items(), MOST_TABLES) if table["status"] != "checking"]
    usable = [(name, int(name not in figures.unusable and table["status"] != "unusable")) for name, table in tables]
    page.add("vfl_table_usable", "Whether a table of this node can be used", "table", usable)
    rows = [(name, table.get("rows") if table.get("whole") else None) for name, table in tables]
    page.add("vfl_table_rows", "Rows of a table, where the node has looked at all of them", "table", rows)
    page.add("vfl_disk_free_bytes", "Free bytes where a folder lies", "mount", [("state", figures.disk_free)])
    page.add("vfl_state_bytes", "Size of what is stored", "kind", figures.state_bytes.items())
    page.add("vfl_backup_age_seconds", "Time since the last backup of this node", "", [(figures.backup_age_s,)])
    page.add("vfl_memory_reserved_bytes", "Memory that running jobs have reserved", "", [(figures.reserved,)])
    page.add("vfl_memory_limit_bytes", "Memory that they may reserve together", "", [(figures.memory_limit,)])
