"""What opened weights tell of single records stays below the bound of their noise; without noise the same attacks work.

Attackers have all that is opened at the end of real trainings in shares, and all of their own table. Two of them stand for the
worst case: *canaries*, records that are alone in a column, whose weight tells about them and nothing else; and *least squares*
over all columns: weights are, nearly, a linear function of who is shared and of their labels. Labels are coins, so that nothing
is learnt of them but what weights remember.

An area under the curve over n cases, half of them positive, has a standard error of 1/√(3n) at chance, and less elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run
from tests.thorough import examples
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import FRACTION, encode
from vfl_node.gdp import auc_bound, compose, mu_of
from vfl_node.training.hidden import bound
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule

Floats = NDArray[np.float64]
Truth = NDArray[np.bool_]

STEPS, MOMENTUM, RATE = 20, 0.8, 4.0
MOVES = RATE * np.array([(1 - MOMENTUM ** (STEPS - t)) / (1 - MOMENTUM) for t in range(STEPS)])
"""By how much a weight moves for a gradient of 1 in each step."""


@dataclass(frozen=True, eq=False)
class Case:
    """Rows of a shared order, as two parties have them.

    Attributes:
        columns: of each party, rows no longer than 1; the active party's intercept of ½ is the last of its own.
        shared: which rows both own.
        labels: of all.
        held_out: which rows are not trained on.
    """

    columns: tuple[Floats, Floats]
    shared: Truth
    labels: Truth
    held_out: Truth = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def training(self) -> NDArray[np.int64]:
        return np.flatnonzero(~self.held_out) if len(self.held_out) else np.arange(len(self.shared))

    @property
    def divisor(self) -> float:
        return float(self.shared[self.training].sum())

    def trained(self, epsilon: float | None, seed: int, worlds: int = 1) -> tuple[Floats, Floats]:
        """The weights that are opened to each party."""
        rows = len(self.shared)
        deviation = None if epsilon is None else bound.deviation(epsilon, STEPS, 2, 1, worlds)
        plan = HiddenPlan(
            form=Form(tuple(of.shape[1] for of in self.columns), (), 1, "exact"),
            rows=rows,
            schedule=Schedule(bytes(32), rows, 0),
            training=self.training,
            testing=np.arange(0),
            descent=Descent(STEPS, MOMENTUM, RATE, deviation),
            batch_rows=len(self.training),
            divisor=self.divisor,
            weight_decay=0.0,
            bins=256,
            reveals=True,
        )

        async def program(machine: ShareMachine) -> Any:
            async def after(*of: Any) -> None: ...

            if machine.place < 0:
                return await compute(machine, plan, None, None, 0, after)
            targets = self.labels[:, None] * (machine.place == 0)
            bits = self.shared | (machine.place == 0)  # the active party owns all rows
            columns = self.columns[machine.place] * bits[:, None]
            own = Own(encode(columns), bits[:, None].astype(np.uint64), encode(targets, 2 * FRACTION))
            nothing = tuple(np.zeros(shape, np.uint64) for shape in plan.form.shapes)
            return await compute(machine, plan, own, WeightShares(nothing, nothing), 0, after)

        first, second = Run(program, seed=seed).results
        return first.weights[0][:, 0], second.weights[1][:, 0]


CANARIES = 400
CHANCE = 1 / np.sqrt(3 * CANARIES)
"""Standard error of an area over so many canaries, .029."""


def canaries(pairs: bool, seed: int = 0) -> Case:
    """Records that are alone in a column of both parties, half of them shared.

    In ``pairs`` two records have a column, one with the other sign, and exactly one of the two is shared: worlds with the same
    number of shared records.
    """
    rng = np.random.default_rng(seed)
    bits, labels = rng.permutation(CANARIES) < CANARIES // 2, rng.random(CANARIES) < 0.5
    unit = np.eye(CANARIES)
    if pairs:
        unit, bits, labels = np.vstack([unit, -unit]), np.append(bits, ~bits), np.tile(labels, 2)
    return Case((np.hstack([unit, np.full((len(unit), 1), 0.5)]), unit), bits, labels)


def told(case: Case, weights: tuple[Floats, Floats]) -> tuple[float, float]:
    """How well both parties' weights together tell which canary is shared, by who knows labels, and labels of the shared."""
    seen, sign = weights[0][:CANARIES] + weights[1], 2 * case.labels[:CANARIES] - 1.0
    shared = case.shared[:CANARIES]
    area = roc_auc_score(shared, seen * sign)
    return float(area), float(roc_auc_score(case.labels[:CANARIES][shared], seen[shared]))


