"""Figure 3: what each defence hides, and what it costs the joint model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference import paper
from experiments.inference.defended import JUDGES, NAMES, NONE, Defence, Results, defended
from experiments.inference.experiment import Expectation, Found, Plan, Work, cell, interval, mean, table

TITLE = "Figure 3: what defences hide and what they cost"

SEEDS = {"adult": 3, "default_credit": 2}

RATES = (1e-4, 3e-4, 1e-3)
"""Learning rates of the bottom in Minimax, which runs for 5 rounds: how far it gets from the bottom that the task has left."""


def _defences_by_rate(name: str) -> dict[str, Defence]:
    return {f"rate {rate:g}": {"name": name, "rounds": 5, "model_rate": rate} for rate in RATES}


STRENGTHS: Mapping[str, Mapping[str, Defence]] = {
    "fbs": _defences_by_rate("fbs"),
    "basic": _defences_by_rate("basic"),
    "nopeek": {f"λ = {weight:g}": {"name": "nopeek", "strength": weight} for weight in (0.1, 0.3, 1.0)},
    "naive": {f"λ = {weight:g}": {"name": "naive", "strength": weight} for weight in (0.3, 1.0, 3.0)},
    "fbs-fixed": _defences_by_rate("fbs-fixed"),
    "noise": {f"σ = {sigma:g}": {"name": "noise", "sigma": sigma} for sigma in (0.3, 1.0, 3.0)},
}
"""Defence → what its strength is called → its keys, from weak to strong. Keys that are not here are those of a node."""

DATA: Mapping[str, Sequence[str]] = {"adult": tuple(STRENGTHS), "default_credit": tuple(STRENGTHS)[:3]}
"""Table → the defences that are tried on it."""

LOSS, TIMES = 0.01, 3.0
"""Where half of the leakage is left, fbs costs no more AUC than the first; basic costs so many times as much."""


def strengths(plan: Plan, name: str) -> Mapping[str, Defence]:
    """Strengths of a defence: all, or the middle one in a small run."""
    every = STRENGTHS[name]
    return dict(list(every.items())[1:2]) if plan.small else every


def works(plan: Plan) -> list[Work]:
    """Each strength of each defence, and no defence."""
    return [
        defended(plan, data, seed, defence)
        for data, names in DATA.items()
        for seed in plan.few(SEEDS[data])
        for defence in (NONE, *(one for name in names for one in strengths(plan, name).values()))
    ]


def _results(plan: Plan, found: Found, data: str) -> Results:
    return Results(plan, found, data, plan.few(SEEDS[data]))


def halving(plan: Plan, results: Results, name: str) -> Defence | None:
    """The weakest strength of a defence that leaves at most half of what leaks without one; None where none does."""
    half = mean(results.leakage(NONE)) / 2
    return next((one for one in strengths(plan, name).values() if mean(results.leakage(one)) <= half), None)


def page(plan: Plan, found: Found) -> list[str]:
    """The picture, a table for each data set, and what the paper has."""
    lines = [ABOUT, "", f"![Cost of each defence by what it leaves]({PICTURE})", "", ABOUT_PICTURE, ""]
    for data, names in DATA.items():
        results = _results(plan, found, data)
        metric = NAMES[results.metric]
        rows = [_row(results, "none", "", NONE)]
        rows += [_row(results, name, strength, one) for name in names for strength, one in strengths(plan, name).items()]
        constant, imputation = (cell(results.success(NONE, line)) for line in ("constant", "imputation"))
        columns = f"of guesses: constant {constant}, imputation {imputation}"
        lines += [f"**{TITLES[data]}**; {columns}; {metric} of the attacker's own columns alone − joint: "]
        lines[-1] += interval(results.alone())
        head = ["defence", "", metric, f"{metric} − without", *JUDGES, "best − imputation", "of that without"]
        lines += ["", *table(head, rows), ""]
    rows = [[name, f"{drop:.2%}"] for name, drop in paper.FIGURE_3_FBS.items()]
    return [*lines, "**The paper**: mean loss of accuracy of fbs", "", *table(["data", "loss"], rows), "", PAPER]


def _row(results: Results, name: str, strength: str, defence: Defence) -> list[str]:
    attacks = [cell(results.success(defence, line)) for line in JUDGES]
    left = mean(results.leakage(defence)) / mean(results.leakage(NONE))
    cost = interval(results.gain(defence)) if defence else ""
    return [name, strength, cell(results.task(defence)), cost, *attacks, interval(results.leakage(defence)), f"{left:.0%}"]


PICTURE = "inference-figure-3.svg"


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """What the joint model loses by what leaks, a panel for each table."""
    return {PICTURE: drawing([[_panel(plan, _results(plan, found, data), data, names)] for data, names in DATA.items()])}


def _panel(plan: Plan, results: Results, data: str, names: Sequence[str]) -> Panel:
    full, alone = mean(results.leakage(NONE)), mean(results.alone())
    curves = [Curve("no defence", [(full, 0.0, 0.0)])]
    curves += [Curve(name, [_point(results, one) for one in _ordered(plan, results, name)]) for name in names]
    low = min(alone, *(point[1] for curve in curves for point in curve.points))
    curves.append(Curve("without the victim's columns", [(0.0, alone, 0.0), (full, alone, 0.0)], baseline=True))
    curves.append(Curve("half of what leaks without a defence", [(full / 2, low, 0.0), (full / 2, 0.0, 0.0)], baseline=True))
    title = f"{TITLES[data]}: {NAMES[results.metric]} − without a defence"
    return Panel(title, "rebuilt beyond imputation", curves)


def _ordered(plan: Plan, results: Results, name: str) -> list[Defence]:
    return sorted(strengths(plan, name).values(), key=lambda one: mean(results.leakage(one)))


def _point(results: Results, defence: Defence) -> tuple[float, float, float]:
    gains = results.gain(defence)
    return mean(results.leakage(defence)), mean(gains), (max(gains) - min(gains)) / 2


def check(plan: Plan, found: Found) -> list[Expectation]:
    """On ``adult`` fbs halves the leakage at little cost, and basic costs several times as much."""
    results = _results(plan, found, "adult")
    half = mean(results.leakage(NONE)) / 2
    lowest = min(mean(results.leakage(one)) for one in strengths(plan, "fbs").values())
    expected = [Expectation("`adult`: half of the leakage without a defence − the least with fbs", half - lowest, 0.0)]
    fbs, basic = (halving(plan, results, name) for name in ("fbs", "basic"))
    if fbs is not None:
        gain = mean(results.gain(fbs))
        expected.append(Expectation("`adult`: AUC with fbs that halves the leakage − without", gain, -LOSS))
        if basic is not None:
            what = f"`adult`: AUC that basic costs where it halves the leakage − {TIMES:g} times that of fbs"
            expected.append(Expectation(what, TIMES * gain - mean(results.gain(basic)), 0.0))
    return expected


TITLES = {"adult": "adult, occupation", "default_credit": "credit, LIMIT_BAL"}

ABOUT = """\
`fbs`, `fbs-fixed`, `basic` and `naive` are the paper's, `noise` and `nopeek` stand beside them. Each is judged by decoders that
are trained afresh on what it sent; *best* is the attack that does best on the half of the attacked rows that chooses. Batches
have 256 rows, the learning rate is .003, *rate* is `model_rate`, with 5 rounds. Differences are paired by seed: three of
`adult`, two of `default_credit`."""

ABOUT_PICTURE = """\
Up and to the left is better. Each defence at three strengths; whiskers: from the smallest to the largest of the seeds. Below
the level dashed line a defence costs more than the victim's columns are worth to the joint model."""

PAPER = """\
There naive costs at most 23.84 % of accuracy (COCO-QA) and basic 12.36 % (Purchase100). It says that fbs is "around halfway
between baselines and random cases". What a guess from the attacker's own columns gives is not in it, so this has no counterpart
here."""
