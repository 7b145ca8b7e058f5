"""What a defence of labels costs of a training step.

    python -m benchmarks.label_defences [--steps 12] [--out FILE]

A step of both halves in one process, on one thread, without a wire: CPU time with the defence over that without, the two taken
in turn; medians. The label meter is off.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.florist import PARTIES, view
from benchmarks.measure import machine
from benchmarks.sessions import session
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.network.half import Half, RepeatStart
from vfl_node.training.network.loop import HalfOf
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels

COLUMNS, BATCH = 32, 8192
WIDTHS = (32, 128)
DEFENCES: dict[str, list[dict[str, Any]]] = {
    "dp": [{"name": "dp", "max_grad_norm": 1, "noise_multiplier": 1}],
    "marvell": [{"name": "marvell", "power": 4}],
    "mixpro": [{"name": "mixpro"}],
    "maxnorm": [{"name": "maxnorm"}],
    "isotropic": [{"name": "isotropic", "noise": 1}],
}


class Halves:
    """Both halves of a training.

    Args:
        rows: shared ones.
        batch: rows of a step.
        width: of the cut.
        protection: of the active party.
    """

    def __init__(self, rows: int, batch: int, width: int, protection: Protection) -> None:
        drawn = np.random.default_rng(1)
        train = Train(bottom=(128, width), active_bottom=(128, width), top=(64,), batch_size=batch)
        owned, every = np.ones(rows, dtype=bool), np.arange(rows)
        ids = Identifiers.from_items(str(row).encode() for row in range(rows))
        columns = {f"x{at}": NumericColumn(drawn.normal(size=rows)) for at in range(COLUMNS)}
        labels = (drawn.random(rows) < 0.2).astype(np.float32)
        tables = {"active": Table(ids, columns, labels), "passive": Table(ids, columns, None)}
        self._halves: list[Half] = []
        kinds: tuple[HalfOf, HalfOf] = ActiveHalf, PassiveHalf
        for half_of, name, channel in zip(kinds, tables, memory_channels("active", "passive"), strict=True):
            own = session(
                name,
                {channel.peer: channel},
                Randomness(bytes(32)),
                train=train,
                parties=PARTIES,
                protection=protection if name == "active" else Protection(membership=False),
            )
            data = TrainingData(view(rows, owned, rows, channel.peer), tables[name])
            self._halves.append(half_of(own, data, RepeatStart(Randomness(bytes(32)), Randomness(bytes(32)), 0, every)))
        self._schedule, self._every, self._batch = Schedule(bytes(32), rows, 0), every, batch
        self._number, self._epoch = 0, 0

    def epoch(self, steps: int) -> list[float]:
        """CPU seconds of each of the first ``steps`` of the next epoch."""
        seconds = []
        batches = self._schedule.batches(0, self._epoch, self._every, self._batch)[:steps]
        self._epoch += 1
        for positions in batches:
            started = time.process_time()
            active, passive = (half.step(self._number, positions) for half in self._halves)
            passive.send(None)  # the embedding leaves
            _ended(active)
            _ended(passive)
            seconds.append(time.process_time() - started)
            self._number += 1
        return seconds


def _ended(step: Any) -> None:
    try:
        step.send(None)
    except StopIteration:
        return
    raise AssertionError("a step waits for a message that nobody sends")


def ratio(width: int, protection: Protection, steps: int, rows: int, batch: int) -> tuple[float, float]:
    """CPU time of a step with ``protection`` over that without; and milliseconds of one without."""
    bare = Halves(rows, batch, width, Protection(membership=False, labels=False))
    defended = Halves(rows, batch, width, protection)
    times: tuple[list[float], list[float]] = ([], [])
    each = rows // batch
    for _ in range(-(-steps // each)):
        for seconds, halves in zip(times, (bare, defended), strict=True):
            gc.collect()
            seconds.append(sum(halves.epoch(each)) / each)
    without = statistics.median(times[0][1:] or times[0])
    return statistics.median(times[1][1:] or times[1]) / without, 1000 * without


def measured(steps: int, rows: int, batch: int) -> list[dict[str, Any]]:
    """A row for each width and defence."""
    found = []
    for width in WIDTHS:
        kinds = {
            name: Protection(tuple(map(read_params, entries)), membership=False, labels=False)
            for name, entries in DEFENCES.items()
        }
        for name, protection in kinds.items():
            times, milliseconds = ratio(width, protection, steps, rows, batch)
            found.append({"width": width, "what": name, "ratio": round(times, 3), "undefended_ms": round(milliseconds, 1)})
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rows", type=int, default=6 * BATCH)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(arguments.steps, arguments.rows, arguments.batch)
    print(f"| cut | {' | '.join(DEFENCES)} |\n|---|{'---|' * len(DEFENCES)}")
    for width in WIDTHS:
        print(f"| {width} | {' | '.join(str(row['ratio']) for row in rows if row['width'] == width)} |")
    if arguments.out:
        arguments.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
