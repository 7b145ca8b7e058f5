"""Statistics in shares between real processes: seconds, bytes, CPU and memory of each role.

    make bench-statistics                                          about 3 minutes; runs/bench/statistics.json
    python -m benchmarks.statistics_in_shares --only usual         one part

Two data parties and the dealer are processes of `vfl-node run`, joined by mutual TLS over loopback, with one thread each.
Tables are made of normal numbers, both parties have every record, and alignment is by psi. Seconds are those of all blocks of
columns, and of the whole command; CPU is that of each process, alignment and reading included.

========  ==============================================================
part      what
========  ==============================================================
usual     20,000 · 40, 10 bins
wide      100,000 · 330, 10 bins: information values of 330 columns
compared  the same with correlations, variance inflation and linear scores
exact     the same without noise: rounded figures
========  ==============================================================
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.hidden import run, write_tables
from benchmarks.measure import machine
from benchmarks.trees import EVERY, Watched

PARTS: dict[str, tuple[int, tuple[int, int], dict[str, Any]]] = {
    "usual": (20_000, (20, 20), {}),
    "wide": (100_000, (165, 165), {}),
    "compared": (100_000, (165, 165), {"correlations": True}),
    "exact": (100_000, (165, 165), {"epsilon": None}),
}
"""Part → rows, columns of the active and the passive party, and what the job says."""


def measure(part: str, folder: Path) -> dict[str, Any]:
    """Every figure of a part."""
    rows, columns, said = PARTS[part]
    write_tables(folder, rows, columns)
    nodes, began = Watched({}, {}), time.perf_counter()
    job = {"algorithm": "statistics", "bins": 10, "metrics_by": "none", **said}
    report = run(folder, job, nodes.look, every=EVERY)
    whole, training = time.perf_counter() - began, report["training"]
    return {
        "s of all blocks": sum(epoch["seconds"] for epoch in training["epochs"]),
        "s of the command": whole,
        "MB sent by the active party": training["statistics"]["bytes"] / 1e6,
        "MB from the dealer to it": training["statistics"]["dealer_bytes"] / 1e6,
        "rounds": training["statistics"]["rounds"],
        **{f"CPU s, {name}": seconds for name, seconds in nodes.cpu.items()},
        **{f"GiB at most, {name}": size for name, size in nodes.peak.items()},
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/statistics.json"))
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine()}
    for part in asked.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found[part] = measure(part, Path(folder))
        print(part, json.dumps({name: round(value, 2) for name, value in found[part].items()}, indent=1))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
