"""Measure what training leaks: real jobs in memory, what each party receives is kept, and attacked.

    python -m benchmarks.leakage                                                  the demo's tables
    python -m benchmarks.leakage --adult PATH/adult.data.gz --out leakage.json    and Adult's first people

The secret is which of its *own* records the peer lacks; a record of the union that is not its own is the
peer's anyway. An AUC is not folded: .5 is chance, and one far below .5 tells as well. Seeds are fixed.
docs/explanations/privacy/index.md explains every line.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.overhear import Overheard, Tables, Transcript, overhear, prepare
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job
from vfl_node.metrics.classes import auc
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks import spectral
from vfl_node.privacy.attacks.attack import EpochAttack, ScoringAttack
from vfl_node.privacy.attacks.collinear import Collinear
from vfl_node.privacy.attacks.distance_ratio import DistanceRatio
from vfl_node.privacy.attacks.embedding_inversion import invert
from vfl_node.privacy.attacks.longitudinal import SMALLEST, Longitudinal
from vfl_node.privacy.attacks.near_duplicate import NearDuplicate
from vfl_node.privacy.attacks.row_loss import RowLoss
from vfl_node.privacy.attacks.same_step_twin import SameStepTwin
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.training.intervals import student_t
from vfl_node.training.split.config import Train

EPOCHS = 1, 3, 10
CLOSE = 0.01  # standard deviations: a row is recovered if every column is found this closely
LACKED = "own records the peer lacks"
Mask = NDArray[np.bool_]


def measure(met: Overheard, epochs: int, repeats: int, *, tests: bool) -> Iterator[tuple[Any, ...]]:
    """Rows of the first epochs of the first repeats: who attacks, after what, how, and the result, an AUC or a share."""
    a, p, size = met.active.owned, met.passive.owned, len(met.labels)
    h, g = (
        [[batch for batch in repeat if batch.epoch < epochs] for repeat in transcript[:repeats]]
        for transcript in (met.embeddings, met.gradients)
    )
    tested = met.tested[:repeats] if tests else []
    for attack, found in membership(h, tested, epochs, ~p, a):
        yield "active", LACKED, attack, found
    with_labels = [spectral.append_labels(repeat, met.labels) for repeat in h[:1]]  # the labels of the first repeat
    yield "active", LACKED, "spectral, with labels", mean_by_batch(with_labels, ~p, a)
    twins = scores(SameStepTwin, [*itertools.chain(*h), *tested], size)
    for which, chosen in (LACKED, ~p), ("own records the peer holds", p):
        yield "active", which, "share with an exact twin", share(twins > 0, a & chosen & ~np.isnan(twins))

    real = met.labels != met.labels[~a][0]  # no synthetic label is of this class
    for among, rows in ("", p), (", seen with the synthetic label", p & ~real):
        for attack, found in membership(g, [], epochs, ~a, rows):
            yield "passive", LACKED + among, attack, found
    side = average(g, GradientDirection, size)
    yield "passive", "label used", "gradient direction", judged(real, side, np.ones(size, dtype=bool))
    seen = p & (side > 0)
    yield "passive", "own records the peer holds", "share given away by the label", share(seen, a & p & ~np.isnan(side))
    yield "passive", "own records given away by the label", "share the peer holds", share(a, seen)


def membership(
    repeats: Transcript, tested: list[Batch], epochs: int, secret: Mask, among: Mask
) -> Iterator[tuple[str, float | None]]:
    """The product's attacks on a transcript, judged on the positions ``among``; twins also among the rows ``tested``."""
    size, batches = len(secret), [*itertools.chain(*repeats)]
    yield "longitudinal", judged(secret, average(repeats, Longitudinal, size), among)
    yield "collinear", judged(secret, scores(Collinear, [*batches, *tested], size), among)
    yield "distance_ratio", judged(secret, average(repeats, DistanceRatio, size), among)
    yield "near_duplicate", judged(secret, average(repeats, NearDuplicate, size), among)
    yield "row_loss", judged(secret, scores(RowLoss, batches, size), among)
    met = np.bincount(np.concatenate([batch.positions for batch in [*batches, *tested]]), minlength=size)
    yield "same_step_twin", judged(secret, met * scores(SameStepTwin, [*batches, *tested], size), among)
    yield "spectral", mean_by_batch(repeats, secret, among)


def mean_by_batch(repeats: Transcript, secret: Mask, among: Mask) -> float | None:
    """The spectral attack's mean over batches, judged on the positions ``among``."""
    found = []
    for batch in itertools.chain(*repeats):
        judging = among[batch.positions]
        found.append(auc(secret[batch.positions][judging], spectral.scores(batch.rows).numpy()[judging]))
    defined = [value for value in found if value is not None]
    return statistics.fmean(defined) if defined else None


def scores(attack: type[ScoringAttack], batches: list[Batch], size: int) -> NDArray[np.float64]:
    """Each position's score by ``attack``, float64[size]; NaN at one never met."""
    return follow(attack, batches, np.zeros(size, dtype=np.bool_)).scores()


def average(repeats: Transcript, attack: type[ScoringAttack], size: int) -> NDArray[np.float64]:
    """The mean over repeats of each position's score, float64[size]; NaN at one never met."""
    total, count = np.zeros(size), np.zeros(size)
    for batches in repeats:
        of_repeat = scores(attack, batches, size)
        met = ~np.isnan(of_repeat)
        total[met] += of_repeat[met]
        count[met] += 1
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


