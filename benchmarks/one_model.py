"""What predictions tell, where every row of a model meets the same weights; and what is told by when a message comes.

    python -m benchmarks.one_model              the demo's tables, every strategy after 1 and 10 epochs, two seeds: a minute
    python -m benchmarks.one_model --timing     times told from how many rows a party owns, and from which are known

docs/guides/give-predictions.md and docs/explanations/privacy/index.md explain every line. An AUC is not folded: .5 is chance.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.overhear import Overheard, Tables, overhear, prepare
from benchmarks.sessions import session
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table, values_of
from vfl_node.job import Evaluate, Job, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.classes import auc
from vfl_node.privacy.equal_weights import audit_equal_weights
from vfl_node.session.session import Session
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network.half import RepeatStart
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import FEATURES
from vfl_node.training.split.prediction import Embedder, SplitModel
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together

CPU = torch.device("cpu")
SERVE = Serve(to="both", batch_size=64)


# One set of weights.


def embedded(met: Overheard, job: Job, tables: Tables, strategy: str) -> Tensor:
    """What a service sends of every shared row, float32[m, d], with the synthetic rows of ``strategy``."""
    train = Train.section_of(job)
    train = train.model_copy(update={"missing": train.missing.model_copy(update={"features": strategy})})
    made = met.results[1]
    assert made.servable is not None
    side = Embedder(SplitModel(train, SERVE, made.weights, made.encoder, made.servable.state), met.passive, tables[1], CPU)
    return side.embed_shared(np.arange(len(met.passive)))


def strategies(
    job: Job, tables: Tables, seed: int, epochs: int
) -> Iterator[tuple[str, Mapping[str, float | None], float | None, float | None]]:
    """Strategy, AUC of each attack, the model's AUC, and that of the change where another strategy answers."""
    for strategy in (name for name in FEATURES if FEATURES[name].fills):
        train = Train.section_of(job)
        missing = train.missing.model_copy(update={"features": strategy})
        train = train.model_copy(update={"epochs": epochs, "missing": missing})
        made = job.model_copy(update={"train": train, "evaluate": job.evaluate.model_copy(update={"repeats": 1})})
        met = overhear(made, tables, f"one model {seed}")
        rows, synthetic = embedded(met, made, tables, strategy), ~met.passive.owned
        found = audit_equal_weights(rows, synthetic, Randomness(bytes(32))).attacks
        other = embedded(met, made, tables, "smoothed" if strategy == "sampling" else "sampling")
        change = auc(synthetic, (rows - other).norm(dim=1).numpy())
        results = met.results[0].results
        assert results is not None
        yield strategy, found, results.metrics["auc"], change


