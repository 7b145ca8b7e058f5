"""Figures 7, 8 and 9: what noise, and the number of candidates, do to a model and to the time it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.fedsim.trials import CANDIDATES, FEATURE, FEDSIM, MEAN, SIGMA, TOP1, Outcomes, Plan, subtract, trial
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, Work, cell, interval, lower, mean, table
from vfl_node.alignment.linkage.words import TAU_MEANS

TITLE = "Figures 7, 8 and 9: noise and candidates"

COUNTS = (1, 5, 20, 50)
COUNTED = (FEDSIM, TOP1, MEAN, FEATURE)
PAIRWISE = (FEDSIM, MEAN, FEATURE)
"""Methods that compute something of each candidate."""

SIGMAS = (0.0, 0.1, 0.4, 1.0, 3.0)
BLURRED = (FEDSIM, TOP1)
"""Methods that noise on similarities can change."""

LONG, SHORT = 50, 5
"""Candidates between which the growth of time is measured."""

STEEP, FLAT = 1.2, 0.7
"""Exponents of time by K, most and least, from which it is said to be in proportion."""

NAMES = {"accuracy": "accuracy", "rmse": "RMSE, k$"}
"""Metric → its name and unit."""

SCATTER = 0.2
"""On the keys of the made-up tables where candidates are counted."""

SEEDS = 3


def tables(plan: Plan) -> dict[str, tuple[str, float | None]]:
    """Table → the metric that is shown, and the scatter of its keys."""
    if plan.small:
        return {"small": ("accuracy", SCATTER)}
    return {"made_up": ("accuracy", SCATTER), "hdb": ("rmse", None)}


def counts(plan: Plan) -> tuple[int, ...]:
    """Those that are run."""
    return (1, 5) if plan.small else COUNTS


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    every = []
    for seed in plan.few(SEEDS):
        for name, (_, scatter) in tables(plan).items():
            every += [
                trial(name, method, seed, candidates=count, scatter=scatter) for count in counts(plan) for method in COUNTED
            ]
        if not plan.small:
            every += [trial("hdb", method, seed, sigma=sigma) for sigma in SIGMAS for method in BLURRED]
    return every


def page(plan: Plan, found: Found) -> list[str]:
    """Tables by K, of quality and of time, and one by noise."""
    outcomes, lines = Outcomes(found, plan.few(SEEDS)), []
    for name, (metric, scatter) in tables(plan).items():
        digits = 3 if scatter is not None else 2
        rows, times = [], []
        for count in counts(plan):
            chosen: dict[str, Any] = {"candidates": count, "scatter": scatter}
            rows.append([str(count), *(cell(outcomes.values(name, method, metric, **chosen), digits) for method in COUNTED)])
            times.append([str(count), *(cell(outcomes.said(name, method, "epoch_s", **chosen), 3) for method in COUNTED)])
        if not plan.small:
            grown = [exponent(outcomes, name, scatter, method) for method in COUNTED]
            times.append([f"exponent, {SHORT} to {LONG}", *(f"{value:.2f}" for value in grown)])
        head = ["K", *(f"`{method}`" for method in COUNTED)]
        keys = "" if scatter is None else f", σ_cf = {scatter:g}"
        lines += [f"**Figure 9, `{name}`**: {NAMES[metric]} by K, σ = {SIGMA:g}{keys}.", "", *table(head, rows), ""]
        lines += [f"**Figure 8, `{name}`**: seconds of a core an epoch, both parties together.", "", *table(head, times), ""]
    lines += [
        "In the paper `mean` and `feature` get worse with K. FedSim gets better and then stays, but may drop a little at K =",
        "50 on hdb. FedSim takes about twice the time of these, and they K times that of Top1. Here the similarities of each",
        "K are scaled by its own candidates. Their noise and order are drawn anew for each K, as in a job with that K. The",
        "paper's code cuts those of the largest K. Times are the processor's, on a machine with other work beside. An",
        "exponent of 1 means time in proportion to K; a part of an epoch is the same for all K (own columns, the optimiser,",
        "messages). The passive party embeds all distinct candidates of a batch with `top1`, too: many on `made_up`, 165 at",
        "most on `hdb`.",
        "",
        "![Quality and time by the number of candidates; whiskers are standard deviations](fedsim-figure-9.svg)",
        "",
    ]
    if plan.small:
        return lines
    rows = []
    for sigma in SIGMAS:
        tau = mean(outcomes.values("hdb", FEDSIM, "tau", key="linkage", sigma=sigma))
        values = [cell(outcomes.values("hdb", method, "rmse", sigma=sigma), 2) for method in BLURRED]
        change = subtract(
            outcomes.values("hdb", FEDSIM, "rmse", sigma=sigma), outcomes.values("hdb", FEDSIM, "rmse", sigma=0.0)
        )
        rows.append([f"{sigma:g}", f"{100 * tau:.3g} %", *values, interval(change, 2)])
    with_key = {key: cell(outcomes.alone("hdb", "rmse", "key", key=key), 2) for key in ("metrics", "tree")}
    mean_of_all = cell(outcomes.values("hdb", MEAN, "rmse"), 2)
    bits = outcomes.values("hdb", FEDSIM, "bits", key="linkage")[0]
    head = ["σ", "τ", *(f"`{method}`" for method in BLURRED), "`fedsim` − without noise"]
    return [
        *lines,
        f"**Figure 7, `hdb`**: RMSE by the noise on similarities, K = {CANDIDATES}, filters of {bits:,.0f} bits.",
        f"Here {TAU_MEANS}.",
        "",
        *table(head, rows),
        "",
        f"On the same seeds `mean`, which does not read similarities, has {mean_of_all}. Without any linkage own columns",
        f"+ key have {with_key['metrics']} in the linked network and {with_key['tree']} in boosted trees. Noise is drawn anew",
        "for each σ, as it depends on the terms of a job. The paper finds the best results at moderate noise on most of its",
        "sets. We do not claim that noise helps.",
        "",
        "![RMSE by noise; whiskers are standard deviations](fedsim-figure-7.svg)",
    ]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Quality and time by K, and quality by noise."""
    outcomes, columns = Outcomes(found, plan.few(SEEDS)), []
    for name, (metric, scatter) in tables(plan).items():
        quality = partial(_quality, outcomes, name, metric, scatter)
        seconds = partial(_seconds, outcomes, name, scatter)
        above = Panel(f"{name}: {NAMES[metric]}; whiskers: deviations", "candidates", _curves(COUNTED, counts(plan), quality))
        columns.append([above, Panel(f"{name}: seconds of an epoch", "candidates", _curves(COUNTED, counts(plan), seconds))])
    drawn = {"fedsim-figure-9.svg": drawing(columns)}
    if not plan.small:
        blurred = _curves(BLURRED, SIGMAS, lambda method, sigma: outcomes.values("hdb", method, "rmse", sigma=sigma))
        drawn["fedsim-figure-7.svg"] = drawing(
            [[Panel(f"hdb: {NAMES['rmse']}; whiskers: deviations", "noise on similarities, σ", blurred)]]
        )
    return drawn


