"""Table 3's game: titles on Steam beside the best known games, with the control that tells only who has a match."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.fedsim.paper import TABLE_3_GAME
from experiments.fedsim.table_2 import label
from experiments.fedsim.trials import (
    CANDIDATES,
    EXACT,
    FEATURE,
    FEDSIM,
    MEAN,
    PERMUTED,
    SIGMA,
    TOP1,
    Outcomes,
    Plan,
    alone,
    subtract,
    trial,
)
from experiments.inference.experiment import Expectation, Found, Work, cell, interval, lower, mean, table
from vfl_node.settings.limits import Limits

TITLE = "Table 3: games by title (Steam and RAWG)"

METHODS = (FEDSIM, MEAN, TOP1, FEATURE, EXACT)
LEVEL, WORTH = 0.01, 0.01
"""What one line may be below another, and how much AUC a match must be worth."""

SEEDS = 5


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    if plan.small:
        return []
    every = []
    for seed in plan.few(SEEDS):
        every += [trial("games", method, seed) for method in METHODS]
        every += [trial("games", FEDSIM, seed, control=PERMUTED), alone("games", seed, "flag")]
    return every


def _columns(plan: Plan, found: Found, metric: str) -> dict[str, list[float]]:
    outcomes = Outcomes(found, plan.few(SEEDS))
    return {
        "Solo": outcomes.values("games", FEDSIM, metric, key="alone"),
        "Solo + match flag": outcomes.alone("games", metric, "flag"),
        **{method: outcomes.values("games", method, metric) for method in METHODS},
        f"{FEDSIM}, permuted B": outcomes.values("games", FEDSIM, metric, control=PERMUTED),
    }


def page(plan: Plan, found: Found) -> list[str]:
    """A row for each method and control."""
    if plan.small:
        return ["Not in a small run: it needs the tables of games."]
    accuracy, auc = (_columns(plan, found, metric) for metric in ("accuracy", "auc"))
    rows = []
    for name in accuracy:
        paper, against = TABLE_3_GAME.get(name), subtract(accuracy[name], accuracy["Solo"])
        rows.append(
            [
                label(name),
                cell(accuracy[name]),
                cell(auc[name]),
                "" if name == "Solo" else interval(against),
                f"{paper:.2f} %" if paper else "",
            ]
        )
    outcomes = Outcomes(found, plan.few(SEEDS))
    most, bits = (max(outcomes.values("games", FEDSIM, fact, key="linkage")) for fact in ("reuse", "bits"))
    return [
        "RAWG's table here is its 2,000 best known games, so *having a match* could tell that many people own a game.",
        "*Solo + match flag* has the active party's own columns and whether a game of the same letters and digits is in the",
        "other table. It has no column of the passive party. What a method does not gain over this line is not worth a",
        "column of RAWG.",
        "",
        f"K = {CANDIDATES}, by distances of filters of {bits:,.0f} bits, with noise of σ = {SIGMA:g} on similarities. The",
        "paper has K = 50 or 100 here, Levenshtein distances of the titles themselves, and no noise.",
        "",
        *table(["", "accuracy", "AUC", "accuracy − Solo", "paper: accuracy"], rows),
        "",
        *_gains(accuracy),
        "",
        f"One game of RAWG is a candidate of up to {most:,.0f} different titles: the default of `linkage.max_reuse`,",
        f"{Limits().linkage.max_reuse}, refuses this job, too.",
    ]


def _gains(accuracy: Mapping[str, list[float]]) -> list[str]:
    """Who is better than Solo, as far as five seeds tell."""
    better = [label(name) for name in accuracy if lower(subtract(accuracy[name], accuracy["Solo"])) > 0]
    if better:
        return [f"The whole interval is above 0 for {', '.join(better)}."]
    return [
        "No interval is above 0. It is not seen here that a match, or the columns of one, add to year, price, playtime and",
        "score, which the active party has itself.",
    ]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """A match is worth something, and the columns beside it little more."""
    if plan.small:
        return []
    auc = {name: mean(values) for name, values in _columns(plan, found, "auc").items()}
    accuracy = {name: mean(values) for name, values in _columns(plan, found, "accuracy").items()}
    return [
        Expectation("games: `fedsim` − `top1`, accuracy", accuracy[FEDSIM] - accuracy[TOP1], -LEVEL),
        Expectation("games: Solo + match flag − Solo, AUC", auc["Solo + match flag"] - auc["Solo"], WORTH),
        Expectation("games: Solo + match flag − `fedsim`, AUC", auc["Solo + match flag"] - auc[FEDSIM], -LEVEL),
    ]
