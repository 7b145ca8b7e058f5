"""Table 3: how many columns are protected. Table 4: how many rounds of Minimax protect them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.inference import paper
from experiments.inference.attacker import attack
from experiments.inference.data import SPLITS, VICTIMS
from experiments.inference.defended import FBS, JUDGES, LOOKS, NAMES, NONE, SETTINGS, Defence, Results, defended
from experiments.inference.experiment import Expectation, Found, Outcome, Plan, Work, cell, interval, mean, table
from experiments.inference.training import train
from vfl_node.crypto.randomness import Randomness

TITLE = "Tables 3 and 4: number of protected columns, and rounds of Minimax"

SEEDS = 3
COUNTS = {False: (60, 120, 223), True: (4, 8, 12)}
"""Protected flags of ``location30``; the first of them are attacked."""

ROUNDS = {False: (1, 5, 10, 20), True: (1, 5, 20)}
DATA = ("location30", "adult")
RATES: Mapping[str, float] = {"location30": 1e-3, "adult": 1e-4}
"""Learning rate of the bottom in Minimax: so small that a few rounds leave something to rebuild, and more rounds matter."""

ERRORS = 2.0
"""By so many standard errors 20 rounds are to be better than 5."""


def first_columns(
    shared: Path, *, data: str, seed: int, defence: Defence, protected: int, attacked: int, looks: Sequence[int]
) -> Outcome:
    """A training in which a defence protects the first so many columns of the victim, and the best attack on the first so many.

    Returns:
        ``accuracy`` of the joint model, and mean AUC of ``attack`` and ``imputation`` over the attacked columns.
    """
    split = SPLITS[data](shared, seed)
    names = split.attacked_of(VICTIMS[0])
    split = replace(split, attacked=names[:attacked])
    defences = [{**defence, "columns": list(names[:protected])}] if protected else []
    settings: dict[str, Any] = dict(SETTINGS[data.startswith("made_up")])
    heard = train(data, split, seed, settings=settings, defences=defences)
    own = Randomness(bytes(32)).derive(f"attacker of the first columns, {data}, {seed}")
    found = attack(heard, VICTIMS[0], 0.05, own, epochs=looks, attacks=JUDGES)
    return {
        "accuracy": heard.test["accuracy"],
        "attack": found["worst"]["success"],
        "recall": found["worst"]["recall"],
        "imputation": found["imputation"]["success"],
    }


def _fbs(plan: Plan, data: str, rounds: int) -> Defence:
    rate = {} if plan.small else {"model_rate": RATES[data]}
    return {**FBS, **rate, "rounds": rounds}


def _protected(plan: Plan, count: int, seed: int) -> Work:
    numbers = {"seed": seed, "protected": count, "attacked": COUNTS[plan.small][0], "looks": list(LOOKS[plan.small])}
    return Work(first_columns, {"data": plan.data("location30"), "defence": _fbs(plan, "location30", 10), **numbers})


def _defences_by_rounds(plan: Plan, data: str) -> list[Defence]:
    return [NONE, *(_fbs(plan, data, rounds) for rounds in ROUNDS[plan.small])]


def works(plan: Plan) -> list[Work]:
    """Those of both tables."""
    counts = [_protected(plan, count, seed) for count in (0, *COUNTS[plan.small]) for seed in plan.few(SEEDS)]
    rounds = [(data, one) for data in DATA for one in _defences_by_rounds(plan, data)]
    return counts + [defended(plan, data, seed, one) for data, one in rounds for seed in plan.few(SEEDS)]


def page(plan: Plan, found: Found) -> list[str]:
    """Both tables, with the paper's below each."""
    return [*_table_3(plan, found), "", *_table_4(plan, found)]


def _read(plan: Plan, found: Found, count: int, figure: str) -> list[float]:
    return [found[_protected(plan, count, seed).name][figure] for seed in plan.few(SEEDS)]


def _table_3(plan: Plan, found: Found) -> list[str]:
    counts = (0, *COUNTS[plan.small])
    rows = [
        [what, *(cell(_read(plan, found, count, figure)) for count in counts)]
        for what, figure in (
            ("AUC of the best attack", "attack"),
            ("its recall", "recall"),
            ("AUC of imputation", "imputation"),
            ("accuracy of the joint model", "accuracy"),
        )
    ]
    least, *_, most = COUNTS[plan.small]
    more = [a - b for a, b in zip(*(_read(plan, found, count, "attack") for count in (most, least)), strict=True)]
    lines = [
        f"**Table 3**: `location30`, fbs protects so many of the victim's 223 flags; the first {least} are attacked.",
        "",
        *table(["protected", *map(str, counts)], rows),
        "",
        f"AUC of the attack if {most} are protected − if {least} are: {interval(more)}. The paper, recall:",
        "",
    ]
    published = [
        [data, "; ".join(f"{count} protected: {value:.4f}" for count, value in values.items())]
        for data, values in paper.TABLE_3.items()
    ]
    return [*lines, *table(["attacked", "recall"], published)]


def _table_4(plan: Plan, found: Found) -> list[str]:
    lines = [
        "**Table 4**: all columns that are attacked are protected, by fbs with N2 rounds, with a `model_rate` of .0001 on",
        "`adult` and .001 on `location30`.",
        "",
    ]
    rows = []
    for data in DATA:
        results = Results(plan, found, data, plan.few(SEEDS))
        metric = "AUC" if data == "location30" else "accuracy"
        defences = _defences_by_rounds(plan, data)
        rows += [
            [f"`{data}`: {metric} of the best attack", *(cell(results.success(one)) for one in defences)],
            ["… its error", *(cell(results.success(one, metric="error")) for one in defences)],
            ["… its success − imputation's", *(interval(results.leakage(one)) for one in defences)],
            [f"{NAMES[results.metric]} of the joint model", *(cell(results.task(one)) for one in defences)],
        ]
    lines += [
        *table(["N2", "no defence", *map(str, ROUNDS[plan.small])], rows),
        "",
        "The paper, accuracy and the metric by N2:",
        "",
    ]
    published = [
        [data, "; ".join(f"{rounds}: {accuracy:.4f}, {value:.4f}" for rounds, (accuracy, value) in values.items())]
        for data, values in paper.TABLE_4.items()
    ]
    return [*lines, *table(["data", "by N2"], published)]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def _ends(plan: Plan) -> tuple[int, int]:
    """The fewest of the paper's rounds, and the most."""
    _, few, *_, many = ROUNDS[plan.small]
    return few, many


def fewer(plan: Plan, found: Found, data: str) -> tuple[float, float]:
    """How much less is rebuilt with 20 rounds than with 5: mean and standard error over the seeds."""
    results = Results(plan, found, data, plan.few(SEEDS))
    few, many = (results.success(_fbs(plan, data, rounds)) for rounds in _ends(plan))
    less = [a - b for a, b in zip(few, many, strict=True)]
    return mean(less), float(np.std(less, ddof=1) / np.sqrt(len(less))) if len(less) > 1 else 0.0


def check(plan: Plan, found: Found) -> list[Expectation]:
    """More rounds leave less to rebuild."""
    expected = []
    few, many = _ends(plan)
    for data in DATA:
        less, error = fewer(plan, found, data)
        what = f"`{data}`: what is rebuilt with N2 = {few} − with {many}, less {ERRORS:g} standard errors"
        expected.append(Expectation(what, less - ERRORS * error, 0.0))
    return expected
