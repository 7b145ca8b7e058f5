"""The page and the figure of training in shares, made of stored outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.florist.figures import Curve, Panel, drawing
from experiments.hidden.cost import WAYS
from experiments.hidden.experiment import STEPS
from experiments.hidden.works import HALF, Plan
from experiments.inference.experiment import interval

ABOUT = Path(__file__).with_name("about.txt").read_text(encoding="utf-8")
FIGURE = "hidden.svg"
LEAST, AT_FEW = 0.002, 0.005
"""How far training in shares may be from the same model in the clear, and how far at the largest ratio."""
LOST = 0.01
"""What FLORIST loses at least, from one half on."""

Floats = NDArray[np.float64]
Found = Mapping[str, Any]


class Results:
    """Outcomes by table and ratio.

    Args:
        plan: whose.
        found: name of a work → its outcome.
    """

    def __init__(self, plan: Plan, found: Found) -> None:
        self.plan, self._found = plan, found

    def auc(self, data: str, ratio: float) -> dict[str, Floats]:
        """Training → test AUC by seed. ``FLORIST`` is the better of its two readings."""
        pairs = [[self._found[work.name] for work in pair] for pair in self.plan.trainings(data, ratio)]
        values = {name: np.array([hidden["auc"][name] for hidden, _ in pairs]) for name in ("hidden", "psi", "same batches")}
        open_ = {name: np.array([florist[name] for _, florist in pairs]) for name in ("FLORIST", "FLORIST-tr", "partial")}
        best = max(open_["FLORIST"], open_.pop("FLORIST-tr"), key=np.mean)
        return {**values, **open_, "FLORIST": best}

    def shared(self, data: str, ratio: float) -> float:
        """How many of the records that are trained on both parties have, mean over seeds."""
        return float(np.mean([self._found[work.name]["shared"] for work, _ in self.plan.trainings(data, ratio)]))

    def told(self, data: str, secret: str) -> dict[str, Floats]:
        """For ``membership`` attack → AUC by seed; for ``labels`` training → AUC by seed."""
        each = [self._found[work.name][secret] for work in self.plan.attacked(data)]
        return {name: np.array([figures[name] for figures in each], np.float64) for name in each[0]}

    def cost(self, data: str) -> Mapping[str, Mapping[str, float]]:
        """Way → figures of a training between nodes."""
        return self._found[self.plan.cost(data).name]


def error(values: Floats) -> float:
    """Standard error of a mean over seeds; 0 of one."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def points(values: Floats) -> str:
    """Mean and 95 % interval, in points of AUC."""
    return interval((100 * values).tolist(), 2)


def page(results: Results) -> str:
    """The whole page."""
    parts = [
        expected(results),
        DOUBTS,
        FIGURES,
        *(table_lines(results, data) for data in results.plan.names),
        told(results),
        paid(results),
    ]
    return ABOUT + "\n\n".join(parts) + "\n"


DOUBTS = """\
What does not hold:

* *hidden* and *psi* take the shared records in different batches, and differ by that alone: *psi* and *same batches*, both in
  the clear, differ as much. So .002 is less than the order of batches moves.
* FLORIST's network is larger. Where most records are shared it ranks better than *hidden* on `default_credit`, as it does
  without FLORIST on the intersection (*partial*).
* At .95 `criteo` and `talkingdata` have some 20 shared records. No training is worth much there, and differences say little."""

FIGURES = f"""\
![Test AUC by the share of records that each party lacks]({FIGURE})

Points are means over the seeds, whiskers their standard errors. In the tables, differences are in points (AUC × 100), in square
brackets with the 95 % interval of their mean over seeds (Student's t)."""


def expected(results: Results) -> str:
    """What was claimed, and whether it holds."""
    ratios = results.plan.ratios
    most, few, half = (
        [ratio for ratio in ratios if ratio < max(ratios)],
        [max(ratios)],
        [ratio for ratio in ratios if ratio >= HALF],
    )
    lines = ["## What was expected", "", "| α = β | what | | | the furthest mean | holds |", "|---|---|---|--:|--:|---|"]
    for model in ("same batches", "psi"):
        what = f"*hidden* − *{model}*, either way"
        for bound, some in ((LEAST, most), (AT_FEW, few)):
            gaps = differences(results, some, "hidden", model)
            lines.append(claim(what, some, {point: abs(gap) for point, gap in gaps.items()}, at_most=bound))
    for one, other, bound in (("partial", "FLORIST", LOST), ("hidden", "FLORIST", 0.0)):
        lines.append(claim(f"*{one}* − *{other}*", half, differences(results, half, one, other), at_least=bound))
    return "\n".join(lines)


Point = tuple[str, float]
"""A table and a ratio."""


def differences(results: Results, ratios: Sequence[float], one: str, other: str) -> dict[Point, float]:
    """Mean over seeds at each point."""
    found = {(data, ratio): results.auc(data, ratio) for data in results.plan.names for ratio in ratios}
    return {point: float((figures[one] - figures[other]).mean()) for point, figures in found.items()}


