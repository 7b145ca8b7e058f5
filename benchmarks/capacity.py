"""What jobs of many kinds and sizes take, as ``vfl-node estimate`` counts, beside jobs that were measured: the capacity page.

    make capacity                                  measure, estimate, and write docs/reference/capacity.{json,md}; 5 minutes
    python -m benchmarks.capacity --page           the page once more, from the JSON

The unit costs of the machine are measured right before each job, as its speed drifts. A job runs between real nodes of this
machine, with one thread each; CPU time is that of all nodes and their child processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import capacity_page
from benchmarks.capacity_nodes import ACTIVE, COLUMNS, COORDINATOR, OTHERS, MeasuredNodes, PairedNodes
from benchmarks.measure import machine as described
from vfl_node.crypto.groups import group
from vfl_node.crypto.kernels import kernel
from vfl_node.estimate.machine import Machine, measure
from vfl_node.estimate.plan import plan
from vfl_node.estimate.totals import START_S, Range, estimate, pace_of
from vfl_node.job import Job
from vfl_node.job.costs import Pace, TableShape

DATA = Path(__file__).parents[1] / "docs" / "reference" / "capacity.json"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CORES = (2, 16, 32)
LINKS = {"slow": (50.0, 40.0), "fast": (1000.0, 1.0)}
"""Mbit/s and milliseconds there and back."""

LARGE_SIZES, LARGE_CORES = (10**7, 10**8, 10**9), (2, 16, 32, 128)
LARGE_LINKS = {"100 Mbit/s": (100.0, 20.0), "1 Gbit/s": (1000.0, 1.0)}
"""Lines of the alignments of many identifiers, which are estimated alone."""

TRAINERS: dict[str, dict[str, Any]] = {
    "split": {
        "algorithm": "split",
        "bottom": [32, 16],
        "active_bottom": [32, 16],
        "top": [32],
        "epochs": 10,
        "batch_size": 1024,
    },
    "logistic": {"algorithm": "logistic", "iterations": 10},
    "hidden": {"algorithm": "hidden"},
}


@dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Attributes:
        protocol: of its alignment.
        trainer: a key of :data:`TRAINERS`; empty: it only aligns.
        passive: how many passive parties it has.
        measured: the sizes that are measured, too.
    """

    protocol: str
    trainer: str
    passive: int
    measured: tuple[int, ...] = ()

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator takes part."""
        return self.trainer == "hidden" or (self.trainer == "logistic" and self.passive > 1)

    def job(self) -> dict[str, Any]:
        """The job."""
        parties = {"active": ACTIVE, "passive": list(OTHERS[: self.passive])}
        align = {"protocol": self.protocol} | ({"obfuscation": {"fraction": 0.7}} if self.protocol == "apsi" else {})
        spec: dict[str, Any] = {"name": "capacity", "parties": parties, "align": align}
        if self.trainer:
            flow = {"flow": "coordinator-open-scores"} if self.trainer == "logistic" and self.coordinated else {}
            spec |= {"train": TRAINERS[self.trainer] | flow, "evaluate": {"test_fraction": 0.3, "metrics": ["auc"]}}
        if self.coordinated:
            parties |= {"coordinator": COORDINATOR}
        return spec


KINDS = (
    JobKind("psi", "", 1, (100_000,)),
    JobKind("psu", "", 1, (100_000,)),
    JobKind("apsi", "", 1, (100_000,)),
    JobKind("psi-pairs", "", 2, (100_000,)),
    JobKind("psu", "", 3, (10_000,)),
    JobKind("psi", "split", 1, (10_000, 100_000)),
    JobKind("psu", "split", 1, (10_000,)),
    JobKind("psi", "split", 2, (10_000,)),
    JobKind("psi", "logistic", 1, (10_000,)),
    JobKind("apsi", "logistic", 1),
    JobKind("psi", "logistic", 2, (10_000,)),
    JobKind("psi", "hidden", 1, (10_000, 100_000)),
    JobKind("psu", "hidden", 1, (10_000,)),
    JobKind("psu", "hidden", 2),
)

WARM_ROWS, GROWTH_JOBS, GROWTH_ROWS = 200, 8, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the JSON")
    parser.add_argument("--unmeasured", action="store_true", help="estimate anew, and keep what was measured")
    chosen = parser.parse_args()
    if not chosen.page:
        kept = json.loads(DATA.read_text()) if chosen.unmeasured else None
        DATA.write_text(json.dumps(capacity(kept), indent=1) + "\n")
    DATA.with_suffix(".md").write_text(capacity_page.page(json.loads(DATA.read_text())))


def capacity(kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All figures; those of ``kept`` in place of measured ones."""
    began, load = time.monotonic(), os.getloadavg()[0]
    found = {name: kept[name] for name in ("measured", "growth")} if kept else measured_jobs()
    this, cells = measured_machine(2), []
    for kind in KINDS:
        pace = pace_of_kind(kind)
        for rows in SIZES:
            cell: dict[str, Any] = {"protocol": kind.protocol, "trainer": kind.trainer, "passive": kind.passive, "rows": rows}
            cell |= figures(kind, rows, this, pace)
            for link, (rate, rtt) in LINKS.items():
                cell[f"{link}_wall_s"] = [wall_s(kind, rows, replace(this, cores=cores), pace, rate, rtt) for cores in CORES]
            cells.append(cell)
    return {
        "machine": {**described(), "kernel": kernel().name},
        "load_before": kept["load_before"] if kept else round(load, 1),
        "seconds": kept["seconds"] if kept else round(time.monotonic() - began),
        "jobs": TRAINERS,
        "columns": COLUMNS,
        "links": LINKS,
        "cores": CORES,
        "large_cores": LARGE_CORES,
        "cells": cells,
        "large": [large_alignment(protocol, rows, this) for protocol in ("psi", "psu") for rows in LARGE_SIZES],
        **found,
    }


