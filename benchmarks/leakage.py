"""Measure what training leaks: real jobs in memory, what each party receives is kept, and attacked.

    python benchmarks/leakage.py                                                  the demo's tables
    python benchmarks/leakage.py --adult PATH/adult.data.gz --out leakage.json    and Adult's first people

The secret is which of its *own* records the peer lacks; a record of the union that is not its own is the
peer's anyway. An AUC is not folded: .5 is chance, and one far below .5 tells as well. Seeds are fixed.
docs/privacy.md explains every line.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from overhear import Overheard, Tables, Transcript, overhear, prepare
from torch import Tensor
from torch.nn.functional import normalize

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job
from vfl_node.metrics import auc
from vfl_node.models import Bottom, initialise
from vfl_node.privacy.attacks import Batch, invert, longitudinal, near_duplicate, spectral
from vfl_node.privacy.attacks.longitudinal import SMALLEST
from vfl_node.privacy.attacks.transcript import by_epoch

EPOCHS = 1, 3, 10
EXACT = 1e-5  # distance of twins relative to a row's norm: float32's rounding
CLOSE = 0.01  # standard deviations: a row is recovered if every column is found this closely
OWN, SAME_CLASS = "own records the peer lacks", "own records the peer lacks, of those whose label seen is the synthetic one"
Mask = NDArray[np.bool_]
Row = tuple[str, str, str, float | None]
"""Who attacks, after what, how, and the result: an AUC, or a share where it says so."""


def measure(met: Overheard, epochs: int, repeats: int, *, tests: bool) -> Iterator[Row]:
    """All attacks on the first ``epochs`` epochs of the first ``repeats`` repeats, with or without the rows held out."""
    a, p, size = met.active.owned, met.passive.owned, len(met.labels)
    h, g = (
        [[batch for batch in repeat if batch.epoch < epochs] for repeat in transcript[:repeats]]
        for transcript in (met.embeddings, met.gradients)
    )
    loss = average(g, lambda rows: rows.norm(dim=2).mean(dim=0), size)  # a gradient is as long as its row fits badly
    for attack, found in membership(h, epochs, ~p, a):
        yield "active", OWN, attack, found
    yield "active", OWN, "row loss", judged(~p, loss, a)
    distance = twins([batch for repeat in h for batch in repeat] + (met.tested[:repeats] if tests else []), size)
    yield "active", OWN, "same-step twin", judged(~p, -distance, a)
    for which, of in ("the peer lacks", ~p), ("it holds", p):
        yield (
            "active",
            f"own records {which}",
            "share with an exact twin",
            share(distance < EXACT, a & of & ~np.isnan(distance)),
        )

    real = met.labels != met.labels[~a][0]  # no synthetic label is of this class
    for after, among in (OWN, p), (SAME_CLASS, p & ~real):
        for attack, found in membership(g, epochs, ~a, among):
            yield "passive", after, attack, found
        yield "passive", after, "row loss", judged(~a, loss, among)
    side = average(g, direction, size)
    yield "passive", "label used", "gradient direction", judged(real, side, np.ones(size, dtype=bool))
    seen = p & (side > 0)
    yield "passive", "own records the peer holds", "share given away by the label", share(seen, a & p & ~np.isnan(side))
    yield "passive", "own records given away by the label", "share the peer holds", share(a, seen)


def membership(repeats: Transcript, epochs: int, secret: Mask, among: Mask) -> Iterator[tuple[str, float | None]]:
    """The product's attacks, scored on the positions ``among``."""
    size = len(secret)
    change = average(repeats, longitudinal.scores, size) if epochs > 1 else np.full(size, np.nan)
    yield "longitudinal", judged(secret, change, among)
    near = average(repeats, lambda rows: torch.stack([near_duplicate.scores(epoch) for epoch in rows]).mean(dim=0), size)
    yield "near_duplicate", judged(secret, near, among)
    batches = [(batch.positions[mine], spectral.scores(batch.rows).numpy()[mine])
               for repeat in repeats for batch in repeat for mine in [among[batch.positions]]]
    yield "spectral", mean(auc(secret[positions], scores) for positions, scores in batches)


def average(repeats: Transcript, scores: Callable[[Tensor], Tensor], size: int) -> NDArray[np.float64]:
    """The mean over repeats of each position's score, float64[size]; NaN at one never met."""
    total, count = np.zeros(size), np.zeros(size)
    for batches in repeats:
        positions, rows = by_epoch(batches)
        total[positions] += scores(rows).numpy()
        count[positions] += 1
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


def direction(rows: Tensor) -> Tensor:
    """On which side of the main direction of unit gradients each row lies, float64[k]; the rarer side is positive."""
    units = normalize(rows, dim=2, eps=SMALLEST)  # (E, k, d)
    sides = torch.stack([unit @ torch.linalg.svd(unit, full_matrices=False).Vh[0] for unit in units])  # (E, k)
    return (sides * torch.where((sides > 0).double().mean(dim=1) > 0.5, -1.0, 1.0)[:, None]).mean(dim=0)


