"""Figure 6: noise on the passive party's keys, on tables of which both parties have every record."""

from __future__ import annotations

from itertools import pairwise

from experiments.fedsim.trials import CANDIDATES, EXACT, FEDSIM, MEAN, SIGMA, TOP1, Outcomes, Plan, alone, subtract, trial
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, Work, cell, interval, lower, mean, table

TITLE = "Figure 6: noise on keys"

SCATTERS = (0.0, 0.1, 0.2, 0.3)
"""Deviation of the noise on keys, in deviations of a key."""

READING = {0.0: (FEDSIM, TOP1, MEAN), SIGMA: (FEDSIM, TOP1)}
"""Noise on similarities → methods that are trained at each scatter."""

SHOWN = {0.0: (*READING[0.0], EXACT), SIGMA: READING[SIGMA]}
"""Noise on similarities → methods in its table."""

WORDS = {0.0: "Without noise on similarities, as in the paper", SIGMA: "With noise on similarities"}

SEEDS = 5
LEVEL, GAIN, FALL = 0.005, 0.03, 0.002
"""How far FedSim may be below Top1 without noise on keys, must be above it with the most, and how much Top1 must fall."""


def scatters(plan: Plan) -> tuple[float, ...]:
    """Those that are run."""
    return (SCATTERS[0], SCATTERS[-1]) if plan.small else SCATTERS


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    name, every, (first, second) = plan.table("made_up"), [], scatters(plan)[:2]
    for seed in plan.few(SEEDS):
        every += [
            trial(name, method, seed, scatter=scatter, sigma=sigma)
            for sigma, methods in READING.items()
            for scatter in scatters(plan)
            for method in methods
        ]
        every += [trial(name, EXACT, seed, scatter=scatter) for scatter in (first, second)]
        every.append(alone(name, seed, "combine"))
    return every


def _accuracies(plan: Plan, found: Found, method: str, sigma: float) -> list[list[float]]:
    """Accuracies of each scatter, by seed. Any noise on keys leaves `exact` without candidates, so it is trained once."""
    outcomes, every = Outcomes(found, plan.few(SEEDS)), scatters(plan)
    used = [every[0], *every[1:2] * (len(every) - 1)] if method == EXACT else every
    return [outcomes.values(plan.table("made_up"), method, "accuracy", scatter=scatter, sigma=sigma) for scatter in used]


def page(plan: Plan, found: Found) -> list[str]:
    """A table for each noise on similarities, with a row for each deviation of keys."""
    lines = {label: cell(values) for label, values in _unlinked_accuracies(plan, found).items()}
    tables = []
    for sigma, methods in SHOWN.items():
        by = {method: _accuracies(plan, found, method, sigma) for method in methods}
        others = READING[sigma][1:]
        rows = [
            [
                f"{scatter:g}",
                *(cell(values[at]) for values in by.values()),
                *(interval(subtract(by[FEDSIM][at], by[other][at])) for other in others),
            ]
            for at, scatter in enumerate(scatters(plan))
        ]
        head = ["σ_cf", *(f"`{method}`" for method in methods), *(f"`fedsim` − `{other}`" for other in others)]
        tables += [f"**{WORDS[sigma]}** (σ = {sigma:g}):", "", *table(head, rows), ""]
    return [
        f"Accuracy on the rows held out, K = {CANDIDATES}, by distances of filters. Without any linkage: Solo {lines['Solo']};",
        f"Combine, the columns of both in one table, {lines['Combine']}. Noise on keys, σ_cf, is in deviations of a key.",
        "With any of it `exact` has no equal keys, and so no candidates: it is trained once for all of these rows.",
        "",
        *tables,
        "The paper has no noise on similarities here. `mean` and `exact` do not read these.",
        "",
        "`exact` without candidates is a network of the same kind with own columns alone. What candidates give beyond it, at",
        f"σ_cf = {scatters(plan)[-1]:g} and σ = 0: {_gains_beyond_own(plan, found)}.",
        "",
        "The paper, of frog at σ_cf = .2, in the text of its section 6.2: Top1 around 84 %, FedSim around 91 %.",
        "",
        "![Accuracy by noise on keys, without and with noise on similarities; whiskers: 95 % intervals](fedsim-figure-6.svg)",
    ]


def _gains_beyond_own(plan: Plan, found: Found) -> str:
    """What methods gain over `exact` where this has no candidates, with the most noise on keys."""
    own = _accuracies(plan, found, EXACT, 0.0)[-1]
    gains = {method: subtract(_accuracies(plan, found, method, 0.0)[-1], own) for method in READING[0.0]}
    return ", ".join(f"`{method}` {interval(gain)}" for method, gain in gains.items())


def _unlinked_accuracies(plan: Plan, found: Found) -> dict[str, list[float]]:
    outcomes, name = Outcomes(found, plan.few(SEEDS)), plan.table("made_up")
    solo = outcomes.values(name, FEDSIM, "accuracy", key="alone", scatter=scatters(plan)[0], sigma=0.0)
    return {"Solo": solo, "Combine": outcomes.alone(name, "accuracy", "combine")}


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Accuracy by noise on keys, a panel for each noise on similarities."""
    flat = [
        Curve(label, [(scatter, mean(values), 0.0) for scatter in scatters(plan)], baseline=True)
        for label, values in _unlinked_accuracies(plan, found).items()
    ]
    columns = []
    for sigma, methods in SHOWN.items():
        curves = [
            Curve(
                method,
                [_point(*one) for one in zip(scatters(plan), _accuracies(plan, found, method, sigma), strict=True)],
            )
            for method in methods
        ]
        title = f"accuracy, σ = {sigma:g}; whiskers: 95 % intervals"
        columns.append([Panel(title, "noise on keys, deviations of a key", [*curves, *flat])])
    return {"fedsim-figure-6.svg": drawing(columns)}


def _point(x: float, values: list[float]) -> tuple[float, float, float]:
    return x, mean(values), mean(values) - lower(values)


def check(plan: Plan, found: Found) -> list[Expectation]:
    """FedSim is not below Top1 where records meet, and above it where they do not."""
    last, expected = f"σ_cf = {scatters(plan)[-1]:g}", []
    for sigma in SHOWN:
        fedsim, top1 = (_accuracies(plan, found, method, sigma) for method in (FEDSIM, TOP1))
        first, most = subtract(fedsim[0], top1[0]), subtract(fedsim[-1], top1[-1])
        expected += [
            Expectation(f"`fedsim` − `top1` without noise on keys, σ = {sigma:g}, mean", mean(first), -LEVEL),
            Expectation(f"`fedsim` − `top1` at {last}, σ = {sigma:g}, mean", mean(most), GAIN),
            Expectation(f"`fedsim` − `top1` at {last}, σ = {sigma:g}, lower end of the 95 % interval", lower(most), 0.0),
        ]
    fedsim, top1 = (_accuracies(plan, found, method, 0.0) for method in (FEDSIM, TOP1))
    falls = min(mean(earlier) - mean(later) for earlier, later in pairwise(top1))
    over_solo = subtract(fedsim[-1], _unlinked_accuracies(plan, found)["Solo"])
    return [
        *expected,
        Expectation("`top1`, σ = 0, falls from each σ_cf to the next: least fall", falls, FALL),
        Expectation(
            "`top1`, σ = 0, first σ_cf − last, lower end of the 95 % interval", lower(subtract(top1[0], top1[-1])), 0.0
        ),
        Expectation(f"`fedsim` − Solo at {last}, σ = 0, lower end of the 95 % interval", lower(over_solo), 0.0),
    ]