def _curves(methods: tuple[str, ...], values: tuple[float, ...], measure: Callable[..., list[float]]) -> list[Curve]:
    """Means and standard deviations over seeds."""
    return [Curve(method, [_point(value, measure(method, value)) for value in values]) for method in methods]


def _point(x: float, values: list[float]) -> tuple[float, float, float]:
    return x, mean(values), deviation(values)


def deviation(values: list[float]) -> float:
    """Over seeds; 0 of one."""
    middle = mean(values)
    return (sum((value - middle) ** 2 for value in values) / (len(values) - 1)) ** 0.5 if len(values) > 1 else 0.0


def _quality(outcomes: Outcomes, name: str, metric: str, scatter: float | None, method: str, count: int) -> list[float]:
    return outcomes.values(name, method, metric, candidates=count, scatter=scatter)


def _seconds(outcomes: Outcomes, name: str, scatter: float | None, method: str, count: int) -> list[float]:
    return outcomes.said(name, method, "epoch_s", candidates=count, scatter=scatter)


def exponent(outcomes: Outcomes, name: str, scatter: float | None, method: str) -> float:
    """The exponent of K, by which time grows from few to many candidates."""
    long, short = (mean(_seconds(outcomes, name, scatter, method, count)) for count in (LONG, SHORT))
    return math.log(long / short) / math.log(LONG / SHORT)


def check(plan: Plan, found: Found) -> list[Expectation]:
    """FedSim does not get worse with more candidates, time is in proportion to them, and moderate noise costs little."""
    outcomes, expected = Outcomes(found, plan.few(SEEDS)), []
    if plan.small:
        return []
    for name, (metric, scatter) in tables(plan).items():
        few, many = (mean(_quality(outcomes, name, metric, scatter, FEDSIM, count)) for count in (CANDIDATES, 50))
        better = (many - few) / few * (1 if metric == "accuracy" else -1)
        expected.append(Expectation(f"`{name}`: FedSim, K = 50 beside K = {CANDIDATES}, relative gain", better, -0.03))
        for method in PAIRWISE:
            value, what = exponent(outcomes, name, scatter, method), f"`{name}`: `{method}`: exponent of time by K"
            expected += [Expectation(what, value, FLAT), Expectation(f"−({what})", -value, -STEEP)]
    quiet = outcomes.values("hdb", FEDSIM, "rmse", sigma=0.0)
    for sigma in (0.1, SIGMA):
        cost = mean(subtract(outcomes.values("hdb", FEDSIM, "rmse", sigma=sigma), quiet))
        what = f"hdb: −(RMSE of FedSim that σ = {sigma:g} changes, in deviations over seeds)"
        expected.append(Expectation(what, -abs(cost) / (deviation(quiet) or 1.0), -2.0))
    noisy = subtract(outcomes.values("hdb", TOP1, "rmse", sigma=SIGMAS[-1]), outcomes.values("hdb", TOP1, "rmse", sigma=0.0))
    what = f"hdb: `top1` at σ = {SIGMAS[-1]:g} − without noise, RMSE, lower end of the 95 % interval"
    return [*expected, Expectation(what, lower(noisy), 0.0)]
