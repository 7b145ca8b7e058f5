"""Training in shares between real processes: time and bytes of a pass, beside the Paillier flow and a split step.

    make bench-hidden                                        everything below, about 5 minutes; runs/bench/hidden.json
    python -m benchmarks.hidden --only logistic,paillier     parts of it
    python -m benchmarks.hidden --wan PROGRAM                over three slow links, as root

Two data parties and the dealer are processes of `vfl-node run`, joined by mutual TLS over loopback, with one thread each.
Tables are made of normal numbers, both parties have every record, and alignment is by psi. A figure is the median of all passes
but the first, as the active party's report has them; the whole pass counts, corrections included. Bytes are those that every
operation declares, and tests compare these with what is sent.

==========  ==================================================================================================================
part        what
==========  ==================================================================================================================
noise       a union of 150,000 rows, 23 columns each, 50,000 shared: seconds and megabytes of trainings with ε and without
logistic    100,000 · 330 (half each), batches of 4,096: seconds of a pass for both losses
small       10,000 · 23, one batch of all rows: milliseconds an iteration
paillier    the same rows in the coordinator flow of `train.algorithm: logistic`, seconds an iteration
layer       one hidden layer of 32, batches of 1,024, 64 columns: milliseconds a step, and of split training the same
wan         `logistic` (taylor) and `layer` with 20 ms and 100 Mbit/s between each two nodes, and by the same nodes on loopback;
            ten passes of `parties`
memory      1,000,000 · 50, batches of 8,192: the most resident memory of each node, alignment by psi included
parties     the tables of `logistic`, with a coordinator and without: seconds, megabytes and memory of setup, offline, online
==========  ==================================================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.measure import machine
from benchmarks.nodes import LOOPBACK, MBIT_S, ROLES, RTT_MS, WITH_COORDINATOR, Three, slow_triangle
from vfl_node.crypto.shares.machine import Counter
from vfl_node.training.hidden.brought import HiddenPlan
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import USUAL_MOMENTUM, USUAL_RATE
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule

Settings = Mapping[str, Any]


def write_tables(folder: Path, rows: int, columns: tuple[int, int], shared: int | None = None) -> None:
    """``active.parquet`` with labels and ``passive.parquet``: normal numbers of so many records, ``shared`` of them in both."""
    rng = np.random.default_rng(0)
    apart = rows - (rows if shared is None else shared)
    score = np.zeros(rows)
    for role, width in zip(("passive", "active"), reversed(columns), strict=True):
        values = rng.normal(size=(rows, width)).astype(np.float32)
        score += values @ rng.normal(size=width) / np.sqrt(sum(columns))
        first = apart if role == "active" else 0
        ids = pa.array([f"{row:09d}" for row in range(first, first + rows)])
        table = {"id": ids, **{f"{role}{column}": values[:, column] for column in range(width)}}
        if role == "active":
            table["label"] = (rng.random(rows) < 1 / (1 + np.exp(-2 * score))).astype(np.int8)
        pq.write_table(pa.table(table), folder / f"{role}.parquet")


def run(
    folder: Path, train: Settings, watch: Callable[[int], None] | None = None, protocol: str = "psi", every: float = 0.5
) -> dict[str, Any]:
    """The active party's report of a job over the tables of ``folder``.

    While it runs, ``watch`` is called with the process ``every`` so many seconds.
    """
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "job.yaml").write_text(yaml.safe_dump(job_of(train, protocol=protocol)))
    data = [word for role in ("active", "passive") for word in ("--data", f"{role}={role}.parquet")]
    words = [sys.executable, "-m", "vfl_node", "run", "job.yaml", *data, "--out", "out"]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=environment())
        while running.poll() is None:
            if watch:
                watch(running.pid)
            time.sleep(every)
    if running.returncode:
        raise SystemExit((folder / "log").read_text()[-2000:])
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return report


def job_of(train: Settings, coordinator: str = "dealer", protocol: str = "psi") -> dict[str, Any]:
    """The job, with a coordinator if its training needs one."""
    coordinated = train["algorithm"] in ("hidden", "trees", "statistics") or train.get("flow") == "coordinator"
    coordinated = coordinated and train.get("randomness") != "parties"
    return {
        "name": "bench",
        "parties": {"active": "active", "passive": "passive", **({"coordinator": coordinator} if coordinated else {})},
        "align": {"protocol": protocol},
        "train": dict(train),
        "evaluate": {"test_fraction": 0.0, "metrics": ["auc"]},
    }


def environment() -> dict[str, str]:
    """One thread a process."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}


