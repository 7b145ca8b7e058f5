"""How much noise the sums get that metrics are made of, and what that promises.

What is opened is μ-private (:mod:`vfl_node.gdp`): sums of a record's numbers, each within a range, and normal noise. The square
of μ is divided among the sums (:data:`PARTS`), since squares add up. A sum with a part p of it, which two neighbouring worlds
change by Δ at most, gets noise with the standard deviation Δ/(μ·√p).

Which worlds are neighbours
---------------------------
- Where one party at least knows who is shared, they differ in one record, which is shared in one of them; or in one label.
- Where nobody does (a union), the length of the shared order tells how many are. So they differ in two: one is shared instead
  of the other (``worlds`` = 2). Both may be held out, or one is and the other is trained on.

How far they are apart
----------------------
With n₊ and n₋ records of the labels, K outputs, and c for the length of the range of a record's number in a sum:

================  ==============  ==================  =====================  ============
what changes      a sum           numbers of labels   pairs of an output     outputs
================  ==============  ==================  =====================  ============
a record in, out  c               1                   max(n₊, n₋)            K, so √K
a record swapped  c, not 2·c      √2, of several 2    2·max(n₊, n₋)          K, so √K
a label           c               √2, of several 2    n₊ + n₋                one or two
================  ==============  ==================  =====================  ============

A record with label 1 is in n₋ pairs, each of which counts −1, 0 or 1; one with label 0 in n₊. A swap takes one away and brings
another one, so a sum of numbers from 0 to c changes by c, pairs twice. With several outputs the numbers of two labels change,
each in two outputs: √4. A label's flip changes n₋ + n₊ pairs, which 2·max(n₊, n₋) covers, and √2 of the numbers, as a swap
does. So the noise of two worlds needs nothing more for labels; that of one world is for n₋ + n₊.

**Held out and trained on.** No record is both (without ``evaluate.test_fraction`` all are, and the squares of training and
metrics add up). The model that is measured was made with noise, so a record that it was trained on changes the metrics by
nothing more, and a job costs the larger one of both μ. Between two worlds a trained record may be swapped for a held-out one.
Then training changes by half of what a swap of trained records changes, μ²/4, and for the metrics a record comes in. With two
worlds Δ of this is taken √(4/3) times, which makes it ¾·μ² or less: both together are again the larger one.

**Pairs need the numbers first**: Δ is made of these with noise (:meth:`MetricNoise.reach`), seven standard deviations more. It
is below the truth with a probability of 10⁻¹² a label, and δ is a million times as much. That no number is shown as below 0 is
computed from what was opened, so it costs nothing.

Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vfl_node.gdp import mu_of
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.spending import METRICS_EPSILON

if TYPE_CHECKING:
    from vfl_node.job import Job
    from vfl_node.job.alignment import AlignmentSpec

MOST_LOSS = 4.0
"""−log p of a label counts as this at most."""

MOST_SQUARE = 9.0
"""The square of a number's error counts as this at most, in variances of the target."""

PARTS: Mapping[str, Mapping[str, float]] = {
    "two classes": {"counts": 0.25, "order": 0.35, "loss": 0.20, "squares": 0.05, "right": 0.10, "beyond": 0.05},
    "several classes": {"counts": 0.30, "order": 0.65, "beyond": 0.05},
    "numbers": {"counts": 0.25, "loss": 0.65, "squares": 0.05, "beyond": 0.05},
}
"""Which sums are opened, and which part of μ² each one has; ``loss`` of numbers are squared errors."""

REACHES = tuple((8 + step) << octave for octave in range(28) for step in range(8))
"""Numbers of pairs for which there is noise: the next one above is at most an eighth larger."""

_MARGIN = 7.0


