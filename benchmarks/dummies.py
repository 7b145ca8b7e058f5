"""Measure what dummies hide in asymmetric logistic regression: the attacks of both parties on training in the clear.

    python benchmarks/dummies.py                                             synthetic columns, some minutes
    python benchmarks/dummies.py --data FOLDER --out dummies.json            and real ones: default_credit, mnist

Training is simulated: what crosses in the clear depends on no encryption. An AUC is of telling genuine rows from
dummies, .5 is chance. Half of the m rows are genuine, seeds are fixed. docs/explanations/privacy/index.md explains every line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import residuals, scores, start
from vfl_node.privacy.attacks.residuals import Round
from vfl_node.training.glm.side import START_SCORES, find_varied

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
FRACTION_BITS = 40
STEPS = 40  # rounds the response attack uses, spread evenly

SYNTHETIC = (  # m, d_s, batch (0: full), rounds, and the AUC the reference notes have
    (2000, 15, 0, 200, 0.52),
    (2000, 100, 0, 200, 0.52),
    (2000, 392, 0, 200, 0.60),
    (1000, 392, 0, 200, 0.69),
    (2000, 15, 128, 400, 0.64),
    (2000, 15, 32, 400, 0.71),
    (2000, 15, 16, 400, 0.82),
    (2000, 40, 128, 400, 0.76),
)
REAL = (  # name, m, batch (0: full), and the fewest rows that may differ in a column from the most frequent value
    *(("default_credit", 2000, batch, 20) for batch in (0, 128, 32, 16)),
    *(("mnist", m, 0, least) for m in (2000, 10000) for least in (1, 20)),
)


@dataclass(frozen=True, eq=False)
class Problem:
    """One job's data, as nobody has it.

    Attributes:
        x: float64[m, d_s], the passive party's columns.
        w: float64[m, d_w], the active party's; zeros for a dummy are as good as anything.
        y: float64[m], labels 0 and 1.
        genuine: bool[m].
    """

    x: Floats
    w: Floats
    y: Floats
    genuine: Mask


@dataclass(frozen=True, eq=False)
class Training:
    """What crossed in the clear.

    Attributes:
        rounds: the passive party's.
        weights: float64[T, d_s], its weights before each.
        scores: float64[m, T + 1], before each and after the last.
        residuals: float64[m, T], as the active party sent them.
        intercepts: float64[T], the active party's, which does not cross.
    """

    rounds: list[Round]
    weights: Floats
    scores: Floats
    residuals: Floats
    intercepts: Floats


def train(
    problem: Problem, rounds: int, rate: float, random: np.random.Generator, *, batch: int = 0, spread: float = START_SCORES
) -> Training:
    """Logistic regression on the genuine rows, each gradient divided by the batch's genuine ones.

    ``spread`` is the standard deviation of the active party's first scores. A last column of ones is its intercept.
    """
    m, width = problem.x.shape
    own = np.hstack([problem.w, np.ones((m, 1))])
    passive, active = random.normal(scale=0.01, size=(width,)), np.zeros(own.shape[1])
    if problem.w.shape[1]:
        active[:-1] = random.normal(size=problem.w.shape[1])
        active *= spread / (own @ active)[problem.genuine].std()
    made, weights, seen, sent, intercepts = [], [], [], [], []
    for _ in range(rounds):
        rows = np.sort(random.permutation(m)[:batch]) if batch else np.arange(m)
        u = problem.x @ passive
        count = max(int(problem.genuine[rows].sum()), 1)
        d = np.zeros(m)
        d[rows] = np.where(problem.genuine[rows], sigmoid(u + own @ active)[rows] - problem.y[rows], 0) / count
        gradient = problem.x.T @ d
        made.append(Round(rows, gradient))
        weights.append(passive)
        seen.append(u)
        sent.append(d)
        intercepts.append(active[-1])
        passive, active = passive - rate * gradient, active - rate * own.T @ d
    return Training(made, np.array(weights), np.array([*seen, problem.x @ passive]).T, np.array(sent).T, np.array(intercepts))


def sigmoid(z: Floats) -> Floats:
    return 1 / (1 + np.exp(-z))


def gaussian(
    m: int, passive: int, active: int, random: np.random.Generator, *, noise: int = 0, correlation: float = 0.0
) -> Problem:
    """Normal columns, those of the passive party correlated with their neighbours; labels follow all but the noise."""
    x, w = random.normal(size=(m, passive)), random.normal(size=(m, active))
    for j in range(1, passive):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    weights = random.normal(size=passive + active)
    y = (random.random(m) < sigmoid(2 * np.hstack([x, w]) @ weights / np.linalg.norm(weights))).astype(np.float64)
    return Problem(x, np.hstack([w, random.normal(size=(m, noise))]), y, half(m, random))


def half(m: int, random: np.random.Generator) -> Mask:
    return random.permutation(m) < m // 2


def credit(folder: Path, m: int, random: np.random.Generator) -> Problem:
    """The 10 columns of the host, 13 of the guest, z-scored over all 30,000 rows; default next month."""
    guest, host = (read_by_id(folder / f"default_credit/default_credit_hetero_{side}.csv.gz") for side in ("guest", "host"))
    some = random.permutation(len(guest))[:m]
    return Problem(host[some, 1:], guest[some, 2:], guest[some, 1], half(m, random))


@cache
def read_by_id(path: Path) -> Floats:
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return table[np.argsort(table[:, 0])]


def digits(folder: Path, m: int, random: np.random.Generator) -> Problem:
    """The left and the right half of the pixels, in 0 … 1; digits of 5 and more."""
    with gzip.open(folder / "mnist/train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / "mnist/train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    some = random.permutation(len(labels))[:m]
    pixels = images[some] / 255
    left, right = (side.reshape(m, -1) for side in (pixels[:, :, :14], pixels[:, :, 14:]))
    return Problem(
        left[:, left.any(axis=0)], right[:, right.any(axis=0)], (labels[some] >= 5).astype(np.float64), half(m, random)
    )


def detect_by_residuals(seeds: int) -> Iterator[dict[str, Any]]:
    """Detection by the size of residuals, synthetic columns."""
    for m, width, batch, rounds, published in SYNTHETIC:
        found = []
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            problem = gaussian(m, width, width, random)
            made = train(problem, rounds, 0.5, random, batch=batch)
            found.append(judged(problem, residuals.scores(problem.x, made.rounds)))
        yield {"m": m, "d_s": width, "batch": batch or "full", "rounds": rounds, "AUC": found, "reference": published}


def detect_by_response(seeds: int) -> Iterator[dict[str, Any]]:
    """Detection by what the passive party's weights move, by what the active party has of its own."""
    for own, columns, noise in (("nothing", 0, 0), ("a column of noise", 0, 1), ("15 columns", 15, 0)):
        for correlation in (0.0, 0.9):
            for m in (300, 1000, 2000):
                found: dict[str, list[float | None]] = {}
                for seed in range(seeds):
                    random = np.random.default_rng(seed)
                    problem = gaussian(m, 15, columns, random, noise=noise, correlation=correlation)
                    made = train(problem, 800, 0.5, random)
                    for name, scores_ in (
                        ("residuals", residuals.scores(problem.x, made.rounds)),
                        ("response, rounds 1–200", responding(problem, made, range(200))),
                        ("response, 201–800", responding(problem, made, range(200, 800))),
                        ("intercepts known, 1–200", responding(problem, made, range(200), known=True)),
                    ):
                        found.setdefault(name, []).append(judged(problem, scores_))
                yield {"active party has": own, "correlation": correlation, "m": m, **found}