def seconds(report: Mapping[str, Any]) -> float:
    """Median of all epochs, or iterations, but the first."""
    return statistics.median(epoch["seconds"] for epoch in report["training"]["epochs"][1:])


def declared(rows: int, widths: tuple[int, int], train: Settings) -> dict[str, float]:
    """Rounds a step, and megabytes of a pass, by role and from the dealer, as operations declare them."""
    size = min(train["batch_size"], rows)
    positions = np.arange(rows)

    def cost(epochs: int) -> Any:
        loss = train.get("loss", "exact")
        plan = HiddenPlan(
            form=Form((widths[0] + 1, widths[1]), tuple(train.get("hidden", ())), 1, loss),
            rows=rows,
            schedule=Schedule(bytes(32), rows, 0),
            training=positions,
            testing=positions[:0],
            descent=Descent(epochs, USUAL_MOMENTUM, USUAL_RATE),
            batch_rows=size,
            divisor=float(size),
            weight_decay=0.0,
            bins=256,
            reveals=False,
        )
        counter = Counter(2)

        async def skip(*arguments: Any) -> None: ...

        asyncio.run(compute(counter, plan, None, None, 0, skip))
        return counter.cost

    none, one = cost(0), cost(1)
    steps = rows // size
    return {
        "rounds a step": (one.rounds - none.rounds) / steps,
        "MB opened by the active party": (one.opened[0] - none.opened[0]) / 1e6,
        "MB opened by the passive party": (one.opened[1] - none.opened[1]) / 1e6,
        "MB from the dealer": sum(one.dealt[place] - none.dealt[place] for place in (0, 1)) / 1e6,
        "MB from the dealer to the busier party": max(one.dealt[place] - none.dealt[place] for place in (0, 1)) / 1e6,
    }


HIDDEN: Settings = {"algorithm": "hidden", "epsilon": None, "metrics_by": "none", "learning_rate": 0.1}
"""Without a bound, in batches."""


def noise(folder: Path) -> dict[str, Any]:
    """Seconds and megabytes of whole trainings over a union of 150,000 rows: with noise, and in batches without."""
    write_tables(folder, 100_000, (23, 23), shared=50_000)
    found: dict[str, Any] = {}
    for name, train in (
        ("ε 1, 20 steps", {"algorithm": "hidden", "epochs": 20, "metrics_by": "none"}),
        ("ε 1, 40 steps", {"algorithm": "hidden", "epochs": 40, "metrics_by": "none"}),
        ("no ε, 10 epochs of 512", {**HIDDEN, "batch_size": 512, "epochs": 10}),
    ):
        report = run(folder, train, protocol="psu")
        section = report["training"]["hidden"]
        found |= {
            f"{name}, s": sum(epoch["seconds"] for epoch in report["training"]["epochs"]),
            f"{name}, MB sent by the active party": section["bytes"] / 1e6,
            f"{name}, MB dealt to it": section["dealer_bytes"] / 1e6,
            f"{name}, rounds": section["rounds"],
        }
    return found


def logistic(folder: Path) -> dict[str, Any]:
    """Seconds and megabytes of a pass."""
    write_tables(folder, 100_000, (165, 165))
    found = {}
    for loss in ("taylor", "exact"):
        train = {**HIDDEN, "loss": loss, "batch_size": 4096, "epochs": 4}
        found[f"{loss}, s a pass"] = seconds(run(folder, train))
        found |= {f"{loss}, {name}": value for name, value in declared(100_000, (165, 165), train).items()}
    return found


