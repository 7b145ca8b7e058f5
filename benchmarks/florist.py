"""What split training over a union costs beside one network in one process, and what synthetic rows and the audit add.

    python -m benchmarks.florist [--rows 131072] [--epochs 4] [--out FILE]

The networks are those of the paper: embeddings of 4 and 2×128 at the passive party, 2×128 at the active
one, Adam, batches of 8,192 rows; 26 categorical columns of 1,000 levels and 13 numeric ones, drawn at
random. Both parties take turns on one thread, over in-memory channels, with messages serialised as
between two nodes. CPU time of an epoch from the end of the one before to its own end, the audit and a
checkpoint in memory included; all four kinds of run are repeated in turn, and the medians compared.

Source: Song et al. 2021 (FLORIST), section 3 and Appendix J.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import machine
from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.job import Evaluate, Parties
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.updates import Updates
from vfl_node.progress import EpochTrained, Event, LocalEpochTrained, Silent
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together

TRAIN = Train(bottom=(128, 128), top=(128, 128), embedding_size=4, batch_size=8192, learning_rate=1e-4)
EVALUATE = Evaluate(test_fraction=0.0, metrics=("nll",))


class Ends(Silent):
    """Notes the CPU time at the end of each epoch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def emit(self, event: Event) -> None:
        """When an epoch of the active party is over, the passive one's is, too."""
        if isinstance(event, EpochTrained | LocalEpochTrained):
            self.times.append(time.process_time())


def table(rows: int, *, labels: bool, seed: int = 0) -> Table:
    """Columns at the passive party, labels at the active one; nothing can be learnt, which costs as much."""
    rng = np.random.default_rng(seed)
    levels = tuple(f"{level:03d}" for level in range(1000))
    columns: dict[str, Column] = {f"i{i}": NumericColumn(rng.normal(size=rows)) for i in range(13)}
    columns |= {f"c{i}": CategoricalColumn(rng.integers(0, len(levels), rows), levels) for i in range(26)}
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))
    return Table(ids, {} if labels else columns, rng.integers(0, 2, rows).astype(np.float32) if labels else None)


def view(rows: int, owned: NDArray[np.bool_], both: int, peer: str) -> Alignment:
    """A party's view of ``rows`` rows that it shares with ``peer``, the i-th of which is its i-th if it owns it."""
    own = np.where(owned, np.arange(rows), NOT_MINE)
    facts = PeerFacts(rows, intersection=both, missing=int(owned.sum()) - both)
    return Alignment(ALIGNMENTS["psu"], "curve25519", own, rows, {peer: facts})


PARTIES = Parties(active="active", passive=("passive",))


def split(rows: int, epochs: int, share: float, *, audited: bool = True) -> list[float]:
    """CPU seconds of each epoch but the first, each party owning ``share`` of the rows; ``audited``: whether both attack."""
    rng = np.random.default_rng(1)
    active, passive = (rng.random(rows) < share for _ in range(2))
    both = int((active & passive).sum())
    train = TRAIN.model_copy(update={"epochs": epochs})
    ends = Ends()

    def run(party: str, channel: Channel, owned: NDArray[np.bool_]) -> Coroutine[Any, Any, Trained]:
        data = TrainingData(view(rows, owned, both, channel.peer), table(rows, labels=party == "active"))
        shown, secret = (ends, b"a" * 32) if party == "active" else (Silent(), b"p" * 32)
        own = session(
            party,
            {channel.peer: channel},
            Randomness(secret),
            train=train,
            evaluate=EVALUATE,
            parties=PARTIES,
            progress=shown,
            protection=Protection(membership=audited),
        )
        return SplitTrainer().run(own, data, MemoryCheckpoints(), None)

    a, b = memory_channels("active", "passive")
    results = run_together((run("active", a, active), a), (run("passive", b, passive), b))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return np.diff(ends.times).tolist()


def joint(rows: int, epochs: int) -> list[float]:
    """CPU seconds of each epoch but the first of the same network with all columns in one place."""
    own = table(rows, labels=False)
    labels = torch.from_numpy(table(rows, labels=True).labels)
    every = np.arange(rows, dtype=np.int64)
    inputs = PositionedInput.from_features(Encoder.fit(own, every).transform(own), every, torch.device("cpu"))
    whole = TRAIN.model_copy(update={"active_bottom": TRAIN.bottom})
    model = build_classifier(architecture_of(TRAIN.model), whole, inputs.schema, [])
    initialise(model, Randomness(b"j" * 32))
    optimizer = Updates(model, TRAIN.optimizer, TRAIN)
    schedule, times = Schedule(bytes(32), rows, 0), []
    for epoch in range(epochs):
        for batch in schedule.batches(0, epoch, every, TRAIN.batch_size):
            loss = binary_cross_entropy_with_logits(model(inputs.take(batch)), labels[torch.from_numpy(batch)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        times.append(time.process_time())
    return np.diff(times).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows, epochs = chosen.rows, chosen.epochs
    kinds: dict[str, Callable[[], list[float]]] = {
        "one network in one process": lambda: joint(rows, epochs),
        "split, every row real": lambda: split(rows, epochs, 1.0),
        "split, half of the rows synthetic at each party, no audit": lambda: split(rows, epochs, 0.5, audited=False),
        "split, half of the rows synthetic at each party, audited": lambda: split(rows, epochs, 0.5),
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(chosen.rounds):
        for kind, run in kinds.items():
            found[kind] += run()
    medians = {kind: statistics.median(times) for kind, times in found.items()}
    first, real, plain, audited = medians.values()
    print("| an epoch | CPU s, median | × the first |\n|---|---|---|")
    for kind, median in medians.items():
        print(f"| {kind} | {median:.3f} | {median / first:.2f} |")
    print(f"\nsynthetic rows and the audit cost {audited / real - 1:.1%} of a step; of it the audit {audited / plain - 1:.1%}")
    if chosen.out:
        about = {"machine": machine(), "rows": rows, "batch": TRAIN.batch_size, "epochs": epochs, "rounds": chosen.rounds}
        chosen.out.write_text(json.dumps({**about, "cpu_s": found, "median_cpu_s": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