def judged(problem: Problem, found: Floats) -> float | None:
    """AUC over the rows that were met in a batch."""
    met = ~np.isnan(found)
    return auc(problem.genuine[met], found[met])


def responding(problem: Problem, made: Training, rounds: range, *, known: bool = False) -> Floats:
    """The response attack on some of these rounds, by one who does not know the active party's intercepts, or does."""
    some = np.unique(np.linspace(rounds[0], rounds[-1], STEPS).astype(int))
    weights, gradients = made.weights[some], np.array([made.rounds[i].gradient for i in some])
    if known:
        return residuals.response(problem.x, weights, gradients, intercepts=made.intercepts[some], smallest=1e-8)
    return residuals.response(problem.x, weights, gradients)


def real(folder: Path, seeds: int) -> Iterator[dict[str, Any]]:
    """Detection on real columns; rows whose residual a full batch gives away exactly."""
    for name, m, batch, least in REAL:
        found: dict[str, list[float | None]] = {"residuals": [], "response": []}
        exact, half_known = [], []
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            problem = (credit if name == "default_credit" else digits)(folder, m, random)
            problem = replace(problem, x=problem.x[:, find_varied((problem.x * 2**16).astype(np.int64), least)])
            made = train(problem, 400 if batch else 200, 0.5 if name == "default_credit" else 0.05, random, batch=batch)
            found["residuals"].append(judged(problem, residuals.scores(problem.x, made.rounds)))
            if not batch and name == "default_credit":  # mnist would take minutes
                found["response"].append(judged(problem, responding(problem, made, range(len(made.rounds)))))
            leverage = residuals.leverages(problem.x)
            exact.append(float((leverage > 1 - 1e-9).sum()))
            half_known.append(float((leverage > 0.5).sum()))
        head = {"columns": name, "least rows": least, "m": m, "d_s": problem.x.shape[1], "batch": batch or "full"}
        yield {**head, **found, "leverage 1": exact, "leverage > ½": half_known}