def claim(
    what: str, ratios: Sequence[float], gaps: Mapping[Point, float], *, at_most: float = math.inf, at_least: float = -math.inf
) -> str:
    """A line: the bound, the point that is furthest towards it or beyond it, and how many are beyond."""
    upper = math.isfinite(at_most)
    (data, ratio), furthest = (max if upper else min)(gaps.items(), key=lambda pair: pair[1])
    beyond = sum(not at_least <= gap <= at_most for gap in gaps.values())
    holds = f"**no**, at {beyond} of {len(gaps)} points" if beyond else f"yes, at all {len(gaps)} points"
    where = f"{min(ratios):g} to {max(ratios):g}" if len(ratios) > 1 else f"{ratios[0]:g}"
    bound = ("at most", f"{at_most:g}") if upper else ("at least", f"{at_least:g}")
    return f"| {where} | {what} | {' | '.join(bound)} | {furthest:.4f} ({data}, {ratio:g}) | {holds} |"


def table_lines(results: Results, data: str) -> str:
    """AUC and differences, by ratio."""
    heads = ("α = β", "shared", "hidden", "psi", "FLORIST", "partial")
    pairs = {
        "hidden − psi": ("hidden", "psi"),
        "hidden − same batches": ("hidden", "same batches"),
        "FLORIST − partial": ("FLORIST", "partial"),
        "hidden − FLORIST": ("hidden", "FLORIST"),
    }
    lines = [f"## {data}", "", f"| {' | '.join((*heads, *pairs))} |", "|--:" * (len(heads) + len(pairs)) + "|"]
    for ratio in results.plan.ratios:
        found = results.auc(data, ratio)
        means = (f"{found[name].mean():.4f}" for name in heads[2:])
        gaps = (points(found[one] - found[other]) for one, other in pairs.values())
        shared = f"{results.shared(data, ratio):,.0f}"
        lines.append(f"| {' | '.join((f'{ratio:g}', shared, *means, *gaps))} |")
    return "\n".join(lines)


TOLD = """\
## What it tells

The table has the AUC of attacks on what a party receives, ± standard errors, at α = β = .5 (4,000 rows, 10 epochs). The
active party attacks which records the passive one lacks (the attack that is furthest from .5). The passive party attacks the
labels of records that the active one has (by the direction of gradients). *psi* here is FLORIST's network over the
intersection, which the alignment shows to both parties. Of *hidden* nobody receives anything of a row but uniform numbers. A
boosted tree that is shown half of the rows with the truth tells both secrets of the other half at .50 ± .04
(`tests/privacy/test_hidden_training.py`, made-up rows)."""


def told(results: Results) -> str:
    """What open trainings tell."""
    heads = ("membership, FLORIST", "membership, psi", "labels, FLORIST", "labels, psi")
    lines = [TOLD, "", f"| | {' | '.join(heads)} |", "|---|---|--:|--:|--:|"]
    for data in results.plan.names:
        membership, labels = (results.told(data, secret) for secret in ("membership", "labels"))
        name, values = max(membership.items(), key=lambda pair: abs(pair[1].mean() - 0.5))
        read = (f"{labels[way].mean():.2f}" for way in ("FLORIST", "psi"))
        lines.append(f"| {data} | {values.mean():.2f} ± {error(values):.2f} ({name}) | 1.00 | {' | '.join(read)} |")
    return "\n".join(lines)


PAID = f"""\
## What it costs

These are whole trainings at α = β = {HALF:g}, first seed, between processes of one machine, alignment not counted. The table
has seconds, megabytes between the data parties both ways, and megabytes from the dealer to both. *hidden* trains for 10
epochs, or as many as {STEPS} steps take; FLORIST over the union, and its network over the intersection, for 3. All processes
shared two cores with other work, so seconds are rough."""


def paid(results: Results) -> str:
    """Time and bytes."""
    heads = [f"{way}: {what}" for way in WAYS for what in ("s", "MB", "MB dealt") if way == "hidden" or what != "MB dealt"]
    lines = [PAID, "", f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for data in results.plan.names:
        cost = results.cost(data)
        cells = (f"{cost[way][what]:,.1f}" for way, _, what in (head.partition(": ") for head in heads))
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(results: Results) -> str:
    """A panel for each table, two in a column."""
    panels = []
    for data in results.plan.names:
        found = {ratio: results.auc(data, ratio) for ratio in results.plan.ratios}
        curves = [Curve(LABELS[name], list(_points(found, name)), name in BASELINES) for name in LABELS]
        panels.append(Panel(f"{data}: test AUC", "α = β, share of records that each party lacks", curves, limits=(0.0, 1.0)))
    return drawing([panels[start : start + 2] for start in range(0, len(panels), 2)])


LABELS = {
    "hidden": "hidden, over the union",
    "FLORIST": "FLORIST, over the union",
    "psi": "psi: the same network in the clear",
    "partial": "partial: FLORIST's network on shared rows",
}
BASELINES = ("psi", "partial")


def _points(found: Mapping[float, Mapping[str, Floats]], name: str) -> Iterator[tuple[float, float, float]]:
    for ratio, figures in found.items():
        yield ratio, float(figures[name].mean()), error(figures[name])
