"""Hidden training in ordinary numbers, with and without a coordinator: what batches of blocks and wider noise cost.

Encoders, schedule, blocks, rates and σ are the product's; sums are ordinary numbers, and noise is normal. Everything of a seed
is paired: records, first weights, and the normal numbers behind the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.florist.data import Records
from experiments.florist.experiment import ACTIVE, PASSIVE, randomness_of, records_of
from experiments.hidden.experiment import DEALER, first_weights
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.gdp import epsilon_of, mu_of
from vfl_node.job import Job
from vfl_node.metrics.classes import auc
from vfl_node.settings.limits import Limits
from vfl_node.training.hidden import frequent
from vfl_node.training.hidden.computation import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import OUTPUT_TERMS
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.hidden.terms import HiddenProgram, batch_of
from vfl_node.training.shares.estimates import mean_area
from vfl_node.training.shares.measuring import OutputTally
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms

PROTOCOLS = ("psi", "psu")
BATCHES = (512, 4096)
EPSILONS = (1.0, 4.0)
HELD_OUT = 0.25
MEASURED = 200
"""How often noise of the sums that metrics are made of is drawn, for each model."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Order:
    """All records in a shared order, as the parties encode them.

    Attributes:
        values: float64[m, d], the passive party's columns, the active one's, and the intercept.
        widths: columns of the active party, the intercept included, and of the passive one.
        labels: float64[m].
        both: bool[m], which records both have.
        protocol: of the alignment.
        randomness: for all that the seed fixes.
    """

    values: Floats
    widths: tuple[int, int]
    labels: Floats
    both: NDArray[np.bool_]
    protocol: str
    randomness: Randomness

    def plan(self, toss: str, **train: Any) -> HiddenPlan:
        """What the parties agree on; ``toss`` names the schedule's seed, but the same records are held out."""
        job = job_of(self.protocol, **train)
        seed, split = (self.randomness.derive(name).bytes(32) for name in (toss, "split"))
        rows, trained = len(self.both), len(self.both) - math.ceil(len(self.both) * HELD_OUT)
        size, divisor = batch_of(Hidden.section_of(job), rows, trained, int(self.both.sum()))
        said = DealingTerms(rows=rows, widths=self.widths, schedule=seed, batch_rows=size, divisor=divisor, split=split)
        return HiddenProgram(job).plan(said)

    def descend(self, plan: HiddenPlan, draws: int = 0, *, anew: bool = False) -> Floats:
        """Scores of the records held out.

        Args:
            plan: of the training.
            draws: so many times the variance of the plan's noise is in a gradient.
            anew: whether rows of a layout, those that nobody owns as well, come in a new order each epoch, not blocks.
        """
        rates, series, deviation = plan.rates, SIGMOID[OUTPUT_TERMS], plan.descent.deviation
        momentum, noise = rates.momentum / 2**rates.velocity_bits, (deviation or 0.0) * math.sqrt(draws)
        rng = np.random.default_rng(list(self.randomness.derive("noise").bytes(32)))
        weights = np.zeros(sum(self.widths)) if deviation else first_weights(plan, self.randomness)[0][:, 0]
        velocity = np.zeros_like(weights)
        batches_of = replace(plan, layout=None).batches if anew else plan.batches
        for epoch in range(plan.epochs):
            for batch in batches_of(epoch):
                rows = batch if plan.layout is None else plan.layout.order[batch]
                rows = rows[(rows >= 0) & self.both[rows]]
                x = self.values[rows]
                gradient = x.T @ (series.values(x @ weights) + 0.5 - self.labels[rows])
                velocity = momentum * velocity + rates.factor * (gradient + noise * rng.normal(size=len(weights)))
                weights = weights - velocity
        return np.asarray(self.values[self.held_out(plan)] @ weights)

    def held_out(self, plan: HiddenPlan) -> NDArray[np.int64]:
        """Positions of the records that are held out."""
        return plan.schedule.split(0, HELD_OUT)[1]

    def rate(self, plan: HiddenPlan, scores: Floats) -> dict[str, float]:
        """How good scores of the records held out are."""
        truth = self.labels[self.held_out(plan)] == 1
        area = auc(truth, scores)
        assert area is not None
        loss = float(np.logaddexp(0, np.where(truth, -scores, scores)).mean())
        return {"auc": round(area, 6), "loss": round(loss, 6)}


def job_of(protocol: str, **train: Any) -> Job:
    """The job that a user would submit."""
    dealer = {} if train.get("randomness") == "parties" else {"coordinator": DEALER}
    return Job.model_validate(
        {
            "name": "no-coordinator",
            "parties": {"active": ACTIVE, "passive": PASSIVE, **dealer},
            "align": {"protocol": protocol},
            "train": {"algorithm": "hidden", **train},
            "evaluate": {"test_fraction": HELD_OUT, "metrics": ["auc"]},
        }
    )