def detect_by_scores(seeds: int) -> Iterator[dict[str, Any]]:
    """The active party's error about rows it does not know, largest entry, d_s = 15, 30 rows known; and about distances."""
    for rounds in (10, 14, 20, 60, 200):
        found: dict[str, list[float]] = {"columns": [], "inner products": []}
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            problem = gaussian(1000, 15, 15, random)
            made = train(problem, rounds, 0.5, random)
            known = np.arange(30)
            guess = scores.extend(made.scores[:, :rounds], known, problem.x[known])
            found["columns"].append(float(np.abs(guess - problem.x)[30:].max()))
            turned = scores.rotate(made.scores, made.residuals, 0.5)
            found["inner products"].append(float(np.abs(turned @ turned.T - problem.x @ problem.x.T).max()))
        yield {"rounds": rounds, **found}


def integers(kind: str, m: int, width: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Columns in whole steps."""
    if kind == "standardised":
        return np.rint(random.normal(size=(m, width)) * 2**16).astype(np.int64)
    if kind == "pixels":
        return np.clip(random.normal(90, 80, size=(m, width)), 0, 255).astype(np.int64)
    share = random.uniform(0.1, 0.5, size=width) if kind == "binary" else random.uniform(5, 40, size=width) / m
    return (random.random((m, width)) < share).astype(np.int64)


def normal(sd: float, random: np.random.Generator, x: Floats) -> Floats:
    """Scores that differ from row to row, float64[m]."""
    return sd * random.normal(size=len(x))


def detect_by_start(seeds: int) -> Iterator[dict[str, Any]]:
    """The size of I from the first gradient: of m = 2000 candidates, how often and how closely it is found."""
    m, size, width = 2000, 823, 16
    starts: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
        "zero": lambda random, x: np.zeros(m),
        "intercept": lambda random, x: np.full(m, 0.5 * random.normal()),
        "intercept, passive ± .01": lambda random, x: 0.5 * random.normal() + x @ random.uniform(-0.01, 0.01, size=width),
        **{f"scores of sd {sd}": partial(normal, sd) for sd in (0.01, 0.1, START_SCORES, 1.0)},
    }
    steps = {"standardised": 2.0**-16, "pixels": 1 / 255, "binary": 1.0, "rare": 1.0}
    for kind, step in steps.items():
        for name, scored in starts.items():
            rank, off, exact, lattice = [], [], [], []
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                n = integers(kind, m, width, random)
                genuine = random.permutation(m) < size
                y = random.random(m) < 0.4
                u = scored(random, np.asarray(n * step, dtype=np.float64))
                e = np.rint(np.where(genuine, sigmoid(u) - y, 0) / size * 2**FRACTION_BITS).astype(np.int64)
                gradient = [int(total) for total in n.T.astype(object) @ e.astype(object)]
                distance = start.mismatch(np.array(gradient) / 2.0**FRACTION_BITS, np.ones(width), m)
                distance[: size // 4] = 1  # small sizes leave small numbers, which are all near 0
                order = np.argsort(distance, kind="stable") + 1
                rank.append(float(np.flatnonzero(order == size)[0] + 1))
                off.append(abs(float(order[0]) - size) / size)
                exact.append(float(start.sizes_from_integers(gradient, FRACTION_BITS, m)[:1] == [size]))
                lattice.append(float(start.sizes_from_two_values(gradient, FRACTION_BITS, m) == [size]))
            yield {
                "columns": kind,
                "start": name,
                "found by gcd": [statistics.fmean(exact)],
                "found by lattice": [statistics.fmean(lattice)],
                "rank of the true size": [statistics.median(rank)],
                "best guess off by": [statistics.median(off)],
            }


def markdown(title: str, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A table; a list is a result, its mean and the standard deviation over seeds."""
    for number, row in enumerate(rows):
        if not number:
            yield f"\n{title}\n"
            yield "| " + " | ".join(row) + " |"
            yield "|---" * len(row) + "|"
        yield "| " + " | ".join(map(cell, row.values())) + " |"


def cell(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    defined = [number for number in value if number is not None]
    if not defined:
        return "–"
    mean, sd = statistics.fmean(defined), statistics.pstdev(defined)
    return f"{mean:.3g}" if sd == 0 or mean < 0.01 or mean > 10 else f"{mean:.2f} ({sd:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="with default_credit/ and mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", metavar="TABLE", help="residuals, response, real, scores, start")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    chosen = parser.parse_args()
    tables = {
        "residuals": ("Dummies found by the size of residuals, AUC", detect_by_residuals(chosen.seeds)),
        "response": ("Dummies found by response, full batch, d_s = 15, 800 rounds, AUC", detect_by_response(chosen.seeds)),
        "real": ("Real columns, AUC, and rows found exactly", real(chosen.data, chosen.seeds) if chosen.data else ()),
        "scores": ("Scores in the clear: largest error", detect_by_scores(chosen.seeds)),
        "start": ("The size of I from the first gradient", detect_by_start(10 * chosen.seeds)),
    }
    made = {}
    for name, (title, rows) in tables.items():
        if chosen.only is None or name in chosen.only:
            made[name] = list(rows)
            print(*markdown(title, made[name]), sep="\n", flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
