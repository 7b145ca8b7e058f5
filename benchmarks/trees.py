"""Boosted trees in shares between real processes: seconds and bytes of a tree, CPU and memory of each role.

    make bench-trees                                          all parts but `million`, about 4 minutes; runs/bench/trees.json
    python -m benchmarks.trees --only small                   one part
    python -m benchmarks.trees --wan PROGRAM                  over three slow links, as root

Two data parties and the dealer are processes of `vfl-node run`, joined by mutual TLS over loopback, with one thread each.
Tables are made of normal numbers, both parties have every record, and alignment is by psi. Each part is run twice, with few
trees and with more. Bytes, rounds and CPU of a tree are the difference over the number of trees between: alignment, reading,
cells and imports are in neither. Seconds are the median of all trees but the first, as the active party's report has them. CPU
is that of each process, as the system counts it; other work on the machine lengthens seconds, and hardly CPU.

========  =======================================================================================================
part      what
========  =======================================================================================================
small     50,000 · 15, depth 4, 8 bins
large     140,000 · 23, depth 5, 10 bins
products  cells of 200,000 rows and 375 candidates by numbers of T nodes, in each kernel, without processes
million   1,000,000 · 50, depth 5, 16 bins
========  =======================================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hidden import job_of, run, seconds, write_tables
from benchmarks.measure import machine
from benchmarks.nodes import LOOPBACK, MBIT_S, ROLES, RTT_MS, WITH_COORDINATOR, Three, slow_triangle
from vfl_node.crypto.kernels import find_kernel, names
from vfl_node.training.trees.gradients import TERMS

EVERY = 0.1
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Part:
    """One size of tables and trees.

    Attributes:
        rows: of both parties.
        columns: of the active and the passive party.
        depth, bins: of the job.
        trees: of the first and the second run; one number where there is one run.
    """

    rows: int
    columns: tuple[int, int]
    depth: int
    bins: int
    trees: tuple[int, ...]

    def spend(self) -> dict[str, float]:
        """What a tree should cost by hand: sums of the operations' own bytes, in megabytes, and rounds."""
        rows, depth, nodes = self.rows, self.depth, 2**self.depth - 1
        words = nodes * (2 * sum(self.columns) * (self.bins - 1) + 1)
        sent = rows * (35 + 12 * (2 ** (depth - 1) - 1) + 4 + (2**depth - 2 + depth) / 8) + 190 * words
        dealt = 16 * TERMS + 40 + 8 * (depth - 1) + 8 * (2 ** (depth - 1) - 1) + 4 * (2 ** (depth - 1) - 2) + 16
        stages = ceil(log(sum(self.columns) * (self.bins - 1) + 1, 4))
        return {
            "MB each way a tree, by hand": sent / 1e6,
            "MB dealt a tree, by hand": (rows * (dealt + (depth + 2 * nodes) / 8) + 970 * words) / 1e6,
            "rounds a tree, by hand": 4 + depth * (18 + 3 * stages),
        }


PARTS = {
    "small": Part(50_000, (8, 7), 4, 8, (2, 12)),
    "large": Part(140_000, (12, 11), 5, 10, (2, 10)),
    "million": Part(1_000_000, (25, 25), 5, 16, (1, 3)),
}


@dataclass
class Watched:
    """The nodes of a run, by name.

    Attributes:
        cpu: seconds, of the node's own process and those it started.
        peak: GiB, the most resident memory of its own process.
    """

    cpu: dict[str, float]
    peak: dict[str, float]

    def look(self, pid: int) -> None:
        """At the nodes that a process of `vfl-node run` started."""
        with suppress(OSError, ValueError, IndexError):  # a node ends
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                name = Path(Path(f"/proc/{child}/cmdline").read_text().split("\0")[-2]).parent.name
                if not name:  # not yet a node
                    continue
                spent = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]
                self.cpu[name] = sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")
                (line,) = (line for line in Path(f"/proc/{child}/status").read_text().splitlines() if "VmHWM" in line)
                self.peak[name] = int(line.split()[1]) / 2**20