def small(folder: Path) -> dict[str, Any]:
    """Milliseconds an iteration over all rows at once."""
    write_tables(folder, 10_000, (12, 11))
    train = {**HIDDEN, "loss": "taylor", "batch_size": 10_000, "epochs": 20}
    exact = {**train, "loss": "exact"}
    return {"taylor, ms an iteration": 1000 * seconds(run(folder, train)), "exact, ms": 1000 * seconds(run(folder, exact))}


def paillier(folder: Path) -> dict[str, Any]:
    """Seconds an iteration of the coordinator flow on the rows of ``small``."""
    write_tables(folder, 10_000, (12, 11))
    train = {
        "algorithm": "logistic",
        "flow": "coordinator",
        "loss": "taylor",
        "iterations": 3,
        "key_bits": 2048,
        "least_rows": 0,
    }
    return {"s an iteration": seconds(run(folder, train))}


def layer(folder: Path) -> dict[str, Any]:
    """Milliseconds a step with one hidden layer, and of split training with layers of the same widths."""
    rows, batch = 65_536, 1024
    write_tables(folder, rows, (32, 32))
    hidden = {**HIDDEN, "layers": [32], "batch_size": batch, "epochs": 3}
    split = {"bottom": [32], "active_bottom": [32], "top": [], "batch_size": batch, "epochs": 3, "optimizer": "sgd"}
    in_shares, open_ = (
        1000 * seconds(run(folder, train)) / (rows / batch) for train in (hidden, {"algorithm": "split", **split})
    )
    return {"ms a step": in_shares, "split, ms a step": open_, "ratio": in_shares / open_, **declared(rows, (32, 32), hidden)}


def note_peaks(peaks: dict[str, float], pid: int) -> None:
    """Note the most resident memory of each node of a run, in GiB."""
    with suppress(OSError, ValueError, IndexError):  # a node begins or ends
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            name = Path(Path(f"/proc/{child}/cmdline").read_text().split("\0")[-2]).parent.name
            (line,) = (line for line in Path(f"/proc/{child}/status").read_text().splitlines() if "VmHWM" in line)
            peaks[name] = int(line.split()[1]) / 2**20


def memory(folder: Path) -> dict[str, Any]:
    """GiB of each node at its peak, a million rows of 50 columns."""
    write_tables(folder, 1_000_000, (25, 25))
    peaks: dict[str, float] = {}
    report = run(folder, {**HIDDEN, "batch_size": 8192, "epochs": 2}, partial(note_peaks, peaks))
    return {**{f"GiB at {name}": peak for name, peak in peaks.items()}, "s the second pass": seconds(report)}


def parties(folder: Path) -> dict[str, Any]:
    """Seconds and megabytes of a pass without a coordinator, phase by phase, beside one with it; GiB of each node."""
    write_tables(folder, 100_000, (165, 165))
    found: dict[str, Any] = {}
    for loss in ("taylor", "exact"):
        train = {**HIDDEN, "loss": loss, "batch_size": 4096, "epochs": 4}
        found[f"{loss}, with a coordinator, s a pass"] = seconds(run(folder, train))
        peaks: dict[str, float] = {}
        report = run(folder, {**train, "randomness": "parties"}, partial(note_peaks, peaks))
        found |= {f"{loss}, {name}": value for name, value in phases_of(report, train["epochs"]).items()}
        found |= {f"{loss}, GiB at {name}": peak for name, peak in peaks.items()}
    return found


def phases_of(report: Mapping[str, Any], epochs: int) -> dict[str, float]:
    """Seconds and megabytes of setup, and of a pass offline and online, as the active party has them."""
    phases = report["training"]["hidden"]["phases"]
    offline, online = phases["offline"], phases["online"]
    return {
        "setup, s": phases["setup"]["seconds"],
        "setup, MB": phases["setup"]["bytes"] / 1e6,
        "offline, s a pass": offline["seconds"] / epochs,
        "offline, MB a pass": offline["bytes"] / 1e6 / epochs,
        "online, s a pass": online["seconds"] / epochs,
        "online, MB a pass": online["bytes"] / 1e6 / epochs,
        "online, rounds a pass": online["rounds"] / epochs,
    }


