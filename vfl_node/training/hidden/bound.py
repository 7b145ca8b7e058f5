"""What noise in the gradients promises, and how much of it that takes.

**What is protected.** Two worlds have the same tables and differ in one thing: which records are shared, or the label of a
shared record. Whoever sees all that a training opens, and knows everything else, tells them apart no better than N(0, 1) from
N(μ, 1) (:mod:`vfl_node.gdp`).

**One step.** ::

    G = Σ_I x·e + N         N normal, σ = worlds · C · √T / μ        C = MARGIN · √(P + ¼) · √K

I are the shared records. A record's row x is put together of P rows no longer than 1, one of each party, and the intercept's ½:
|x|² ≤ P + ¼. Its residual e is a sum of sines minus a label. The sum is periodic and within ±.5011 for *any* score, so
|e| ≤ 1.0012, however the model comes out; of K outputs, √K times that. In a regression e is 2σ(2r) − 1, likewise within
±1.0023. :data:`MARGIN` covers this and rounding. So one record more or less moves G by C at most.

**How many records two worlds differ in** (:func:`worlds`). Where nobody knows who is shared (a union), the length of the
shared order tells *how many* are. So worlds that an attacker has to tell apart have as many shared records: one comes in and
one goes out, which moves G by 2·C. Where rows are shared by all, who is shared is known, and a label moves e by 1, so G by C. A
target of a regression can move e from one end to the other: 2·C.

**T steps.** Each sees the weights that the noised ones before it have made. Sensitivities are the same whatever these are, so T
releases with noise √T times as wide are μ-private together (Dong, Roth and Su 2019, corollary 3.3). Batches are public, so
nothing is amplified. Weights, predictions and metrics are made of the noised gradients: that costs nothing more.

**What it does not cover.** What the alignment tells; numbers of rows and columns. A party scales its columns over its whole
table: as long as tables are the same in both worlds, its quantiles and means are too. They would change, a little, with the
values of one record. Apart from them the values of one record's columns move G by 2·C: they are covered where :func:`worlds` is
2, and with twice μ elsewhere. Targets of a regression are scaled by a range that the job says; without one by mean and
deviation of the party's whole table, which a single target may change as far as it likes: then targets are not covered, and
records are. Records of one person add up: k of them have k times μ. All parties are taken to follow the protocol: one that
brings longer rows reads more, in proportion.

Source: ours, from known parts: noisy gradient descent (Bassily, Smith and Thakurta 2014).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vfl_node.gdp import mu_of
from vfl_node.training.shares.metric_noise import is_union

if TYPE_CHECKING:
    from vfl_node.job.alignment import AlignmentSpec
    from vfl_node.roles import Task

MARGIN = 1.004
"""Factor for a residual's bound, just above 1, and for rounding: of rows, in steps of 2⁻¹⁸, and of residuals."""


def worlds(task: Task, align: AlignmentSpec) -> int:
    """In how many records two worlds differ that an attacker has to tell apart (see the module)."""
    return 2 if is_union(align) or task == "regression" else 1


def row_norm(parties: int) -> float:
    """The longest row that so many data parties put together."""
    return math.sqrt(parties + 0.25)


def deviation(epsilon: float, steps: int, parties: int, outputs: int, worlds: int) -> float:
    """σ of the noise of each number of a gradient, with which so many ``steps`` together are (ε, δ)-private."""
    return worlds * MARGIN * row_norm(parties) * math.sqrt(outputs) * math.sqrt(steps) / mu_of(epsilon)
