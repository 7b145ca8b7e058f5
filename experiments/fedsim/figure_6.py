"""Figure 6: noise on the passive party's keys, on tables of which both parties have every record."""

from __future__ import annotations

from itertools import pairwise

from experiments.fedsim.paper import FIGURE_6
from experiments.fedsim.trials import EXACT, FEDSIM, MEAN, TOP1, Outcomes, Plan, alone, less, trial
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, Work, cell, interval, lower, mean, table

TITLE = "Figure 6: noise on keys"

SCATTERS = (0.0, 0.1, 0.2, 0.3)
"""Deviation of the noise, in deviations of a key."""

METHODS = (FEDSIM, TOP1, MEAN, EXACT)
SEEDS = 5
LEVEL, GAIN = 0.005, 0.03
"""How far FedSim may be below Top1 without noise, and how far it must be above it with the most."""


def scatters(plan: Plan) -> tuple[float, ...]:
    """Those that are run."""
    return (SCATTERS[0], SCATTERS[-1]) if plan.small else SCATTERS


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    name, every = plan.table("made_up"), []
    for seed in plan.few(SEEDS):
        every += [trial(name, method, seed, scatter=scatter) for scatter in scatters(plan) for method in METHODS]
        every.append(alone(name, seed, "combine"))
    return every


def page(plan: Plan, found: Found) -> list[str]:
    """A row for each deviation."""
    of, name = Outcomes(found, plan.few(SEEDS)), plan.table("made_up")
    lines = {label: cell(values) for label, values in _without_linkage(plan, of, name).items()}
    rows = []
    for scatter in scatters(plan):
        by = {method: of.of(name, method, "accuracy", scatter=scatter) for method in METHODS}
        rows.append([f"{scatter:g}", *(cell(by[method]) for method in METHODS), interval(less(by[FEDSIM], by[TOP1]))])
    return [
        f"Accuracy on the rows held out. Without any linkage: Solo {lines['Solo']}; Combine, the columns of both in one table, "
        f"{lines['Combine']}. Noise on keys is in deviations of a key; `exact` has no equal keys where there is any.",
        "",
        *table(["σ_cf", *(f"`{method}`" for method in METHODS), "`fedsim` − `top1`"], rows),
        "",
        f"The paper, read off its figure for frog at σ_cf = .2: Top1 {FIGURE_6['top1']:.2f}, FedSim {FIGURE_6['fedsim']:.2f}.",
        "",
        "![Accuracy by noise on keys](fedsim-figure-6.svg)",
    ]


def _without_linkage(plan: Plan, of: Outcomes, name: str) -> dict[str, list[float]]:
    solo = of.of(name, FEDSIM, "accuracy", key="alone", scatter=scatters(plan)[0])
    return {"Solo": solo, "Combine": of.alone(name, "accuracy", "combine")}


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Accuracy by noise."""
    of, name = Outcomes(found, plan.few(SEEDS)), plan.table("made_up")

    def curve(method: str) -> Curve:
        values = [(scatter, of.of(name, method, "accuracy", scatter=scatter)) for scatter in scatters(plan)]
        return Curve(method, [(scatter, mean(value), mean(value) - lower(value)) for scatter, value in values])

    lines = _without_linkage(plan, of, name)
    flat = [
        Curve(label, [(scatter, mean(values), 0.0) for scatter in scatters(plan)], baseline=True)
        for label, values in lines.items()
    ]
    panel = Panel("accuracy", "noise on keys, deviations of a key", [*(curve(method) for method in METHODS), *flat])
    return {"fedsim-figure-6.svg": drawing([[panel]])}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """FedSim is not below Top1 where records meet, and above it where they do not."""
    of, name = Outcomes(found, plan.few(SEEDS)), plan.table("made_up")
    every = scatters(plan)
    top1 = [of.of(name, TOP1, "accuracy", scatter=scatter) for scatter in every]
    gains = [less(of.of(name, FEDSIM, "accuracy", scatter=scatter), by) for scatter, by in zip(every, top1, strict=True)]
    over_solo = less(of.of(name, FEDSIM, "accuracy", scatter=every[-1]), _without_linkage(plan, of, name)["Solo"])
    falls = min(mean(earlier) - mean(later) for earlier, later in pairwise(top1))
    return [
        Expectation("`fedsim` − `top1` without noise on keys, mean", mean(gains[0]), -LEVEL),
        Expectation(f"`fedsim` − `top1` at σ_cf = {every[-1]:g}, mean", mean(gains[-1]), GAIN),
        Expectation(f"`fedsim` − `top1` at σ_cf = {every[-1]:g}, lower end of the 95 % interval", lower(gains[-1]), 0.0),
        Expectation("`top1` falls from each σ_cf to the next: least fall", falls, 0.0),
        Expectation("`top1`, first σ_cf − last, lower end of the 95 % interval", lower(less(top1[0], top1[-1])), 0.0),
        Expectation(f"`fedsim` − Solo at σ_cf = {every[-1]:g}, lower end of the 95 % interval", lower(over_solo), 0.0),
    ]
