"""What a node could tell Prometheus, with values of every metric: python -m tests.metrics_sample | promtool check metrics"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import Any

from prometheus_client import Counter

from vfl_node.execution.live import AT_REST
from vfl_node.node.prometheus import NodeFigures, write_figures
from vfl_node.process import counters

FAMILIES = [each for each in vars(counters).values() if isinstance(each, counters.Family)]
"""All counters and histograms."""


def running(**changes: Any) -> dict[str, Any]:
    return AT_REST | {"id": "running-1", "state": "running", "phase": "train", **changes}


def full(count: int, **changes: Any) -> NodeFigures:
    """All figures, of so many peers, jobs, columns and tables."""
    many, now = [f"many-{number}" for number in range(count)], datetime.now(timezone.utc)
    peer = {"online": True, "round_trip_ms": 1.5, "clock_ahead_s": 2}
    attacks = dict.fromkeys(many, 0.6)
    views = [running(id=name, attacks=attacks, labels=attacks, rebuilt=dict.fromkeys(many, attacks)) for name in many]
    budgets = ("alignments", "changes", "trainings", "trainings_in_clear", "models_served", "linkages", "epsilon")
    questions = ("asked_per_day", "asked_per_epoch", "answered_per_day", "answered_per_epoch")
    use = {"used": 1, "allowed": 2, "per": "week"}
    return NodeFigures(
        **{
            "role": "active",
            "kernel": "c",
            "faults": ["E_DRAINING"],
            "states": ["running"],
            "running": views,
            "waits": {"place": 1},
            "peers": dict.fromkeys(many, peer),
            "ends": [(name, kind, now) for name in many for kind in ("leaf", "authority")],
            "crl_due": now,
            "budgets": {name: dict.fromkeys(budgets + questions, use) for name in many},
            "ledgers": {name: {"entries": 3, "head_age_s": 4.0} for name in many},
            "tables": {name: {"status": "usable", "rows": 5, "whole": True} for name in many},
            "backup_age_s": 5.0,
            "disk_free": 6,
            "state_bytes": {"index": 7, "jobs": 8, "partners": 9},
            "memory_limit": 10,
            "schedules": {"on": 2, "refusals": 1},
            "columns": True,
            **changes,
        }
    )


def count_each() -> None:
    """Give every counter and histogram a series."""
    for family in FAMILIES:
        series = family.series(*["E_TRY"] * len(family.metric._labelnames))
        series.inc() if isinstance(series, Counter) else series.observe(1)


if __name__ == "__main__":
    count_each()
    sys.stdout.buffer.write(write_figures(full(2)))
