"""The FedAds network between two real nodes: rows a second beside the same network in one process, and memory at scale.

    python -m benchmarks.unaligned [--rows 163840] [--rounds 3] [--out FILE]
    python -m benchmarks.unaligned --memory --rows 10000000 --aligned 200000 [--given] [--method none jpl] [--out FILE]

The columns are those of the public FedAds table (experiments/fedads/generator.py), 16 at the active party and 6 at the passive
one, of which ids are categories with embeddings of 8. Both nodes are processes with one thread for tensors, joined by mutual
TLS over loopback. Each reads a Parquet file, which is written a block at a time.

Rows a second: all rows are aligned. *Joint* is one process that reads both files and trains both halves as one network, by one
optimiser, with the same batches; a figure is the median of all epochs but the first of each round, by the clock. Rounds of
both take turns. On a busy machine two processes get more of it than one, so the CPU time of an epoch is shown, too, that of
both nodes together: if they never computed at the same time, an epoch would take as long.

Memory: the active party has ``--rows`` rows, of which the passive party has the first ``--aligned``. Each node's peak of
resident memory (VmHWM) is noted when a phase begins, and at the end. With ``--given`` nothing is aligned: one process for each
method holds both parties, whose tables it reads and whose messages stay in memory; its peak is that of both together.

Source: Wei et al. 2023 (FedAds), sections 3.2 and 5.1.4.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import alone, machine, peak_bytes
from benchmarks.nodes import LOOPBACK, ROLES, Pair
from benchmarks.sessions import BY_ROLE, session
from experiments.fedads.generator import IDS, LABEL_PARTY, OTHER_PARTY, USER, Market
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.reading import read_table
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import architecture_of
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.updates import Updates
from vfl_node.node.client import Client
from vfl_node.node.states import UNFINISHED
from vfl_node.roles import Role
from vfl_node.settings.node import Data
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels, run_together

COLUMNS: dict[Role, tuple[str, ...]] = {
    "active": LABEL_PARTY,
    "passive": tuple(column for column in OTHER_PARTY if column != USER),
}
NETWORK: dict[str, Any] = {"embedding_size": 8, "bottom": [128, 32], "active_bottom": [256, 128], "top": [], "batch_norm": True}
BATCH = 8192
GOAL = 1.3
MEMORY_GIB = 8
WAIT_S = 0.2


def write_tables(folder: Path, rows: int, aligned: int) -> None:
    """``active.parquet`` with ``rows`` rows and ``passive.parquet`` with the first ``aligned`` of them."""
    writers: dict[Role, pq.ParquetWriter] = {}
    done = 0
    for part in Market().blocks(rows):
        ids = pa.array([f"{row:012d}" for row in range(done, done + len(part))])
        for role in ROLES:
            columns = {"id": ids, **{name: part.columns[name] for name in COLUMNS[role]}}
            if role == "active":
                columns["label"] = part.labels.astype(np.int8)
            kept = pa.table(columns).slice(0, max(0, (rows if role == "active" else aligned) - done))
            if role not in writers:
                writers[role] = pq.ParquetWriter(folder / f"{role}.parquet", kept.schema)
            writers[role].write_table(kept)
        done += len(part)
    for writer in writers.values():
        writer.close()


def data_of(role: Role, folder: Path) -> dict[str, Any]:
    """The settings of a party's table."""
    ids = [name for name in COLUMNS[role] if name in IDS]
    return {"path": str(folder / f"{role}.parquet"), "columns": dict.fromkeys(ids, "categorical")}