def measure(part: Part, folder: Path) -> dict[str, Any]:
    """Every figure of a part."""
    write_tables(folder, part.rows, part.columns)
    job = {"algorithm": "trees", "depth": part.depth, "bins": part.bins, "learning_rate": 0.3, "metrics_by": "none"}
    reports, nodes, dealt = [], [], []
    load = os.getloadavg()[0]
    for trees in part.trees:
        nodes.append(Watched({}, {}))
        reports.append(run(folder, {**job, "trees": trees}, nodes[-1].look, every=EVERY))
        dealt.append(json.loads((folder / "out" / "dealer" / "report.json").read_text())["training"]["trees"]["dealer_bytes"])
    last, found = reports[-1]["training"], {}
    between = part.trees[-1] - (part.trees[0] if len(part.trees) > 1 else 0)
    found["s a tree"] = seconds(reports[-1]) if part.trees[-1] > 1 else last["epochs"][0]["seconds"]
    found["s all trees"] = sum(epoch["seconds"] for epoch in last["epochs"])
    found["trees"] = part.trees[-1]
    first = reports[0]["training"]["trees"] if len(part.trees) > 1 else {"rounds": 0, "bytes": 0}
    a_tree = {name: (last["trees"][name] - first[name]) / between for name in ("rounds", "bytes")}
    found["MB sent by the active party a tree"] = a_tree["bytes"] / 1e6
    found["MB dealt to both a tree"] = (dealt[-1] - (dealt[0] if len(dealt) > 1 else 0)) / between / 1e6
    found["rounds a tree"] = a_tree["rounds"]
    found |= part.spend()
    for name, spent in nodes[-1].cpu.items():
        found[f"CPU s of {name}"] = spent
        if len(nodes) > 1:
            found[f"CPU s of {name} a tree"] = (spent - nodes[0].cpu[name]) / between
        found[f"GiB at {name}"] = nodes[-1].peak[name]
    return {**found, "load at the start": load, "load at the end": os.getloadavg()[0]}


SLOW_TREES = 4


def run_over_slow_links(folder: Path, program: str) -> dict[str, float]:
    """Seconds of a tree over slow links and on loopback, and what is the least that it can take."""
    found: dict[str, float] = {}
    for name in ("small", "large"):
        part = PARTS[name]
        write_tables(folder, part.rows, part.columns)
        tables = {role: folder / f"{role}.parquet" for role in ROLES}
        job = job_of({"algorithm": "trees", "depth": part.depth, "bins": part.bins, "metrics_by": "none", "trees": SLOW_TREES})
        job["parties"]["coordinator"] = "coordinator"
        with slow_triangle(program) as places:
            reports = []
            for where in (dict.fromkeys(WITH_COORDINATOR, LOOPBACK["active"]), places):
                with Three(where) as nodes:
                    reports.append(nodes.run(job, tables))
        took, told = [seconds(report) for report in reports], reports[-1]["training"]["trees"]
        rounds = part.spend()["rounds a tree, by hand"]
        times = {
            "bytes of the dealer": told["dealer_bytes"] / SLOW_TREES * 8e-6 / MBIT_S,
            "bytes and rounds, a way each": part.spend()["MB each way a tree, by hand"] * 8 / MBIT_S + rounds * RTT_MS / 2000,
        }
        found |= {f"{name}, s a tree": took[1], f"{name}, on loopback, s": took[0]}
        found |= {f"{name}, {what}, s": value for what, value in times.items()}
        found[f"{name}, times computing, bytes and rounds"] = took[1] / (took[0] + times["bytes and rounds, a way each"])
    return found


def multiply() -> dict[str, float]:
    """How many products of a cell by a number each kernel computes in a second of CPU, in thousand millions."""
    cells, found = np.random.default_rng(0).integers(0, 1 << 16, (200_000, 375), np.uint16), {}
    for name, count in product(names(), (1, 2, 4, 8)):
        numbers, kernel, spent = np.full((count, len(cells)), 0x123456789ABCDEF0, np.uint64), find_kernel(name), []
        for _ in range(5):
            began = time.thread_time()
            kernel.multiply_cells(cells, numbers)
            spent.append(time.thread_time() - began)
        found[f"{name}, T = {count}, 10⁹ products a CPU s"] = cells.size * count / min(spent) / 1e9
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run parts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="small,large,products", help="of products, " + ", ".join(PARTS))
    parser.add_argument(
        "--wan", metavar="PROGRAM", help="only trees over slow links, by a program for a link: nodes.slow_triangle"
    )
    parser.add_argument("--out", type=Path, help="write every figure there, too")
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    print("| part | what | figure |\n|---|---|--:|")
    for name in ["wan"] if chosen.wan else chosen.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            if chosen.wan:
                found[name] = run_over_slow_links(Path(folder), chosen.wan)
            else:
                found[name] = multiply() if name == "products" else measure(PARTS[name], Path(folder))
        for what, value in found[name].items():
            print(f"| {name} | {what} | {value:.4g} |", flush=True)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
