"""Measure alignment: CPU and wall time, bytes and peak memory, beside openmined-psi and SPU, in units of one X25519 ladder.

    python -m benchmarks.align                                       both parties in one process, 100,000 ids each
    python -m benchmarks.align --processes --ids 100000 1000000      two nodes over mutual TLS on loopback
    python -m benchmarks.align --wan TOOL                            the same over 20 ms and 100 Mbit/s; see nodes.wan
    python -m benchmarks.align --stages 10000000                     all but the group operations

Prints tables in Markdown and writes JSON, row by row; ``python -m benchmarks.tables FILE …`` prints
the tables of several. Files of lists lie under TMPDIR. docs/reference/benchmarks/index.md explains every column.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import memory, nodes, secretflow, stages, tables
from benchmarks.measure import Row, alone, machine
from vfl_node.crypto.groups import GROUPS
from vfl_node.crypto.kernels import names
from vfl_node.job.alignment import ALIGNMENTS


def usual() -> list[str]:
    """The protocols that nodes allow by default."""
    return [name for name, spec in ALIGNMENTS.usable() if spec.allowed_by_default]


def align_in_memory(chosen: argparse.Namespace) -> Iterator[Row]:
    """Repeats come in turn, so that a machine that slows down slows all of them."""
    for _ in range(chosen.repeats):
        for ids in chosen.ids:
            for group in chosen.groups:
                for kernel, protocol in product(chosen.kernels, chosen.protocols or usual()):
                    yield alone(memory.protocol_row, kernel, protocol, group, ids, chosen.start_up, chosen.threads)
            others = [alone(memory.openmined_row, ids, chosen.start_up)]
            others += [alone(secretflow.row, name, ids, chosen.start_up) for name in secretflow.PROTOCOLS]
            yield from filter(None, others)


def align_between_nodes(chosen: argparse.Namespace) -> Iterator[Row]:
    """On loopback, and beside it over the slow link where there is one."""
    for _ in range(chosen.repeats):
        for ids in chosen.ids:
            for group in chosen.groups:
                for protocol in chosen.protocols or ["psu"]:
                    yield nodes.protocol_row(protocol, group, ids, chosen.start_up, nodes.LOOPBACK)
                    if chosen.wan:
                        with nodes.wan(chosen.wan) as places:
                            yield nodes.protocol_row(protocol, group, ids, chosen.start_up, places)


def align_in_stages(count: int) -> dict[str, Any]:
    """All stages of both parties, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as folder:
        alone(stages.blind, Path(folder), count)
        return {"ids": count, "stages": alone(stages.merge, Path(folder), count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--processes", action="store_true", help="two nodes on loopback")
    mode.add_argument("--wan", metavar="TOOL", help="two nodes in the network namespaces that TOOL makes, and on loopback")
    mode.add_argument("--stages", type=int, metavar="IDS", help="hashing, spilling, searching and ordering alone")
    parser.add_argument(
        "--protocols", nargs="+", choices=list(ALIGNMENTS), help="default: what nodes allow by default; psu between nodes"
    )
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=["curve25519"])
    parser.add_argument(
        "--kernels", nargs="+", choices=names(), default=names(), help="in one process; nodes take that of VFL_KERNEL"
    )
    parser.add_argument("--ids", type=int, nargs="+", default=[100_000], help="identifiers a party")
    parser.add_argument("--start-up", type=int, default=1000, metavar="IDS", help="size of the run that is taken off")
    parser.add_argument("--threads", type=int, default=1, help="for group operations in one process; nodes take all cores")
    parser.add_argument("--repeats", type=int, default=3, help="tables hold medians")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/align.json"), metavar="FILE", help="JSON")
    chosen = parser.parse_args()
    if min(chosen.ids) <= chosen.start_up:
        parser.error("--ids must be above --start-up")

    said = ["TOOL" if argument == chosen.wan else argument for argument in sys.argv[1:]]
    made: dict[str, Any] = {"command": shlex.join(["python", "-m", "benchmarks.align", *said]), "machine": machine()}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)

    def keep() -> None:
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")

    if chosen.stages:
        made["stages"] = align_in_stages(chosen.stages)
    else:
        nodes_only = chosen.processes or chosen.wan
        made["groups"] = (
            [] if nodes_only else [alone(memory.group_row, *each) for each in product(chosen.kernels, chosen.groups)]
        )
        made["rows"] = []
        for row in align_between_nodes(chosen) if nodes_only else align_in_memory(chosen):
            made["rows"].append(asdict(row))
            print(
                f"{row.where}: {row.system} {row.kernel} {row.protocol}, {row.run.ids} ids: {row.run.wall_s:.1f} s",
                file=sys.stderr,
            )
            keep()
    keep()
    print(*tables.markdown([made]), sep="\n")


if __name__ == "__main__":
    main()