def one_set_of_weights(seeds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        job, tables = prepare("clinic_lab", Path(scratch))
        names = ["collinear", "distance_ratio", "near_duplicate", "same_step_twin", "spectral"]
        print("| seed | epochs | strategy | " + " | ".join(names) + " | model | answered by another |")
        print("|---" * (5 + len(names)) + "|")
        for seed in range(seeds):
            for epochs in (1, 10):
                for strategy, found, model, change in strategies(job, tables, seed, epochs):
                    cells = [f"{found[name]:.2f}" for name in names]
                    print(f"| {seed} | {epochs} | {strategy} | {' | '.join(cells)} | {model:.2f} | {change:.2f} |", flush=True)


# When a message comes.


def federation(owned: tuple[int, int], shared: int, columns: int) -> list[tuple[Table, Alignment]]:
    """Both parties' tables and views of a union, of which they own so many rows."""
    rng = np.random.default_rng(0)
    values, found = rng.normal(size=(shared, columns)), []
    labels = (values[:, 0] + rng.normal(size=shared) > 0).astype(np.float32)
    orders = np.arange(shared), np.arange(shared)[::-1]
    for count, order, other in zip(owned, orders, ("lab", "clinic"), strict=True):
        mine = np.sort(order[:count])
        rows = np.full(shared, NOT_MINE)
        rows[mine] = np.arange(count)
        ids = Identifiers.from_items(f"{position}".encode() for position in mine)
        table = Table(ids, {f"c{c}": NumericColumn(values[mine, c]) for c in range(columns)}, labels[mine])
        both = sum(owned) - shared
        peer = PeerFacts(sum(owned) - count, intersection=both, missing=count - both)
        found.append((table, Alignment(ALIGNMENTS["psu"], "curve25519", rows, count, {other: peer})))
    return found


def trained(owned: tuple[int, int], train: Train, *, shared: int = 2000) -> tuple[list[Any], list[Any]]:
    """Both results and both sides."""
    sides = federation(owned, shared, 8)
    made = run_together(
        *(
            (
                SplitTrainer().run(own_session(name, channel, train), TrainingData(view, table), MemoryCheckpoints(), None),
                channel,
            )
            for name, channel, (table, view) in zip(("clinic", "lab"), memory_channels("clinic", "lab"), sides, strict=True)
        )
    )
    for result in made:
        if isinstance(result, Exception):
            raise result
    return made, sides


def own_session(name: str, channel: Channel, train: Train) -> Session:
    """The session of one party that holds nothing out."""
    nothing = Evaluate(test_fraction=0)
    return session(name, {channel.peer: channel}, Randomness(bytes(32)), train=train, evaluate=nothing, clock=lambda: 0.0)


def first_gradient(trials: int) -> float | None:
    """AUC of the work before the first gradient, telling 1,600 own rows of a union of 2,000 from 1,200."""
    own_model = Missing(calibration="test")  # whose q comes from a model of the party alone
    train = Train(bottom=(16,), active_bottom=(16,), top=(16,), epochs=20, batch_size=256, missing=own_model)
    delays, more = [], []
    for trial in range(trials):
        for count in (1200, 1600):
            table, view = federation((count, 1800), 2000, 8)[0]
            clinic = own_session("clinic", memory_channels("clinic", "lab")[0], train)
            own = Randomness(bytes([trial]) + bytes(31))
            began = time.process_time()
            ActiveHalf(clinic, TrainingData(view, table), RepeatStart(own, own, 0, np.arange(2000)))
            delays.append(time.process_time() - began)
            more.append(count == 1600)
    return auc(np.array(more), np.array(delays))


def unnamed(strategy: str, trials: int) -> float | None:
    """AUC of the time that a batch of rows without names takes, telling made-up company from an agreed batch."""
    train = Train(bottom=(64, 64), top=(16,), epochs=1, batch_size=256, missing=Missing(features=strategy))
    made, sides = trained((2000, 1500), train)
    (table, view), lab = sides[1], made[1]
    side = Embedder(SplitModel(train, Serve(to="passive"), lab.weights, lab.encoder, lab.servable.state), view, table, CPU)
    times: list[float] = []
    new: list[bool] = []
    for trial in range(trials):
        rows = np.random.default_rng(trial).permutation(len(table))[:4]
        asked = _take(table, rows, moved=trial % 2 == 1)
        hidden = side.hide_rows(asked)
        began = time.process_time()
        hidden.embedding(0)
        times.append(time.process_time() - began)
        new.append(trial % 2 == 1)
    return auc(np.array(new[10:]), np.array(times[10:]))


def _take(table: Table, rows: NDArray[np.int64], *, moved: bool) -> Table:
    columns = {name: NumericColumn(values_of(column)[rows] + np.float64(moved)) for name, column in table.columns.items()}
    return Table(Identifiers.from_items(table.ids.take(rows)), columns)


def evaluate(trials: int) -> None:
    print("| what is told by the time | AUC |\n|---|---|")
    found = first_gradient(max(2, trials // 10))
    print(f"| an active party of 1,600 rows from one of 1,200, before the first gradient | {found:.2f} |", flush=True)
    for strategy in ("sampling", "gaussian"):
        found = unnamed(strategy, trials)
        print(f"| new rows from known ones in a request without names, {strategy} | {found:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--trials", type=int, default=400)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    evaluate(chosen.trials) if chosen.timing else one_set_of_weights(chosen.seeds)


if __name__ == "__main__":
    main()
