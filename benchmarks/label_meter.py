"""What the label meter costs of a step and of an epoch, by kind of labels.

    python -m benchmarks.label_meter [--rows 50000] [--rounds 5] [--out FILE]

Both halves of a training in one process, over memory, torch on one thread: the meter judges on a thread of its own. Two idle
cores are needed. Four epochs with the meter and four without, in turn; medians of so many rounds:

* step: CPU time on the training's thread in which the meter looks at a step, as a share of a step without it;
* epoch: how much longer an epoch takes, by the clock, while the one before is judged;
* thread: CPU time of the judging of an epoch, as a share of an epoch;
* limited: how much longer an epoch takes under an owner's limit, where each epoch waits until it is judged.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.label_defences import Halves
from benchmarks.measure import machine
from vfl_node.protection import Protection

KINDS: Mapping[str, Mapping[str, Any]] = {"two classes": {}, "four classes": {"classes": 4}, "numbers": {"task": "regression"}}
SIZES = ((256, 32), (256, 128), (8192, 32))
"""Rows of a batch, and the width of the cut."""

EPOCHS = 4


class Watched:
    """A training whose meter's time on the training's thread is counted."""

    def __init__(self, rows: int, batch: int, width: int, protection: Protection, kind: Mapping[str, Any]) -> None:
        self._halves, self._steps = Halves(rows, batch, width, protection, kind), rows // batch
        self._seen, labels = 0.0, self._halves.labels
        labels.see = self._counted(labels.see)  # type: ignore[method-assign]
        self.epochs()

    def _counted(self, look: Callable[..., None]) -> Callable[..., None]:
        def counted(*what: Any) -> None:
            started = time.thread_time()
            look(*what)
            self._seen += time.thread_time() - started

        return counted

    def epochs(self) -> tuple[float, float, float]:
        """Seconds of an epoch by the clock, and in all threads; and those in which the meter looked at its steps."""
        gc.collect()
        self._seen, started, used = 0.0, time.perf_counter(), time.process_time()
        for _ in range(EPOCHS):
            self._halves.epoch(self._steps)
        clock = time.perf_counter() - started
        self._halves.labels.judged()  # of the last one, which nothing follows here
        return clock / EPOCHS, (time.process_time() - used) / EPOCHS, self._seen / EPOCHS


def measured(rows: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each kind of labels and each size."""
    found = []
    for name, kind in KINDS.items():
        for batch, width in SIZES:
            off, on, limited = (
                Watched(rows, batch, width, Protection(membership=False, labels=labels, max_label_auc=limit), kind)
                for labels, limit in ((False, None), (True, None), (True, 1.0))
            )
            times = [(off.epochs(), on.epochs(), limited.epochs()) for _ in range(rounds)]
            shares = {
                "step": [seen / of[0] for of, (_, _, seen), _ in times],
                "epoch": [clock / of[0] - 1 for of, (clock, _, _), _ in times],
                "thread": [(cpu - of[1] - seen) / of[1] for of, (_, cpu, seen), _ in times],
                "limited": [clock / of[0] - 1 for of, _, (clock, _, _) in times],
            }
            found.append(
                {
                    "labels": name,
                    "batch": batch,
                    "width": width,
                    "epoch_s": round(statistics.median(of[0] for of, _, _ in times), 3),
                }
                | {share: round(statistics.median(values), 3) for share, values in shares.items()}
            )
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(arguments.rows, arguments.rounds)
    print("| labels | batch | cut | epoch, s | step | epoch | thread | limited |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        shares = " | ".join(f"{100 * row[name]:.1f} %" for name in ("step", "epoch", "thread", "limited"))
        print(f"| {row['labels']} | {row['batch']:,} | {row['width']} | {row['epoch_s']} | {shares} |")
    if arguments.out:
        arguments.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
