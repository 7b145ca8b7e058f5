"""What a defence that moves the bottom costs of a training step.

    python -m benchmarks.defences [--steps 20] [--out FILE]

A step of the passive half (forward, Minimax, backward, its optimiser) over that of the same half without a defence, on one
thread: CPU time, the median without and the mean with it; batches of 256. By N2, widths and ``every``.
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

ROWS, BATCH = 4096, 256
SHAPES = {"60→64→32, 1 column": (60, (64, 32), 1), "223→128→64, 223 columns": (223, (128, 64), 223)}


class Halves:
    """A passive half and an active one, of which the passive one's step is timed.

    Args:
        columns: numeric columns of the passive party.
        sizes: of its bottom.
        defences: of its settings.
    """

    def __init__(self, columns: int, sizes: tuple[int, ...], defences: list[dict[str, Any]]) -> None:
        rng = np.random.default_rng(1)
        train = Train(bottom=sizes, active_bottom=(8,), top=(16,), batch_size=BATCH)
        owned, every = np.ones(ROWS, dtype=bool), np.arange(ROWS)
        ids = Identifiers.from_items(str(row).encode() for row in range(ROWS))
        tables = {
            "active": Table(ids, {}, rng.integers(0, 2, ROWS).astype(np.float32)),
            "passive": Table(ids, {f"x{at}": NumericColumn(rng.normal(size=ROWS)) for at in range(columns)}, None),
        }
        protection = Protection(tuple(read_params(keys) for keys in defences), membership=False)
        self._halves: list[Half] = []
        kinds: tuple[HalfOf, HalfOf] = ActiveHalf, PassiveHalf
        for half_of, name, channel in zip(kinds, tables, memory_channels("active", "passive"), strict=True):
            own = session(
                name,
                {channel.peer: channel},
                Randomness(bytes(32)),
                train=train,
                parties=PARTIES,
                protection=protection if name == "passive" else Protection(membership=False),
            )
            data = TrainingData(view(ROWS, owned, ROWS, channel.peer), tables[name])
            self._halves.append(half_of(own, data, RepeatStart(Randomness(bytes(32)), Randomness(bytes(32)), 0, every)))
        schedule = Schedule(bytes(32), ROWS, 0)
        self._batches = [batch for epoch in range(50) for batch in schedule.batches(0, epoch, every, BATCH)]
        self._number = 0

    def step(self) -> float:
        """CPU seconds that the passive half takes for the next step."""
        active, passive = (half.step(self._number, self._batches[self._number]) for half in self._halves)
        self._number += 1
        started = time.process_time()
        passive.send(None)  # the embedding leaves
        seconds = time.process_time() - started
        _ended(active)
        started = time.process_time()
        _ended(passive)
        return seconds + time.process_time() - started


def _ended(step: Any) -> None:
    try:
        while True:
            step.send(None)
    except StopIteration:
        pass


def ratio(columns: int, sizes: tuple[int, ...], protected: int, steps: int, **keys: Any) -> tuple[float, float]:
    """CPU milliseconds of a step without a defence, and how many times as long one with ``fbs`` takes."""
    named = [f"x{at}" for at in range(protected)]
    plain = Halves(columns, sizes, [])
    defended = Halves(columns, sizes, [{"name": "fbs", "columns": named, "warm_up": 0, **keys}])
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(steps + 4):
        for halves, seconds in zip((plain, defended), times, strict=True):
            seconds.append(halves.step())
            if number < 4:
                seconds.clear()
    without, with_ = statistics.median(times[0]), statistics.fmean(times[1])  # of every: k only the mean says something
    return 1e3 * without, with_ / without


def cost(steps: int) -> list[dict[str, Any]]:
    """A row for each shape, decoder, N2 and ``every``."""
    rows = []
    for shape, (columns, sizes, protected) in SHAPES.items():
        for decoder_of in ((128,), (128, 128)):
            for rounds, every in ((5, 1), (10, 1), (20, 1), (10, 4)):
                keys = {"decoder": list(decoder_of), "rounds": rounds, "every": every}
                plain, times = ratio(columns, sizes, protected, steps, **keys)
                rows.append({"shape": shape, **keys, "plain_ms": plain, "times": times})
                print(f"| {shape} | {decoder_of} | {rounds} | {every} | {plain:.2f} | {times:.1f} |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    rows = cost(chosen.steps)
    if chosen.out:
        chosen.out.write_text(json.dumps({"machine": machine(), "batch": BATCH, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