@dataclass(frozen=True)
class MetricNoise:
    """The noise of the metrics of one job; all that describes it is public.

    Attributes:
        mu: of the metrics.
        worlds: in how many records neighbouring worlds differ: 2 in a union, whose length tells how many are shared, else 1.
        outputs: K.
        numbers: whether the model predicts numbers.
        draws: how many parties draw noise of the full width, each of which knows its own.
    """

    mu: float
    worlds: int = 2
    outputs: int = 1
    numbers: bool = False
    draws: int = 1

    @classmethod
    def from_job(cls, job: Job) -> MetricNoise:
        """The noise of a job of training in shares."""
        train, evaluate = SharesConfig.section_of(job), job.evaluate
        return cls(
            mu=mu_of(evaluate.epsilon or train.model_epsilon or METRICS_EPSILON),
            worlds=2 if is_union(job.align.spec) else 1,
            outputs=train.outputs,
            numbers=train.task == "regression",
            draws=1 if train.coordinated else 2,
        )

    @property
    def together(self) -> MetricNoise:
        """That of all draws together, which is in what is opened."""
        return replace(self, mu=self.mu / math.sqrt(self.draws), draws=1)

    @property
    def parts(self) -> Mapping[str, float]:
        """Sum → its part of μ²."""
        return PARTS["numbers" if self.numbers else "two classes" if self.outputs == 1 else "several classes"]

    @property
    def counts(self) -> float:
        """Standard deviation of the noise of each number of records with a label."""
        return self._deviation("counts", max(self._one, 0.0 if self.numbers else math.sqrt(2 * min(self.outputs, 2))))

    @property
    def sums(self) -> dict[str, float]:
        """The standard deviation of each sum over all records but numbers and pairs, in the order in which they are opened."""
        most = MOST_SQUARE if self.numbers else MOST_LOSS
        ranges = {"loss": most, "squares": most**2, "right": 1.0, "beyond": 1.0}
        return {name: self._deviation(name, self._one * most) for name, most in ranges.items() if name in self.parts}

    def order(self, reach: int) -> float:
        """The standard deviation of the sum over pairs, of which a record changes ``reach`` at most."""
        return self._deviation("order", reach * math.sqrt(self.outputs))

    def reach(self, counts: Sequence[int]) -> int:
        """How much the sum over pairs changes at most, from the numbers of both labels with noise: one of :data:`REACHES`."""
        if self.worlds == 1:
            most = sum(counts) + _MARGIN * math.sqrt(2) * self.together.counts
        else:
            most = 2 * (max(counts) + _MARGIN * self.together.counts)
        return next((reach for reach in REACHES if reach >= most), REACHES[-1])

    @property
    def _one(self) -> float:
        """Δ of a record in all outputs, whose number is within a range of 1."""
        return math.sqrt(self.outputs * (4 / 3 if self.worlds == 2 else 1))

    def _deviation(self, part: str, sensitivity: float) -> float:
        return sensitivity / (self.mu * math.sqrt(self.parts[part]))


def is_union(align: AlignmentSpec) -> bool:
    """Whether nobody knows who is shared, while the length of the shared order tells how many are."""
    return {"active", "passive"} <= align.synthetic_rows_at


def sums_text(job: Job) -> str:
    """What is opened for metrics, with the standard deviation of the noise of each sum."""
    noise, far = MetricNoise.from_job(job).together, SharesConfig.section_of(job).far_score
    far_off = "are predicted more than 16 deviations off" if noise.numbers else f"have scores beyond ±{far}"
    words = {
        "loss": "squared errors in variances of the target" if noise.numbers else "losses",
        "squares": "the squares of these",
        "right": "how many are right",
        "beyond": f"how many {far_off}",
    }
    first = "how many there are" if noise.numbers else "how many there are of each label"
    opened = [(first, noise.counts), *((words[name], deviation) for name, deviation in noise.sums.items())]
    said = [f"{what} (sd {deviation:.3g})" for what, deviation in opened]
    if not noise.numbers:
        said.append(f"pairs in order less those in disorder (sd {noise.order(1):.3g} times what a record is in at most)")
    return ", ".join(said[:-1]) + f", and {said[-1]}"