def measured_machine(cores: int) -> Machine:
    """What this machine does in a second."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(group("curve25519"), cores, Path(folder))


def estimate_party(
    kind: JobKind,
    rows: int,
    party: str,
    this: Machine,
    pace: Pace | None,
    rate: float = 50,
    rtt: float = 40,
    columns: int = COLUMNS,
) -> Range:
    """The estimate for this party."""
    job = Job.model_validate(kind.job())
    known = dict.fromkeys(job.parties.data, rows)
    encoded, table = dict.fromkeys(job.parties.data, columns), TableShape(rows, columns)
    shared = rows - rows // 2
    planned = plan(job, None, known, table=table, columns=encoded, shared=shared, rate_mbit_s=rate, rtt_ms=rtt)
    return estimate(replace(planned, party=party), this, pace)[kind.protocol]


def pace_of_kind(kind: JobKind) -> Pace | None:
    """How fast this machine trains; measured once for all sizes."""
    job, shape = Job.model_validate(kind.job()), TableShape(SIZES[0], COLUMNS)
    known = dict.fromkeys(job.parties.data, SIZES[0])
    return pace_of(plan(job, None, known, shared=0, rate_mbit_s=50, rtt_ms=40), shape, None)


def figures(kind: JobKind, rows: int, this: Machine, pace: Pace | None, columns: int = COLUMNS) -> dict[str, float]:
    """What the whole job takes, on any number of cores: the most that the estimate says."""
    parties = (ACTIVE, *OTHERS[: kind.passive])
    ranges = {party: estimate_party(kind, rows, party, this, pace, columns=columns) for party in parties}
    most = {name: value for name, (_, value) in ranges[ACTIVE].items()}
    cpu_s = sum(costs["cpu_s"][1] + costs["node_s"][1] for costs in ranges.values())
    cpu_s += most.get("train_active_s", 0) + kind.passive * most.get("train_passive_s", 0)
    cpu_s += most.get("train_coordinator_s", 0) + START_S * kind.coordinated
    return {
        "cpu_s": cpu_s,
        "peak_bytes": most["peak_bytes"],
        "disk_bytes": most["active_disk_bytes"],
        "sent_bytes": sum(costs["sent_bytes"][1] for costs in ranges.values())
        + most.get("train_bytes", 0)
        + most.get("dealt_bytes", 0),
    }


def large_alignment(protocol: str, rows: int, this: Machine) -> dict[str, Any]:
    """Two tables of so many rows and no other column than the identifier."""
    kind = JobKind(protocol, "", 1)
    wall = {
        link: [wall_s(kind, rows, replace(this, cores=cores), None, rate, rtt, columns=1) for cores in LARGE_CORES]
        for link, (rate, rtt) in LARGE_LINKS.items()
    }
    return {"protocol": protocol, "rows": rows, **figures(kind, rows, this, None, columns=1), "wall_s": wall}


def wall_s(
    kind: JobKind, rows: int, this: Machine, pace: Pace | None, rate: float, rtt: float, columns: int = COLUMNS
) -> float:
    """From the order to the report, each party on a machine like this one: alignment, then training, computing and wire."""
    costs = estimate_party(kind, rows, ACTIVE, this, pace, rate, rtt, columns)
    return sum(costs[name][1] for name in ("node_s", "wall_s", "train_computing_s", "train_wire_s") if name in costs)


def measured_jobs() -> dict[str, Any]:
    """Jobs between real nodes, each beside its estimate, and what they leave behind."""
    jobs, growth = [], {}
    places = sorted({(kind.passive, kind.coordinated) for kind in KINDS if kind.measured})
    for passive, coordinated in places:
        with ExitStack() as stack:
            paired = (passive, coordinated) == (1, False)
            nodes = stack.enter_context(PairedNodes() if paired else MeasuredNodes(passive, coordinated=coordinated))
            for kind in KINDS:  # those that only align are the first, before torch is loaded
                if (kind.passive, kind.coordinated) == (passive, coordinated):
                    for rows in kind.measured:
                        jobs.append(measured_job(nodes, kind, rows))
                        print(json.dumps(jobs[-1]), flush=True)
            if paired:
                growth = grown(nodes)
    return {"measured": jobs, "growth": growth}


def measured_job(nodes: MeasuredNodes, kind: JobKind, rows: int) -> dict[str, Any]:
    """One job, after a small one of its kind, which imports what it needs."""
    nodes.write_tables(WARM_ROWS)
    nodes.run(kind.job())
    nodes.write_tables(rows)
    before = figures(kind, rows, measured_machine(2), pace_of_kind(kind))
    took = nodes.run(kind.job())
    after = figures(kind, rows, measured_machine(2), pace_of_kind(kind))
    estimated = {name: (before[name] + after[name]) / 2 for name in before}
    found = {
        "cpu_s": sum(took["cpu_s"].values()),
        "peak_bytes": took["peak_bytes"][ACTIVE],
        "disk_bytes": took["disk_bytes"][ACTIVE],
        "sent_bytes": sum(took["sent_bytes"].values()),
    }
    about = {"protocol": kind.protocol, "trainer": kind.trainer, "passive": kind.passive, "rows": rows}
    return {**about, "estimated": estimated, "measured": found}


def grown(nodes: MeasuredNodes) -> dict[str, Any]:
    """What jobs of one kind leave at the active party's node, by kind of file; the first two are not counted."""
    kind = JobKind("psi", "split", 1)
    nodes.write_tables(GROWTH_ROWS)
    for _ in range(2):
        nodes.run(kind.job())
    before = nodes.kept()
    for _ in range(GROWTH_JOBS):
        nodes.run(kind.job())
    after = nodes.kept()
    return {"jobs": GROWTH_JOBS, "rows": GROWTH_ROWS, "bytes": {name: after[name] - before[name] for name in after}}


if __name__ == "__main__":
    main()
