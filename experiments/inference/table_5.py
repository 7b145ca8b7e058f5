"""Table 5: two victims, in three forms, beside each victim alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.inference import paper
from experiments.inference.attacker import ADAPTIVE, JOINED, PASS, STATIC
from experiments.inference.experiment import Expectation, Found, Plan, Work, cell, interval, mean, table, trial

TITLE = "Table 5: three parties, 1 % of the rows known"

SEEDS = 3
SHARE = {False: 0.01, True: 0.1}
ALONE = {"victim": "location30-one", "other": "location30-other"}
"""Victim → the table in which it is the only one."""

FORMS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "baseline": (),
    "basic": ({"name": "basic", "columns": "all"},),
    "fbs": ({"name": "fbs", "columns": "all"},),
}
"""Row of the paper's table → defences of each passive party."""

LINES = ("constant", "imputation", STATIC, PASS, ADAPTIVE, JOINED, "worst")
ATTACKS = (STATIC, PASS, ADAPTIVE, JOINED)
NEAR = 0.05


def _work(plan: Plan, data: str, form: str, seed: int) -> Work:
    settings = {"batch_size": 64} if plan.small else {"batch_size": 256, "epochs": 12}
    name, share = plan.data(data), (SHARE[plan.small],)
    return trial(name, seed, settings=settings, defences=FORMS[form], shares=share, epochs=_epochs(plan), attacks=ATTACKS)


def _epochs(plan: Plan) -> tuple[int, ...]:
    return (3, 6) if plan.small else (6, 12)


def works(plan: Plan) -> list[Work]:
    """Three parties, and each victim with the attacker alone, in each form."""
    datas = ("location30-three", *ALONE.values())
    return [_work(plan, data, form, seed) for form in FORMS for data in datas for seed in plan.few(SEEDS)]


def _values(plan: Plan, found: Found, data: str, form: str, victim: str, line: str, metric: str) -> list[float]:
    outcomes = [found[_work(plan, data, form, seed).name] for seed in plan.few(SEEDS)]
    return [outcome["victims"][victim][f"{SHARE[plan.small]:g}"][line][metric] for outcome in outcomes]


def _leaks(plan: Plan, found: Found, data: str, form: str, victim: str) -> list[float]:
    worst, imputed = (_values(plan, found, data, form, victim, line, "success") for line in ("worst", "imputation"))
    return [one - other for one, other in zip(worst, imputed, strict=True)]


def _accuracy(plan: Plan, found: Found, data: str, form: str) -> list[float]:
    return [found[_work(plan, data, form, seed).name]["test"]["accuracy"] for seed in plan.few(SEEDS)]


def page(plan: Plan, found: Found) -> list[str]:
    """Accuracy and leaks of each form, and all lines of the three parties."""
    rows = []
    for form in FORMS:
        leaks = [
            interval(_leaks(plan, found, data, form, victim))
            for victim, alone in ALONE.items()
            for data in ("location30-three", alone)
        ]
        rows.append([form, cell(_accuracy(plan, found, "location30-three", form)), *leaks])
    head = ["", "accuracy", "victim 1, with victim 2", "victim 1 alone", "victim 2, with victim 1", "victim 2 alone"]
    lines = [ABOUT_TABLE, "", "**Leak: AUC of the worst attack − of imputation**", "", *table(head, rows), ""]
    for name, metric in (("mean AUC", "success"), ("error", "error"), ("recall", "recall")):
        rows = [
            [
                line,
                *(
                    cell(_values(plan, found, "location30-three", form, victim, line, metric))
                    for form in FORMS
                    for victim in ALONE
                ),
            ]
            for line in LINES
        ]
        head = ["", *(f"{form}: victim {number}" for form in FORMS for number in (1, 2))]
        lines += [f"**Three parties: {name}**", "", *table(head, rows), ""]
    published = [
        [form, f"{accuracy:.4f}", *(f"{value:.4f}" for victim in victims for value in victim)]
        for form, (accuracy, *victims) in paper.TABLE_5.items()
    ]
    head = ["", "accuracy", "victim 1: error", "recall", "victim 2: error", "recall"]
    return [*lines, "**The paper, Purchase100**", "", *table(head, published)]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """A victim's leak is near to that with the attacker alone."""
    expected = []
    for form in FORMS:
        for number, (victim, alone) in enumerate(ALONE.items(), 1):
            three, two = (mean(_leaks(plan, found, data, form, victim)) for data in ("location30-three", alone))
            expected.append(
                Expectation(f"{form}, victim {number}: −|leak of three parties − of two|", -abs(three - two), -NEAR)
            )
    return expected


ABOUT_TABLE = """\
`location30`: 148 flags and the place at the attacker, 149 flags at each victim; batches of 256, 12 epochs. Three
seeds. Each victim defends all of its columns by itself. The attacker knows 40 rows."""
