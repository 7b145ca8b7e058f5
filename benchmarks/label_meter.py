"""What the label meter costs, by kind of labels: of a step, of a thread, and of an epoch between two nodes.

    python -m benchmarks.label_meter [--rows 50000] [--epochs 8] [--out FILE]

* look: microseconds in which the meter takes what it needs of a step, on the training's thread;
* judge: milliseconds of its own thread for an epoch, by made-up gradients, torch on one thread;
* epoch: median seconds of those after the first between two nodes of ``vfl-node run``, a thread each, without the meter;
* beside, limited: how much longer an epoch is with it; and under an owner's limit, where each waits until it is judged.

Two cores are needed that do nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.measure import machine
from vfl_node.privacy.labels.meter import LabelMeter
from vfl_node.privacy.labels.truth import truth_of

KINDS: Mapping[str, int] = {"two classes": 2, "four classes": 4, "numbers": 0}
SIZES = ((256, 32), (256, 128), (8192, 32))
"""Rows of a batch, and the width of the cut."""

COLUMNS = 32
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "off": {"audit": {"labels": False, "membership": False}},
    "on": {"audit": {"membership": False}},
    "limited": {"audit": {"membership": False}, "policy": {"everyone": {"attacks": {"labels": 1.0}}}},
}


def labels_of(classes: int, rows: int) -> np.ndarray:
    """Labels that nothing tells."""
    drawn = np.random.default_rng(1)
    return drawn.integers(classes, size=rows) if classes else drawn.normal(size=rows)


def alone(classes: int, rows: int, batch: int, width: int) -> tuple[float, float]:
    """Seconds of a look at a step, and of the judging of an epoch; medians of five epochs."""
    drawn, every = np.random.default_rng(2), np.arange(rows)
    labels = labels_of(classes, rows).astype(np.float64)
    meter = LabelMeter(
        truth_of(labels, every, drawn.permutation(rows).astype(np.uint64), classes=classes), ["lab"], party="clinic"
    )
    sent, got = (torch.from_numpy(drawn.normal(size=(rows, width)).astype(np.float32)) for _ in range(2))
    looks, judged = [], []
    for _ in range(5):
        steps = [(at, [sent[at]], [got[at]]) for at in np.array_split(drawn.permutation(rows), -(-rows // batch))]
        started = time.thread_time()
        for step in steps:
            meter.see(*step)
        looks.append((time.thread_time() - started) / len(steps))
        started = time.process_time()
        meter.epoch_done()
        meter.judge()
        judged.append(time.process_time() - started)
    return statistics.median(looks), statistics.median(judged)


def train_between_nodes(classes: int, rows: int, batch: int, width: int, epochs: int, settings: Mapping[str, Any]) -> float:
    """Seconds of an epoch, the median of those after the first."""
    with tempfile.TemporaryDirectory() as name:
        folder, drawn = Path(name), np.random.default_rng(3)
        for role, labels in (("active", {"label": labels_of(classes, rows)}), ("passive", {})):
            columns = {"id": np.arange(rows), **{f"{role}_{at}": drawn.normal(size=rows) for at in range(COLUMNS)}, **labels}
            table, head = np.column_stack(list(columns.values())), ",".join(columns)
            np.savetxt(folder / f"{role}.csv", table, fmt="%.6g", delimiter=",", header=head, comments="")
        kind = {"classes": classes} if classes else {"task": "regression"}
        layers = {"bottom": [128, width], "active_bottom": [128, width], "top": [64]}
        job = {
            "name": "meter",
            "parties": {"active": "clinic", "passive": "lab"},
            "align": {"protocol": "psi"},
            "train": {"algorithm": "split", "epochs": epochs, "batch_size": batch, **layers, **kind},
            "evaluate": {"test_fraction": 0.01, "metrics": ["auc" if classes == 2 else "accuracy" if classes else "rmse"]},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "clinic.yaml").write_text(yaml.safe_dump(dict(settings)))
        data = [f"--data={role}={folder / role}.csv" for role in ("active", "passive")]
        command = [
            "run",
            str(folder / "job.yaml"),
            *data,
            f"--settings=clinic={folder / 'clinic.yaml'}",
            f"--out={folder / 'out'}",
        ]
        subprocess.run([sys.executable, "-m", "vfl_node", *command], check=True, capture_output=True)
        report = json.loads((folder / "out" / "report.json").read_text())
    return statistics.median(epoch["seconds"] for epoch in report["training"]["epochs"][1:])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| labels | batch | cut | look, µs | judge, ms | epoch, s | beside | limited |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    found = []
    for kind, classes in KINDS.items():
        for batch, width in SIZES:
            look, judge = alone(classes, given.rows, batch, width)
            off, on, limited = (
                train_between_nodes(classes, given.rows, batch, width, given.epochs, settings) for settings in VARIANTS.values()
            )
            found.append(
                {"labels": kind, "batch": batch, "cut": width, "look": look, "judge": judge, "epochs": [off, on, limited]}
            )
            shares = f"{100 * (on / off - 1):+.1f} % | {100 * (limited / off - 1):+.1f} %"
            print(f"| {kind} | {batch:,} | {width} | {1e6 * look:.0f} | {1e3 * judge:.0f} | {off:.2f} | {shares} |", flush=True)
    if given.out:
        given.out.write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
