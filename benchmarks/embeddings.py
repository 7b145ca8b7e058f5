"""A training step of a bottom with one category of very many levels: dense tables against sparse ones, and initial weights.

    python -m benchmarks.embeddings                                         1 and 5 million levels: two minutes, 3 GiB
    python -m benchmarks.embeddings --levels 10000 100000 --batch 256 8192  where a sparse table begins to pay

A step is what training does with a batch: forward, backward, the optimiser. The table is dense or sparse whatever its size; so
one run shows both sides of ``vfl_node.models.layers.SPARSE_FROM``. Medians of CPU times with one thread, because another
program on the machine changes them less than it changes waiting times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.measure import alone, machine, peak_bytes
from vfl_node.crypto.randomness import Randomness
from vfl_node.models import InputSchema
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.training.network.learner import Learner
from vfl_node.training.split.config import Train

NUMERIC = 13
"""Numeric columns beside the category, as a click log has."""


@dataclass(frozen=True)
class Measured:
    """One kind of table.

    Attributes:
        levels: codes of the table.
        width: numbers a code.
        batch: rows a step.
        sparse: whether its gradient is.
        optimizer: name in the job.
        step_ms: CPU time of a step, the median.
        initial_s: CPU time to draw all weights of the bottom.
        peak_bytes: the most memory of the process, libraries included.
    """

    levels: int
    width: int
    batch: int
    sparse: bool
    optimizer: str
    step_ms: float
    initial_s: float
    peak_bytes: int


def measured(levels: int, width: int, batch: int, sparse: bool, optimizer: str, steps: int) -> Measured:
    """The median of ``steps`` steps, after one that is not counted: it makes the moments."""
    torch.set_num_threads(1)
    train = Train(bottom=(128, 128), embedding_size=width, batch_size=batch, optimizer=optimizer)
    model = MlpBottom(InputSchema(NUMERIC, (levels,)), train.bottom, embedding_size=width)
    embedding = model.categories[0]
    assert isinstance(embedding, torch.nn.Embedding)
    embedding.sparse = sparse
    began = time.process_time()
    initialise(model, Randomness(bytes(32)))
    initial_s = time.process_time() - began
    learner, draws, times = Learner(model, train, Randomness(bytes(32))), Randomness(b"r" * 32), []
    for step in range(steps + 1):
        codes = torch.from_numpy(draws.choices(levels, batch))[:, None]
        rows = ModelInput(torch.from_numpy(draws.normal((batch, NUMERIC))), codes)
        gradient = torch.from_numpy(draws.normal((batch, train.bottom[-1]))) / batch
        began = time.process_time()
        learner.begin(step)
        torch.autograd.backward([model(rows)], [gradient])
        learner.step()
        times.append(time.process_time() - began)
    return Measured(levels, width, batch, sparse, optimizer, 1000 * statistics.median(times[1:]), initial_s, peak_bytes())


def run(
    levels: Sequence[int], widths: Sequence[int], batches: Sequence[int], optimizers: Sequence[str], steps: int
) -> Iterator[tuple[Measured, Measured]]:
    """Each case dense and sparse, in a process of its own."""
    for optimizer in optimizers:
        for width in widths:
            for batch in batches:
                for count in levels:
                    dense, sparse = (
                        alone(measured, count, width, batch, is_sparse, optimizer, steps) for is_sparse in (False, True)
                    )
                    yield dense, sparse


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--width", type=int, nargs="+", default=[16])
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 8192])
    parser.add_argument("--optimizer", nargs="+", default=["adam"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write every figure there, too")
    chosen = parser.parse_args(arguments)
    print(
        "| optimiser | levels | width | rows | dense step | sparse step | ratio | initial weights | peak dense | peak sparse |"
    )
    print("|---" * 10 + "|")
    found = []
    for dense, sparse in run(chosen.levels, chosen.width, chosen.batch, chosen.optimizer, chosen.steps):
        found += [dense, sparse]
        print(
            f"| {dense.optimizer} | {dense.levels:,} | {dense.width} | {dense.batch:,} | {dense.step_ms:.1f} ms "
            f"| {sparse.step_ms:.1f} ms | {dense.step_ms / sparse.step_ms:.1f} | {sparse.initial_s:.2f} s "
            f"| {dense.peak_bytes / 2**30:.2f} GiB | {sparse.peak_bytes / 2**30:.2f} GiB |",
            flush=True,
        )
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