def twins(batches: list[Batch], size: int) -> NDArray[np.float64]:
    """The least relative distance to another row that the *same* weights embedded, float64[size]; NaN: never met."""
    least = np.full(size, np.nan)
    for batch in batches:
        distance = -near_duplicate.scores(batch.rows) / batch.rows.double().norm(dim=1).clamp_min(SMALLEST)
        least[batch.positions] = np.fmin(least[batch.positions], distance.numpy())
    return least


def judged(secret: Mask, scores: NDArray[np.float64], among: Mask) -> float | None:
    met = among & ~np.isnan(scores)
    return auc(secret[met], scores[met])


def share(holds: Mask, among: Mask) -> float | None:
    return float(holds[among].mean()) if among.any() else None


def inversion(job: Job, tables: Tables) -> Iterator[dict[str, Any]]:
    """Of the first batch, the share of rows whose columns follow from their embedding, with initial weights known or not."""
    for sizes in job.train.bottom, (128, 128):
        changed = job.model_copy(update={"train": job.train.model_copy(update={"bottom": sizes, "epochs": 1})})
        met = overhear(changed, tables, "inversion")
        first = met.embeddings[0][0]
        mine = met.passive.owned[first.positions]
        received = first.rows[torch.from_numpy(mine)].double()
        truth = torch.from_numpy(met.encoder.transform(tables[1]).numeric[met.passive.rows[first.positions[mine]]])
        for known, secret in ("public", met.passive_randomness.derive("weights/0")), ("private", Randomness(bytes(32))):
            believed = Bottom(numeric=truth.shape[1], cardinalities=(), embedding_size=1, sizes=sizes, wide=False)
            initialise(believed, secret.torch())
            believed.double()
            guess, _ = invert(
                lambda x, network=believed: network(x, torch.empty(len(x), 0, dtype=torch.int64)),
                received,
                width=truth.shape[1],
                generator=Randomness(b"a" * 32).torch(),
            )
            found = float(((guess - truth).abs().amax(dim=1) < CLOSE).double().mean())
            yield {"bottom": list(sizes), "initial weights": known, "rows": len(truth), "recovered": found}


def table(job: Job, tables: Tables, jobs: int) -> dict[str, Any]:
    """Mean and standard deviation over ``jobs`` jobs of different seeds."""
    last, repeats = job.train.epochs, job.evaluate.repeats
    stages = {f"{epochs} ep.": (epochs, 1, False) for epochs in sorted({*EPOCHS, last}) if epochs <= last}
    stages["whole job"] = last, repeats, True
    values: dict[tuple[str, str, str], dict[str, list[float | None]]] = {}
    for number in range(jobs):
        met = overhear(job, tables, f"leakage {number}")
        for stage, (epochs, of, tests) in stages.items():
            for *what, value in measure(met, epochs, of, tests=tests):
                values.setdefault((what[0], what[1], what[2]), {}).setdefault(stage, []).append(value)
    rows = [
        {"attacker": who, "after": after, "attack": how} | {stage: summary(found) for stage, found in by_stage.items()}
        for (who, after, how), by_stage in values.items()
    ]
    view = met.active
    sizes = {"active": view.ours, "passive": view.theirs, "union": view.union, "shared": view.intersection}
    return {"job": job.name, "jobs": jobs, "repeats": repeats, "sizes": sizes, "stages": list(stages), "rows": rows}


def markdown(made: dict[str, Any]) -> Iterator[str]:
    yield "\n**{job}**: {sizes}, mean ± sd over {jobs} jobs, {repeats} repeats each\n".format(**made)
    yield "| attacker | after | attack | " + " | ".join(made["stages"]) + " |"
    yield "|---" * (3 + len(made["stages"])) + "|"
    for row in made["rows"]:
        cells = (row[stage] and f"{row[stage]['mean']:.2f} ± {row[stage]['sd']:.2f}" for stage in made["stages"])
        yield "| " + " | ".join([row["attacker"], row["after"], row["attack"], *(cell or "–" for cell in cells)]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adult", type=Path, metavar="FILE", help="UCI's adult.data.gz with a header line")
    parser.add_argument("--people", type=int, default=6000, help="how many of Adult's")
    parser.add_argument("--epochs", type=int, help="instead of the job's")
    parser.add_argument("--jobs", type=int, default=5, help="seeds; Adult takes one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    def prepared(*of: Any) -> tuple[Job, Tables]:
        job, tables = prepare(*of)
        epochs = chosen.epochs or job.train.epochs
        return job.model_copy(update={"train": job.train.model_copy(update={"epochs": epochs})}), tables

    with tempfile.TemporaryDirectory() as scratch:
        demo = prepared("clinic_lab", Path(scratch, "demo"))
        made = {"tables": [table(*demo, chosen.jobs)], "inversion": list(inversion(*demo))}
        if chosen.adult:
            some = Path(scratch, "some.gz")
            with gzip.open(chosen.adult, "rt") as source, gzip.open(some, "wt") as target:
                target.writelines(itertools.islice(source, 1 + chosen.people))
            made["tables"].append(table(*prepared("adult", Path(scratch, "adult"), some), 1))
    for of in made["tables"]:
        print(*markdown(of), sep="\n")
    print("\n| bottom | initial weights | rows | share recovered |\n|---|---|---|---|")
    for of in made["inversion"]:
        print("| " + " | ".join(map(str, of.values())) + " |")
    if chosen.out:
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