@pytest.mark.parametrize(("pairs", "worlds"), [(False, 1), (True, 2)], ids=["one record more", "one record for another"])
def test_a_canary_is_told_no_better_than_the_bound_and_nearly_as_well_as_that_says(pairs: bool, worlds: int) -> None:
    """A residual at the beginning is ½, and a canary's row √2 long of at most 1.5: so it uses .47 of the bound's μ."""
    case = canaries(pairs)
    for epsilon in (1.0, 8.0):
        membership, label = told(case, case.trained(epsilon, 1, worlds))
        most = auc_bound(mu_of(epsilon))
        expected = auc_bound(mu_of(epsilon) * np.sqrt(2) / 1.5 / 2)
        assert membership <= most + 3 * CHANCE
        assert label <= most + 3 * np.sqrt(2) * CHANCE
        assert abs(membership - expected) < 3.5 * CHANCE
        if epsilon == 8.0:
            assert membership > 0.5 + (expected - 0.5) / 2
            assert label > 0.5 + (expected - 0.5) / 2 - (0.0 if not pairs else CHANCE)
    membership, label = told(case, case.trained(None, 1))
    assert membership >= 0.99
    assert label >= 0.99 if not pairs else label > 0.9


def test_half_the_noise_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control of the test itself: what it measures sees a deviation that is half of what it should be."""
    case, usual = canaries(pairs=False), bound.deviation
    monkeypatch.setattr(bound, "deviation", lambda *of: usual(*of) / 2)
    membership, _ = told(case, case.trained(8.0, 1))
    assert membership > auc_bound(mu_of(8.0) * np.sqrt(2) / 1.5 / 2) + 3.5 * CHANCE


def unit(values: Floats) -> Floats:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


JOBS, ROWS, SHARED, WIDTH = 12, 400, 200, 60


@dataclass
class Remembered:
    """What one party collects from job to job: linear equations of what it does not know, whitened, with a prior."""

    variance: float
    mean: float = 0.0
    matrices: list[Floats] = field(default_factory=list)
    sides: list[Floats] = field(default_factory=list)

    def add(self, matrix: Floats, side: Floats, noise: float, rest: float) -> None:
        scale = np.linalg.cholesky(np.eye(len(side)) * noise + rest * (matrix @ matrix.T))
        self.matrices.append(np.linalg.solve(scale, matrix))
        self.sides.append(np.linalg.solve(scale, side))

    @property
    def posterior(self) -> Floats:
        m, v = np.vstack(self.matrices), np.concatenate(self.sides)
        v = v - m.sum(axis=1) * self.mean
        return np.asarray(self.variance * m.T @ np.linalg.solve(self.variance * m @ m.T + np.eye(len(v)), v))


def attacked(epsilon: float | None, jobs: int, seed: int, *, redrawn: bool = False) -> tuple[float, float, float]:
    """After so many jobs: labels and membership by the passive party, membership by the active one."""
    rng = np.random.default_rng(seed)
    passive, active = unit(rng.normal(size=(ROWS, WIDTH))), unit(rng.normal(size=(ROWS, WIDTH)))
    own = np.hstack([active, np.full((ROWS, 1), 0.5)])
    labels, shared, part = rng.random(ROWS) < 0.5, rng.permutation(ROWS) < SHARED, SHARED / ROWS
    deviation = 0.0 if epsilon is None else bound.deviation(epsilon, STEPS, 2, 1, 1)
    noise = deviation**2 * (MOVES**2).sum() / MOVES.sum() ** 2 or 1e-5
    by_passive, by_active = Remembered(part / 4), Remembered(part * (1 - part), part)
    for job in range(jobs):
        here = (rng.permutation(shared), rng.random(ROWS) < 0.5) if redrawn else (shared, labels)
        case = Case((own, passive), *here, held_out=rng.random(ROWS) < 0.2)
        first, second = (of * case.divisor / MOVES.sum() for of in case.trained(epsilon, 1000 * seed + job))
        used = ~case.held_out
        by_passive.add(passive.T * used, second, noise, 0.1 * part / 4)
        z = own @ (first * MOVES.sum() / case.divisor) / 2
        residual = 1 / (1 + np.exp(-z)) - here[1]
        by_active.add((own * residual[:, None]).T * used, -first, noise, 0.1 * part)
    read = by_passive.posterior
    return (
        float(roc_auc_score(labels[shared], read[shared])),
        float(roc_auc_score(shared, np.abs(read))),
        float(roc_auc_score(shared, by_active.posterior)),
    )


def means(epsilon: float | None, jobs: int, seeds: int, **how: Any) -> Floats:
    return np.mean([attacked(epsilon, jobs, seed, **how) for seed in range(seeds)], axis=0)


def test_a_whole_budget_tells_less_than_its_bound() -> None:
    """Of 200 shared records and 60 columns at each party. The standard error over 4 worlds is about .02.

    Controls: half as many jobs without noise tell them, and not of another truth in each job.
    """
    worlds = examples(4, fewer=1)
    error = 1 / np.sqrt(3 * SHARED * worlds)
    spent = means(1.0, JOBS, worlds)
    assert auc_bound(compose([mu_of(1.0)] * JOBS)) <= auc_bound(mu_of(4.0))
    assert (spent <= auc_bound(mu_of(4.0)) + 3 * error).all()
    assert (spent < 0.68).all()
    jobs = examples(JOBS, fewer=JOBS // 2)
    nothing = means(None, jobs, examples(2, fewer=1))
    assert nothing[0] > 0.9  # labels
    assert (nothing[1:] > 0.78).all()
    chance = means(None, jobs, worlds, redrawn=True)
    assert (np.abs(chance - 0.5) < 4 * error).all()
