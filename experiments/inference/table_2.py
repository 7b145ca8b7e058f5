"""Table 2: attacks by size of the batch, without a defence."""

from __future__ import annotations

from experiments.inference import paper
from experiments.inference.attacker import ADAPTIVE, JOINED, PASS, REPLAY, STACKED, STATIC
from experiments.inference.experiment import Expectation, Found, Plan, Work, cell, interval, mean, table, trial

TITLE = "Table 2: attack by size of the batch, no defence, 5 % of the rows known"

DATA = ("adult", "location30")
BATCHES = {False: paper.BATCHES, True: (16, 64)}
"""Sizes of batches, by :attr:`Plan.small`."""

LINES = ("constant", "imputation", STATIC, PASS, ADAPTIVE, REPLAY, STACKED, JOINED, "worst")

SHARE = {False: 0.05, True: 0.1}

GAIN, LARGER = 0.3, -0.01
"""The attack is better than imputation by so much on ``adult``; a larger batch than a smaller one by so much."""


def _work(plan: Plan, data: str, batch: int, seed: int) -> Work:
    return trial(plan.data(data), seed, settings={"batch_size": batch}, shares=(SHARE[plan.small],))


def works(plan: Plan) -> list[Work]:
    """All sizes of batches and seeds."""
    sizes = BATCHES[plan.small]
    return [_work(plan, data, batch, seed) for data in DATA for batch in sizes for seed in range(plan.seeds)]


def _values(plan: Plan, found: Found, data: str, batch: int, line: str, metric: str) -> list[float]:
    outcomes = [found[_work(plan, data, batch, seed).name] for seed in range(plan.seeds)]
    return [outcome["victims"]["victim"][f"{SHARE[plan.small]:g}"][line][metric] for outcome in outcomes]


def page(plan: Plan, found: Found) -> list[str]:
    """A table for each metric, and what differs from the paper."""
    sizes = BATCHES[plan.small]
    lines = [ABOUT_TABLE, ""]
    for data, metric, name in (
        ("adult", "error", "`adult`, `occupation`, error (lower: a stronger attack)"),
        ("location30", "success", "`location30`, 223 flags, mean AUC"),
        ("location30", "error", "`location30`, error"),
        ("location30", "recall", "`location30`, recall"),
        ("location30", "f1", "`location30`, F1"),
    ):
        rows = [[line, *(cell(_values(plan, found, data, batch, line, metric)) for batch in sizes)] for line in LINES]
        lines += [f"**{name}**", "", *table(["B", *map(str, sizes)], rows), ""]
    published = [
        [f"{data}, {attack}", *(f"{value:.4f}" for value in values)]
        for data, attacks in paper.TABLE_2.items()
        for attack, values in attacks.items()
    ]
    lines += ["**The paper**", "", *table(["B", *map(str, paper.BATCHES)], published), ""]
    differences = [
        [f"`{data}`: {what}", *(interval(_differences(plan, found, data, batch, lines_)) for batch in sizes)]
        for data in DATA
        for what, lines_ in (
            ("static-epoch − imputation", (STATIC, "imputation")),
            ("worst − imputation", ("worst", "imputation")),
            ("adaptive − static-epoch", (ADAPTIVE, STATIC)),
            ("replay − static-epoch", (REPLAY, STATIC)),
        )
    ]
    return [
        *lines,
        "**Differences of success** (accuracy, or AUC), paired by seed",
        "",
        *table(["B", *map(str, sizes)], differences),
    ]


def _differences(plan: Plan, found: Found, data: str, batch: int, pair: tuple[str, str]) -> list[float]:
    one, other = (_values(plan, found, data, batch, line, "success") for line in pair)
    return [a - b for a, b in zip(one, other, strict=True)]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """The attack is far better than imputation on ``adult``, and no worse with a larger batch."""
    small, *_, large = BATCHES[plan.small]
    gains = [
        Expectation(
            f"`adult`, B = {batch}: accuracy of static-epoch − of imputation",
            mean(_differences(plan, found, "adult", batch, (STATIC, "imputation"))),
            GAIN,
        )
        for batch in BATCHES[plan.small]
    ]
    grows = [
        Expectation(
            f"`{data}`: success of {line} at B = {large} − at B = {small}",
            mean(_values(plan, found, data, large, line, "success")) - mean(_values(plan, found, data, small, line, "success")),
            LARGER,
        )
        for data in DATA
        for line in (STATIC, ADAPTIVE)
    ]
    return [*gains, *grows]


ABOUT_TABLE = """\
Each line says from what the columns are guessed (the first page says how). Figures are means ± standard deviations
over the seeds, each with its own rows, known rows, split, batches and weights. Of attacks by epochs they are those of
the worst epoch."""
