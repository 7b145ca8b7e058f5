"""Figure 4: how smoothly the task's loss falls under each defence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.defended import NONE, Defence, Results, defended
from experiments.inference.experiment import Expectation, Found, Plan, Work, cell, mean, table
from experiments.inference.figure_3 import STRENGTHS

TITLE = "Figure 4: convergence under defences"

SEEDS = 3
DATA = "adult"

SHOWN: Mapping[str, Defence] = {
    "none": NONE,
    **{name: list(STRENGTHS[name].values())[1] for name in ("naive", "basic", "fbs", "fbs-fixed")},
}
"""Defence → its keys: those of the middle strength of figure 3."""

LATER = 5
"""Over the epochs from this one on no model falls steeply any more."""


def works(plan: Plan) -> list[Work]:
    """Some of figure 3's."""
    return [defended(plan, DATA, seed, defence) for defence in SHOWN.values() for seed in plan.few(SEEDS)]


def _roughness(plan: Plan, found: Found, defence: Defence, first: int) -> list[float]:
    """Standard deviation of how much the loss changes from epoch to epoch, from epoch ``first`` on; a value for each seed."""
    losses = Results(plan, found, DATA, plan.few(SEEDS)).losses(defence)
    return [float(np.std(np.diff(curve[first - 1 :]))) for curve in losses]


def page(plan: Plan, found: Found) -> list[str]:
    """The picture and the standard deviations."""
    later = min(LATER, _epochs(plan, found) - 2)
    rows = [
        [name, *(cell(_roughness(plan, found, defence, first), 4) for first in (1, later))] for name, defence in SHOWN.items()
    ]
    head = ["defence", "all epochs", f"from epoch {later} on"]
    return [f"![Loss by epoch]({PICTURE})", "", ABOUT, "", *table(head, rows), "", PAPER]


def _epochs(plan: Plan, found: Found) -> int:
    return len(Results(plan, found, DATA, plan.few(SEEDS)).losses(NONE)[0])


PICTURE = "inference-figure-4.svg"


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """The mean loss of each epoch over the seeds."""
    results = Results(plan, found, DATA, plan.few(SEEDS))
    curves = []
    for name, defence in SHOWN.items():
        by_epoch = np.mean(results.losses(defence), axis=0).tolist()
        points = [(float(epoch), loss, 0.0) for epoch, loss in enumerate(by_epoch, 1)]
        curves.append(Curve(name, points, baseline=name == "none"))
    return {PICTURE: drawing([[Panel("adult: the task's training loss", "epoch", curves)]])}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """The loss under fbs is smoother than under naive and basic."""
    fbs = mean(_roughness(plan, found, SHOWN["fbs"], 1))
    return [
        Expectation(
            f"`adult`: standard deviation of the loss's changes, {name} − fbs",
            mean(_roughness(plan, found, SHOWN[name], 1)) - fbs,
            0.0,
        )
        for name in ("naive", "basic")
    ]


ABOUT = """\
Middle strengths of figure 3, means over its seeds. The table has the standard deviation of the change of the loss from epoch to
epoch: small where the loss falls evenly."""

PAPER = """\
The paper has this figure without numbers: the loss under fbs is "much smoother" than under naive and basic, and close to that
without a defence."""