class Advertising(Pair):
    """Two nodes with the tables in a folder."""

    def __init__(self, tables: Path) -> None:
        super().__init__(LOOPBACK)
        self._tables = tables

    def train(self, train: dict[str, Any], test_fraction: float) -> dict[str, Any]:
        """Train once; the active party's report.

        As ``peaks`` it has the bytes of each node when a phase began and at the end, and as ``cpu_s`` what both nodes had spent
        after some numbers of batches.
        """
        job = {
            "name": "clicks",
            "parties": {"active": "active", "passive": "passive"},
            "align": {"protocol": "psi"},
            "train": NETWORK | train,
            "evaluate": {"test_fraction": test_fraction, "metrics": ["auc"]},
        }
        client = Client(self._running("active")["http"], (self._folders["active"] / "state" / "token").read_text())
        job_id = client.submit(yaml.safe_dump(job))["id"]
        peaks: list[dict[str, Any]] = []
        spent: list[tuple[int, float]] = []
        while (view := self._view(client, job_id))["state"] in UNFINISHED:
            if view["phase"] and (not peaks or view["phase"] != peaks[-1]["phase"]):
                peaks.append(self._peaks(view["phase"]))
            if view["phase"] == "train":
                spent.append((view["done"], sum(self._cpu_s().values())))
            time.sleep(WAIT_S)
        if view["state"] != "done":
            raise SystemExit(f"{view['error']}\n{self._log('active')}\n{self._log('passive')}")
        path = self._folders["active"] / "state" / "jobs" / job_id / "artefacts" / "report.json"
        return json.loads(path.read_text()) | {"peaks": [*peaks, self._peaks("done")], "cpu_s": spent}

    def _view(self, client: Client, job_id: str) -> dict[str, Any]:
        """The job as its node sees it; a node that reads a long table may not answer in time."""
        while True:
            try:
                return client.job(job_id)
            except UsageError:
                if self._processes["active"].poll() is not None:
                    raise SystemExit(self._log("active")) from None

    def _peaks(self, phase: str | None) -> dict[str, Any]:
        return {"phase": phase, "at_s": time.monotonic(), **{role: peak_bytes(self._processes[role].pid) for role in ROLES}}

    def _start(self, name: str, **settings: Any) -> None:
        super()._start(name, **settings | {"threads": 1, "data": data_of(self._roles[name], self._tables)})


def given(tables: Path, rows: int, aligned: int, train: dict[str, Any], test_fraction: float) -> list[dict[str, Any]]:
    """Both parties in this process, over an alignment that is given: its peak when each phase began and at the end."""
    torch.set_num_threads(1)
    peaks: list[dict[str, Any]] = []

    def phase(name: str) -> None:
        peaks.append({"phase": name, "at_s": time.monotonic(), **dict.fromkeys(ROLES, peak_bytes())})

    section = Train.model_validate(NETWORK | train)
    evaluate = Evaluate(test_fraction=test_fraction, metrics=("auc",))
    shared = np.arange(aligned, dtype=np.int64)
    sides = []
    for role, channel in zip(ROLES, memory_channels(*ROLES), strict=True):
        phase(f"read, {role}")
        table = read_table(Data(**data_of(role, tables)), id_form="text", needs_label=role == "active", party=role)
        facts = PeerFacts(rows if role == "passive" else aligned, intersection=aligned, missing=0)
        data = TrainingData(Alignment(ALIGNMENTS["psi"], "curve25519", shared, len(table), {channel.peer: facts}), table)
        own = session(
            role,
            {channel.peer: channel},
            Randomness(role.encode().ljust(32)),
            train=section,
            evaluate=evaluate,
            parties=BY_ROLE,
        )
        sides.append((SplitTrainer().run(own, data, FileCheckpoints(tables / f"{role}-state"), None), channel))
    phase("train")
    for result in run_together(*sides):
        if isinstance(result, BaseException):
            raise result
    phase("done")
    return peaks