class GradientDirection(EpochAttack):
    """On which side of the main direction of unit gradients each row lies; the rarer side is positive."""

    def _judge(self, epoch: TranscriptEpoch) -> None:
        positions, rows = epoch.sort()
        units = normalize(rows.double(), dim=1, eps=SMALLEST)  # (k, d)
        sides = units @ spectral.main_direction(units)  # (k,)
        self._tally.add(positions, (-sides if (sides > 0).double().mean() > 0.5 else sides).numpy())


def judged(secret: Mask, scores: NDArray[np.float64], among: Mask) -> float | None:
    met = among & ~np.isnan(scores)
    return auc(secret[met], scores[met])


def share(holds: Mask, among: Mask) -> float | None:
    return float(holds[among].mean()) if among.any() else None


def inversion(job: Job, tables: Tables) -> Iterator[dict[str, Any]]:
    """The share of the first batch's rows whose columns follow from their embedding, initial weights known or not."""
    train = Train.section_of(job)
    for sizes in train.bottom, (128, 128):
        changed = job.model_copy(update={"train": train.model_copy(update={"bottom": sizes, "epochs": 1})})
        met = overhear(changed, tables, "inversion")
        first = met.embeddings[0][0]
        mine = met.passive.owned[first.positions]
        truth = met.encoder.transform(tables[1]).numeric[met.passive.rows[first.positions[mine]]]
        for known, secret in ("public", met.passive_randomness.derive("weights/0")), ("private", Randomness(bytes(32))):
            believed = MlpBottom(InputSchema(truth.shape[1]), sizes)
            initialise(believed, secret)
            believed.double()
            guess, _ = invert(
                partial(_embed, believed),
                first.rows[torch.from_numpy(mine)].double(),
                width=truth.shape[1],
                randomness=Randomness(b"a" * 32),
            )
            found = float((np.abs(guess.numpy() - truth).max(axis=1) < CLOSE).mean())
            yield {"bottom": list(sizes), "weights": known, "rows": len(truth), "recovered": found}


def _embed(bottom: MlpBottom, columns: Tensor) -> Tensor:
    return bottom(ModelInput.from_tensors(columns))


def table(job: Job, tables: Tables, jobs: int) -> dict[str, Any]:
    """Every attack's results, one for each of ``jobs`` jobs that differ in their seeds."""
    last, repeats = Train.section_of(job).epochs, job.evaluate.repeats
    stages = {f"{epochs} ep.": (epochs, 1, False) for epochs in sorted({*EPOCHS, last}) if epochs <= last}
    stages["whole job"] = last, repeats, True
    found: dict[tuple[str, str, str], dict[str, list[float | None]]] = {}
    for number in range(jobs):
        met = overhear(job, tables, f"leakage {number}")
        for stage, (epochs, trained, tests) in stages.items():
            for *what, value in measure(met, epochs, trained, tests=tests):
                found.setdefault(tuple(what), {name: [] for name in stages})[stage].append(value)
    rows = [
        dict(zip(("attacker", "after", "attack", "results"), (*what, results), strict=True)) for what, results in found.items()
    ]
    view = met.active
    sizes = {"active": view.ours, "passive": view.peer.records, "union": view.union, "shared": view.peer.intersection}
    return {"job": job.name, "jobs": jobs, "repeats": repeats, "sizes": sizes, "rows": rows}


def markdown(made: dict[str, Any]) -> Iterator[str]:
    yield "\n{job}: {sizes}, jobs: {jobs}, repeats in each: {repeats}; mean ± half of a 95 % interval (jobs)\n".format(**made)
    stages = made["rows"][0]["results"]
    yield "| attacker | after | attack | " + " | ".join(stages) + " |"
    yield "|---" * (3 + len(stages)) + "|"
    for *what, results in (row.values() for row in made["rows"]):
        yield "| " + " | ".join([*what, *map(cell, results.values())]) + " |"


def cell(values: list[float | None]) -> str:
    """The mean over jobs ± half of its 95 % interval (Student's t), where there are several; a dash where one has no value."""
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        return "–"
    mean = f"{statistics.fmean(defined):.2f}"
    if len(defined) < 2:
        return mean
    half = student_t(0.95, len(defined) - 1) * statistics.stdev(defined) / math.sqrt(len(defined))
    return f"{mean} ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adult", type=Path, metavar="FILE", help="UCI's adult.data.gz with a header line")
    parser.add_argument("--people", type=int, default=6000, help="how many of Adult's")
    parser.add_argument("--epochs", type=int, help="instead of the jobs' own")
    parser.add_argument("--jobs", type=int, default=5, help="seeds; Adult takes one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        demo = prepare("clinic_lab", Path(scratch, "demo"), epochs=chosen.epochs)
        made = {"tables": [table(*demo, chosen.jobs)], "inversion": list(inversion(*demo))}
        if chosen.adult:
            some = Path(scratch, "some.gz")
            with gzip.open(chosen.adult, "rt") as source, gzip.open(some, "wt") as target:
                target.writelines(itertools.islice(source, 1 + chosen.people))
            made["tables"].append(table(*prepare("adult", Path(scratch, "adult"), some, epochs=chosen.epochs), 1))
    for rows in made["tables"]:
        print(*markdown(rows), sep="\n")
    print("\n| bottom | initial weights | rows | share recovered |\n|---|---|---|---|")
    for cells in made["inversion"]:
        print("| " + " | ".join(map(str, cells.values())) + " |")
    if chosen.out:
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
