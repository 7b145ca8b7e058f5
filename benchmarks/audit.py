"""What the audit costs of a step, and how near its figures come to attacks that compare all rows.

    python -m benchmarks.audit [--rows 20000] [--steps 200] [--rounds 5] [--out FILE]

Two trainings of the default network over the same rows, one audited at both parties and one not, take
steps in turn, on one thread, over in-memory channels. CPU time; the median of so many steps of each, and
the share by which the audited one is longer; beside it the mean, with what is done at the end of an epoch.
Half of the rows are synthetic at each party (copies), 26 columns of numbers, batches of 256.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.florist import PARTIES, view
from benchmarks.measure import machine
from benchmarks.sessions import session
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.settings.protection import Protection
from vfl_node.training.network.half import Half, RepeatStart
from vfl_node.training.network.loop import HalfOf
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels

TRAIN = Train(batch_size=256)
COLUMNS = 26


class Pair:
    """Both parties of one training, which take steps together.

    Args:
        rows: shared ones, half of them synthetic at each party.
        audited: whether they attack what they send.
    """

    def __init__(self, rows: int, *, audited: bool) -> None:
        rng = np.random.default_rng(1)
        owned = [rng.random(rows) < 0.5 for _ in range(2)]
        both = int((owned[0] & owned[1]).sum())
        ids = Identifiers.from_items(str(row).encode() for row in range(rows))
        labels = Table(ids, {}, rng.integers(0, 2, rows).astype(np.float32))
        columns = Table(ids, {f"x{i}": NumericColumn(rng.normal(size=rows)) for i in range(COLUMNS)}, None)
        self._number = 0
        every = np.arange(rows)
        self.halves: list[Half] = []
        kinds: tuple[HalfOf, HalfOf] = ActiveHalf, PassiveHalf
        for half_of, name, mine, table, channel in zip(
            kinds,
            ("active", "passive"),
            owned,
            (labels, columns),
            memory_channels("active", "passive"),
            strict=True,
        ):
            own = session(
                name,
                {channel.peer: channel},
                Randomness(bytes(32)),
                train=TRAIN,
                parties=PARTIES,
                protection=Protection(membership=audited, labels=False),
            )
            data = TrainingData(view(rows, mine, both, channel.peer), table)
            self.halves.append(half_of(own, data, RepeatStart(Randomness(bytes(32)), Randomness(bytes(32)), 0, every)))
        self._steps = self._schedule(Schedule(bytes(32), rows, 0), every)

    @staticmethod
    def _schedule(schedule: Schedule, every: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        epoch = 0
        while True:
            batches = schedule.batches(0, epoch, every, TRAIN.batch_size)
            yield from ((batch, batch is batches[-1]) for batch in batches)
            epoch += 1

    def step(self) -> tuple[float, float]:
        """CPU seconds of the next step, and of what the audit does after it if it ends an epoch."""
        positions, last = next(self._steps)
        started = time.process_time()
        pending = [half.step(self._number, positions) for half in reversed(self.halves)]
        while pending:
            for step in tuple(pending):
                try:
                    step.send(None)
                except StopIteration:
                    pending.remove(step)
        stepped = time.process_time()
        if last:
            for half in self.halves:
                for attachment in half.attachments:
                    attachment.epoch_ends()
        self._number += 1
        return stepped - started, time.process_time() - stepped


def measured(rows: int, steps: int) -> dict[str, float]:
    """Medians and means of an audited step and of one that is not, in seconds."""
    pairs = {"audited": Pair(rows, audited=True), "plain": Pair(rows, audited=False)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    for number in range(10 + steps):  # the first ten warm up
        for name, pair in pairs.items():
            taken = pair.step()
            if number >= 10:
                times[name].append(taken)
    figures = {}
    for name, seconds in times.items():
        figures[f"{name} median"] = statistics.median(step for step, _ in seconds)
        figures[f"{name} mean"] = statistics.fmean(step + end for step, end in seconds)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    gc.disable()
    rounds = [measured(chosen.rows, chosen.steps) for _ in range(chosen.rounds)]
    for what in ("median", "mean"):
        on, off = ([figures[f"{name} {what}"] for figures in rounds] for name in ("audited", "plain"))
        shares = sorted(a / b - 1 for a, b in zip(on, off, strict=True))
        print(
            f"{what} of {chosen.steps} steps: {1e3 * statistics.median(off):.2f} ms, audited {1e3 * statistics.median(on):.2f} "
            f"ms; the audit costs {statistics.median(shares):.1%} ({shares[0]:.1%} to {shares[-1]:.1%})"
        )
    if chosen.out:
        about = {"machine": machine(), "rows": chosen.rows, "steps": chosen.steps, "batch": TRAIN.batch_size}
        chosen.out.write_text(json.dumps({**about, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