def joint(tables: Path, epochs: int) -> list[tuple[float, float]]:
    """Seconds and CPU seconds of each epoch of both halves as one network; both tables have the same rows in the same order."""
    torch.set_num_threads(1)
    train = Train(**NETWORK, batch_size=BATCH)
    architecture = architecture_of(train.model)
    inputs, labels = {}, torch.empty(0)
    for role in ROLES:
        table = read_table(Data(**data_of(role, tables)), id_form="text", needs_label=role == "active", party=role)
        every = np.arange(len(table), dtype=np.int64)
        encoder = Encoder.fit(table, every, train.scaling, train.least_rows)
        inputs[role] = PositionedInput.from_features(encoder.transform(table), every, torch.device("cpu"))
        if role == "active":
            labels = torch.from_numpy(table.labels)
    bottom = build_bottom(architecture, train, inputs["passive"].schema, train.bottom)
    upper = build_classifier(architecture, train, inputs["active"].schema, [train.bottom[-1]])
    model = torch.nn.ModuleDict({"bottom": bottom, "upper": upper})
    initialise(model, Randomness(b"j" * 32))
    optimizer = Updates(model, train.optimizer, train)
    schedule, times = Schedule(bytes(32), len(labels), 0), [(time.perf_counter(), time.process_time())]
    for epoch in range(epochs):
        for batch in schedule.batches(0, epoch, every, BATCH):
            logits = upper(inputs["active"].take(batch), [bottom(inputs["passive"].take(batch))])
            loss = binary_cross_entropy_with_logits(logits, labels[torch.from_numpy(batch)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        times.append((time.perf_counter(), time.process_time()))
    return [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(times)]


def cpu_of_an_epoch(spent: Sequence[tuple[int, float]], batches: int, epochs: int) -> list[float]:
    """CPU seconds of an epoch after the first, from what was ``spent`` after numbers of batches; [] if too little was seen."""
    first = dict(reversed(spent))  # what follows the last batch is evaluation
    seen = [(done, cpu) for done, cpu in sorted(first.items()) if batches <= done <= epochs * batches]
    if len(seen) < 2:
        return []
    return [(seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]) * batches]


def speed(rows: int, epochs: int, rounds: int) -> dict[str, Any]:
    """Rows a second of both, and how many times as many the joint network has."""
    seconds: dict[str, list[float]] = {"joint": [], "split": []}
    cpu_s: dict[str, list[float]] = {"joint": [], "split": []}
    with tempfile.TemporaryDirectory(prefix="vfl-bench-clicks-") as folder:
        tables = Path(folder)
        write_tables(tables, rows, rows)
        for _ in range(rounds):
            _, *after = alone(joint, tables, epochs)
            seconds["joint"] += [wall for wall, _ in after]
            cpu_s["joint"] += [cpu for _, cpu in after]
            with Advertising(tables) as nodes:
                report = nodes.train({"epochs": epochs, "batch_size": BATCH}, 0.0)
            seconds["split"] += [epoch["seconds"] for epoch in report["training"]["epochs"]][1:]
            cpu_s["split"] += cpu_of_an_epoch(report["cpu_s"], -(-rows // BATCH), epochs)
    rates = {name: rows / statistics.median(times) for name, times in seconds.items()}
    print("| | rows a second | s an epoch, median (least to most) | CPU s an epoch |\n|---|---|---|---|")
    for name, times in seconds.items():
        cpu = f"{statistics.median(cpu_s[name]):.3f}" if cpu_s[name] else "–"
        print(
            f"| {name} | {rates[name]:,.0f} | {statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f}) | {cpu} |"
        )
    ratio = rates["joint"] / rates["split"]
    print(f"\njoint / split: {ratio:.2f}, at most {GOAL}: {'met' if ratio <= GOAL else 'missed'}")
    about = {"rows": rows, "batch": BATCH, "epochs": epochs}
    return {**about, "seconds": seconds, "cpu_s": cpu_s, "rows_s": rates, "ratio": ratio}


def memory(rows: int, aligned: int, methods: Sequence[str], epochs: int, *, is_given: bool) -> dict[str, Any]:
    """What each node holds at most, phase by phase, in a training by each method; or both, where the alignment is given."""
    made = []
    print("| method | phase | s | active GiB | passive GiB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="vfl-bench-clicks-") as folder:
        tables = Path(folder)
        write_tables(tables, rows, aligned)
        for method in methods:
            train = {"epochs": epochs, "batch_size": BATCH, "unaligned": {"method": method}}
            if is_given:
                peaks = alone(given, tables, rows, aligned, train, 0.2)
            else:
                with Advertising(tables) as nodes:
                    peaks = nodes.train(train, 0.2)["peaks"]
            for now, after in pairwise(peaks):
                cells = " | ".join(f"{after[role] / 2**30:.2f}" for role in ROLES)
                print(f"| {method} | {now['phase']} | {after['at_s'] - now['at_s']:.0f} | {cells} |", flush=True)
            most = max(peaks[-1][role] for role in ROLES) / 2**30
            print(
                f"\n{method}: {most:.2f} GiB, at most {MEMORY_GIB}: {'met' if most <= MEMORY_GIB else 'missed'}\n", flush=True
            )
            made.append({"method": method, "peaks": peaks})
    return {"rows": rows, "aligned": aligned, "batch": BATCH, "epochs": epochs, "given": is_given, "runs": made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="measure memory in place of rows a second")
    parser.add_argument("--rows", type=int, default=20 * BATCH)
    parser.add_argument("--aligned", type=int, default=200_000, help="with --memory: rows of the passive party")
    parser.add_argument("--given", action="store_true", help="with --memory: nothing is aligned, and one process holds both")
    parser.add_argument("--method", nargs="+", default=["none", "jpl"], help="with --memory: of train.unaligned")
    parser.add_argument("--epochs", type=int, help="of each training; 6, and 2 with --memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    if chosen.memory:
        aligned = min(chosen.rows, chosen.aligned)
        found = memory(chosen.rows, aligned, chosen.method, chosen.epochs or 2, is_given=chosen.given)
    else:
        found = speed(chosen.rows, chosen.epochs or 6, chosen.rounds)
    if chosen.out:
        chosen.out.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