SLOW: Mapping[str, tuple[int, tuple[int, int], Settings]] = {
    "logistic": (100_000, (165, 165), {**HIDDEN, "loss": "taylor", "batch_size": 4096, "epochs": 4}),
    "layer": (65_536, (32, 32), {**HIDDEN, "layers": [32], "batch_size": 1024, "epochs": 3}),
}
"""Rows, columns and settings of what is run over slow links."""


def run_over_slow_links(folder: Path, program: str) -> dict[str, Any]:
    """Seconds of a pass over slow links and on loopback, and what is the least that it can take."""
    found: dict[str, Any] = {}
    for name, (rows, columns, train) in SLOW.items():
        write_tables(folder, rows, columns)
        tables = {role: folder / f"{role}.parquet" for role in ROLES}
        took = []
        with slow_triangle(program) as places:
            for where in (dict.fromkeys(WITH_COORDINATOR, LOOPBACK["active"]), places):
                with Three(where) as nodes:
                    took.append(seconds(nodes.run(job_of(train, "coordinator"), tables)))
        cost = declared(rows, columns, train)
        rounds = cost["rounds a step"] * (rows // train["batch_size"])
        sent = max(cost["MB opened by the active party"], cost["MB opened by the passive party"])
        times = {
            "loopback": took[0],
            "bytes of the dealer": cost["MB from the dealer to the busier party"] * 8 / MBIT_S,
            "bytes and rounds of a party, a way each": sent * 8 / MBIT_S + rounds * RTT_MS / 2000,
            "bytes and rounds of a party, a round trip each": sent * 8 / MBIT_S + rounds * RTT_MS / 1000,
        }
        found |= {f"{name}, s a pass": took[1], **{f"{name}, {what}, s": value for what, value in times.items()}}
        found[f"{name}, times the longest of these"] = took[1] / max(times.values())
    return found


PARTS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "noise": noise,
    "logistic": logistic,
    "small": small,
    "paillier": paillier,
    "layer": layer,
    "memory": memory,
    "parties": parties,
}


def run_parties_over_slow_links(folder: Path, program: str) -> dict[str, Any]:
    """Ten passes of `parties` over slow links: seconds of each phase."""
    write_tables(folder, 100_000, (165, 165))
    tables = {role: folder / f"{role}.parquet" for role in ROLES}
    found: dict[str, Any] = {}
    for loss in ("taylor", "exact"):
        train = {**HIDDEN, "loss": loss, "batch_size": 4096, "epochs": 10, "randomness": "parties"}
        with slow_triangle(program) as places, Three(places) as nodes:
            report = nodes.run(job_of(train), tables)
        found |= {f"{loss}, {name}": value for name, value in phases_of(report, train["epochs"]).items()}
        whole = report["training"]["hidden"]["phases"]
        found[f"{loss}, all phases, s a pass"] = sum(phase["seconds"] for phase in whole.values()) / train["epochs"]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run parts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--wan", metavar="PROGRAM", help="only the part wan, by a program for a link: nodes.slow_triangle")
    parser.add_argument("--out", type=Path, help="write every figure there, too")
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    print("| part | what | figure |\n|---|---|--:|")
    slow = {"wan": run_over_slow_links, "parties over slow links": run_parties_over_slow_links}
    parts = {name: partial(part, program=chosen.wan) for name, part in slow.items()} if chosen.wan else PARTS
    for name in parts if chosen.wan else chosen.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = parts[name](Path(folder))
        for what, value in found[name].items():
            print(f"| {name} | {what} | {value:.3g} |", flush=True)
    if {"small", "paillier"} <= found.keys():
        ratio = 1000 * found["paillier"]["s an iteration"] / found["small"]["taylor, ms an iteration"]
        found["small"]["times quicker than paillier"] = ratio
        print(f"| small | times quicker than paillier | {ratio:.3g} |")
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
