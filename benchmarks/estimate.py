"""What ``vfl-node estimate`` says that rows outside of the alignment take, beside what they take.

    python -m benchmarks.estimate [--rows 10000] [--aligned 1000] [--method jpl ssl …] [--out FILE]

The table is made-up clicks (experiments/fedads/generator.py), 16 columns at the active party and 6 at the passive one. For each
method of ``train.unaligned`` a job's work is estimated and then done, both parties in one process on one thread. Measured is
CPU time: of filling and local batches, at the active party; of pretraining, at both.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import machine
from benchmarks.sessions import BY_ROLE, session
from experiments.fedads.generator import IDS, LABEL_PARTY, OTHER_PARTY, USER, Clicks, Market
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.estimate.memory import shape_of
from vfl_node.job import Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.roles import DataRole
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.split.config import Train
from vfl_node.training.split.pace import MeasuredPace
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels, run_together

METHODS = ("heuristic", "jpl", "diffusion", "fedcvt", "ssl", "mpd", "fedhssl")
EVALUATE = Evaluate(test_fraction=0.2, metrics=("auc",))
NETWORKS: dict[str, dict[str, Any]] = {
    "small": {"bottom": [32, 8], "active_bottom": [64, 32], "batch_size": 128},
    "FedAds": {"bottom": [128, 32], "active_bottom": [256, 128], "batch_size": 1024, "batch_norm": True},
}


def table_of(clicks: Clicks, names: tuple[str, ...], rows: int) -> Table:
    """The first ``rows`` rows of these columns."""

    def column(name: str) -> Column:
        values = clicks.columns[name][:rows]
        if name not in IDS:
            return NumericColumn(values.astype(np.float64))
        levels, codes = np.unique(values, return_inverse=True)
        return CategoricalColumn(codes, tuple(f"{level:09d}" for level in levels))

    groups = clicks.columns[USER][:rows] if names == LABEL_PARTY else None
    labels = clicks.labels[:rows] if names == LABEL_PARTY else None
    ids = Identifiers.from_items(f"{row}".encode() for row in range(rows))
    return Table(ids, {name: column(name) for name in names}, labels, groups=groups)


def compared(train: Train, rows: int, aligned: int) -> tuple[float, float]:
    """Seconds as estimated, and CPU seconds as measured."""
    clicks = Market(positives=0.1, users=rows // 5, items=rows // 20).table(rows)
    passive = tuple(name for name in OTHER_PARTY if name != USER)
    tables: dict[DataRole, Table] = {
        "active": table_of(clicks, LABEL_PARTY, rows),
        "passive": table_of(clicks, passive, aligned),
    }
    job = Job.model_construct(name="estimate", parties=BY_ROLE, train=train, evaluate=EVALUATE)
    pace = MeasuredPace(job, {"active": shape_of(tables["active"]), "passive": shape_of(tables["passive"])})
    cost = train.make_plan().cost_outside(EVALUATE, aligned, {role: len(table) for role, table in tables.items()})
    if cost is None:
        raise SystemExit(f"{train.unaligned.method} learns from no row outside")
    estimated = sum(pace(work) for work in cost.work)
    sides = []
    for (role, table), channel in zip(tables.items(), memory_channels(*tables), strict=True):
        facts = PeerFacts(rows if role == "passive" else aligned, intersection=aligned, missing=0)
        view = Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(aligned), len(table), {channel.peer: facts})
        secret = Randomness(role.encode().ljust(32))
        own = session(role, {channel.peer: channel}, secret, job=job, clock=time.process_time)
        sides.append((SplitTrainer().run(own, TrainingData(view, table), MemoryCheckpoints(), None), channel))
    results = run_together(*sides)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return estimated, results[0].section.unaligned.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--aligned", type=int, default=1_000)
    parser.add_argument("--method", nargs="+", default=METHODS, help="of train.unaligned")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    print("| network | method | estimated s | measured s | measured / estimated |\n|---|---|---|---|---|")
    for name, network in NETWORKS.items():
        for method in chosen.method:
            section = {"top": [], "embedding_size": 8, "epochs": chosen.epochs, **network, "unaligned": {"method": method}}
            estimated, measured = compared(Train.model_validate(section), chosen.rows, chosen.aligned)
            print(f"| {name} | {method} | {estimated:.2f} | {measured:.2f} | {measured / estimated:.2f} |", flush=True)
            found.append({"network": name, "method": method, "estimated_s": estimated, "measured_s": measured})
    if chosen.out:
        about = {"rows": chosen.rows, "aligned": chosen.aligned, "epochs": chosen.epochs}
        chosen.out.write_text(json.dumps({"machine": machine(), **about, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