def order_of(shared: Path, data: str, protocol: str, seed: int, *, bounded: bool) -> Order:
    """The records of a table in the order of an alignment."""
    records, randomness = _read(data, shared), randomness_of(data, seed)
    u = randomness.derive("owners").uint64(len(records)) / 2.0**64
    everything = np.full(len(records), protocol == "psi")
    owns = {ACTIVE: everything | (u < 0.75), PASSIVE: everything | (u < 0.5) | (u >= 0.75)}
    names, every = list(records.columns), np.arange(len(records))
    half = (len(names) + 1) // 2
    parts = []
    for name, columns in ((PASSIVE, names[half:]), (ACTIVE, names[:half])):
        table = records.table(np.flatnonzero(owns[name]), columns, labelled=False)
        found = frequent.find(table, Limits().least_rows)
        features = [feature for each in found.entering.values() for feature in each]
        encoder = RowEncoder.fit(table, features, found, "standard", bins=False, bounded=bounded)
        parts.append(encoder.transform(records.table(every, columns, labelled=False), intercept=name == ACTIVE))
    widths = parts[1].shape[1], parts[0].shape[1]
    labels = records.labels.astype(np.float64)
    return Order(np.concatenate(parts, axis=1), widths, labels, owns[ACTIVE] & owns[PASSIVE], protocol, randomness)


@cache
def _read(data: str, shared: Path) -> Records:
    return records_of(data, shared)


def blocks(shared: Path, *, data: str, protocol: str, seed: int) -> dict[str, dict[str, float]]:
    """Batch → AUC of each way to make batches.

    *rows* come in a new order each epoch, *again* in another one; *blocks* are the product's. *filled* are rows in a new order,
    but as many as blocks have, with those that nobody owns: as many batches as of blocks.
    """
    order, found = order_of(shared, data, protocol, seed, bounded=False), {}
    for batch in BATCHES:
        train: dict[str, Any] = {"epsilon": None, "batch_size": batch}
        rows, again = order.plan("toss", **train), order.plan("another toss", **train)
        laid = order.plan("toss", **train, randomness="parties")
        scores = {"rows": order.descend(rows), "again": order.descend(again), "blocks": order.descend(laid)}
        scores["filled"] = order.descend(laid, anew=True)
        found[str(batch)] = {way: order.rate(rows, each)["auc"] for way, each in scores.items()}
    return found


def noise(shared: Path, *, data: str, protocol: str, seed: int) -> dict[str, dict[str, Any]]:
    """ε → what each training has: AUC, loss and descent; and what noise makes of a measured AUC.

    *known* is a descent that is planned for the noise that there is: that of a job whose σ is √2 times as large. *slower* has
    its rule for the rate, but the dealer's steps and momentum.
    """
    order, found = order_of(shared, data, protocol, seed, bounded=True), {}
    for epsilon in EPSILONS:
        wider: dict[str, Any] = {"epsilon": epsilon_of(mu_of(epsilon) / math.sqrt(2)), "randomness": "parties"}
        dealt, parties = order.plan("toss", epsilon=epsilon), order.plan("toss", epsilon=epsilon, randomness="parties")
        same = {"epochs": dealt.descent.steps, "momentum": dealt.descent.momentum}
        slower, known = order.plan("toss", **wider, **same), order.plan("toss", **wider)
        ways = {"none": (dealt, 0), "dealer": (dealt, 1), "parties": (parties, 2), "slower": (slower, 1), "known": (known, 1)}
        each: dict[str, Any] = {"shared": round(dealt.records)}
        for way, (plan, draws) in ways.items():
            descent = [plan.descent.steps, plan.descent.momentum, plan.descent.rate]
            each[way] = order.rate(plan, order.descend(plan, draws)) | {"descent": descent}
        held_out = order.held_out(dealt)
        labels = order.labels[held_out[order.both[held_out]]]
        counts, sums = np.bincount(labels.astype(np.int64)), MetricNoise.from_job(job_of(protocol, epsilon=epsilon))
        rng = np.random.default_rng(list(order.randomness.derive("measured").bytes(32)))
        each["measured"] = {str(draws): _errors(sums, counts, each["dealer"]["auc"], draws, rng) for draws in (1, 2)}
        found[str(epsilon)] = each
    return found


def _errors(noise: MetricNoise, counts: NDArray[np.int64], area: float, draws: int, rng: np.random.Generator) -> list[float]:
    """Mean squares of what noise adds to an AUC, and of what its interval allows for."""
    squares, wide = [], math.sqrt(draws)
    for _ in range(MEASURED):
        negative, positive = (max(0, round(count + wide * noise.counts * rng.normal())) for count in counts.tolist())
        reach = noise.reach((negative, positive))
        pairs = (2 * area - 1) * counts.prod() + wide * noise.order(reach) * rng.normal()
        estimate = mean_area([OutputTally((negative, positive), round(pairs), reach, {})], noise)
        if estimate is not None:
            squares.append(((estimate.value - area) ** 2, estimate.noise**2))
    return [float(f"{square:.3e}") for square in np.mean(squares, axis=0)] if squares else []
