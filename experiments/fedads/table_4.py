"""Table 4: what each defence of gradients costs, and what each attack then reads of the labels.

The paper compares defences at about equal loss of AUC and one attack, two clusters of the embeddings. Here the row of a defence
is at a loss of :data:`LOSS`, and twelve attacks by one kind of evidence each are beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.fedads import paper
from experiments.fedads.data import SHARES
from experiments.fedads.trials import (
    BY_EMBEDDINGS,
    CLUSTERS,
    FROM_NOTHING,
    NONE,
    ONE_LAYER,
    PUBLISHED,
    TOPS,
    Defence,
    Plan,
    trial,
)
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, cell, interval, mean, table

LOSS, WITHIN = 0.01, 0.003
"""AUC that a defence may cost in the table's row, and how exact that is."""

ATTACKS = (
    "norm",
    "direction",
    "residual",
    "cosine",
    "mean_norm",
    "mean_direction",
    "mean_residual",
    "mean_cosine",
    "clusters",
    "clusters_soft",
    "embeddings",
    "embeddings_soft",
)
"""Each by one kind of evidence. Stronger ones, which put several together, are beside the defences in ``meters.md``."""

BY_GRADIENTS = tuple(name for name in ATTACKS if name not in BY_EMBEDDINGS)

PICTURE = "label-defences.svg"


@dataclass(frozen=True)
class Row:
    """A defence at equal loss.

    Attributes:
        how: by which strength, in words.
        loss: of AUC.
        leaks: attack → AUC, folded, after the last epoch, the mean over seeds.
    """

    how: str
    loss: float
    leaks: dict[str, float]


class Results:
    """What was found on one table with one kind of top, a value for each seed."""

    def __init__(self, plan: Plan, found: Found, data: str, top: str) -> None:
        self._plan, self._found, self._data, self._top = plan, found, data, top

    def _outcomes(self, defence: Defence) -> list[dict[str, object]]:
        seeds = range(self._plan.seeds)
        return [self._found[trial(self._plan, self._data, self._top, defence, seed).name] for seed in seeds]

    def auc(self, defence: Defence) -> list[float]:
        """AUC of the joint model on the rows held out."""
        return [outcome["auc"] for outcome in self._outcomes(defence)]  # type: ignore[misc]

    def alone(self) -> list[float]:
        """AUC of the label party's own model on the same rows."""
        return [outcome["alone"] for outcome in self._outcomes(NONE)]  # type: ignore[misc]

    def loss(self, defence: Defence) -> list[float]:
        """How much AUC a defence costs, paired by seed."""
        return [one - other for one, other in zip(self.auc(NONE), self.auc(defence), strict=True)]

    def leak(self, defence: Defence, attack: str, epoch: int = 0) -> list[float]:
        """AUC of an attack after an epoch; after the last one without."""
        at = str(epoch or self._plan.epochs[-1])
        values = [outcome["labels"][at][attack] for outcome in self._outcomes(defence)]
        return [0.5 if value is None else value for value in values]

    def leaks(self, defence: Defence) -> dict[str, float]:
        """Attack → mean AUC after the last epoch."""
        return {attack: mean(self.leak(defence, attack)) for attack in ATTACKS}

    def worst(self, defence: Defence, attacks: Sequence[str] = BY_GRADIENTS, epoch: int = 0) -> tuple[float, str]:
        """The attack that reads most, by its mean over seeds, and that mean."""
        return max((mean(self.leak(defence, attack, epoch)), attack) for attack in attacks)

    def row_at_loss(self, strengths: Sequence[Defence]) -> Row | None:
        """A defence where it costs :data:`LOSS`: at the strength that does, or between the two around it; None if none does.

        Between two strengths loss and leak are taken as straight lines. No defence counts as strength 0 where it is.
        """
        points = [(key(one), mean(self.loss(one)), self.leaks(one)) for one in strengths]
        near = [Row(*point) for point in points if abs(point[1] - LOSS) <= WITHIN]
        if near:
            return min(near, key=lambda row: abs(row.loss - LOSS))
        if strengths[0]["name"] in FROM_NOTHING:
            points.insert(0, ("none", 0.0, self.leaks(NONE)))
        for (weak, less, before), (strong, more, after) in pairwise(points):
            if less < LOSS < more:
                part = (LOSS - less) / (more - less)
                leaks = {attack: (1 - part) * before[attack] + part * after[attack] for attack in before}
                return Row(f"between {weak} and {strong}", LOSS, leaks)
        return None


def key(defence: Defence) -> str:
    """A strength in a few words."""
    strengths = {name: value for name, value in defence.items() if name not in ("name", "max_grad_norm")}
    return ", ".join(f"{name} {value:g}" for name, value in strengths.items()) or "no key"


def short(plan: Plan, found: Found) -> list[str]:
    """The picture, and the table at equal loss with the strongest attack alone."""
    lines = [f"![Loss of AUC and strongest attack]({PICTURE})", "", ABOUT_PICTURE, ""]
    lines += ["## At equal loss", "", ABOUT_ROW, "", *_paper(), ""]
    for data, top, results in _all_results(plan, found):
        head = ["defence", "strength", "loss", "change of `embeddings`", "strongest", "which", "`embeddings_soft`"]
        rows = []
        for name, how, row in _rows(plan, results):
            worst, attack = max((value, attack) for attack, value in row.leaks.items())
            figures = [_change(row.leaks, results), f"{worst:.3f}", attack, f"{row.leaks['embeddings_soft']:.3f}"]
            rows.append([name, how, _loss(name, row), *figures])
        lines += [_heading(results, data, top), "", *table(head, rows), ""]
    return lines


def attacked(plan: Plan, found: Found) -> list[str]:
    """The table at equal loss with all attacks."""
    lines = []
    for data, top, results in _all_results(plan, found):
        head = ["defence", "strength", "loss", *ATTACKS]
        rows = [[name, how, _loss(name, row), *_cells(row.leaks)] for name, how, row in _rows(plan, results)]
        lines += [_heading(results, data, top), "", *table(head, rows), ""]
    return lines


def data_page(plan: Plan, found: Found, data: str) -> list[str]:
    """All strengths, and epochs before the last one, on one table."""
    lines = ["## Every strength", "", ABOUT_STRENGTHS, ""]
    for top in TOPS:
        lines += _strengths(plan, Results(plan, found, data, top), f"{data}; top: {top}")
    lines += ["## After fewer epochs", "", ABOUT_EPOCHS, ""]
    for top in TOPS:
        lines += _epochs(plan, Results(plan, found, data, top), f"{data}; top: {top}")
    return lines


def literal(plan: Plan, found: Found) -> list[str]:
    """The published forms."""
    rows = [
        [data, top, *cells]
        for data in plan.published_tables
        for top in TOPS
        for cells in _literal(plan, Results(plan, found, data, top))
    ]
    head = ["table", "top", "defence", "epochs", "loss of AUC", *LITERAL_ATTACKS]
    return ["## Word for word", "", ABOUT_LITERAL, "", *table(head, rows), ""]


def _all_results(plan: Plan, found: Found) -> list[tuple[str, str, Results]]:
    return [(data, top, Results(plan, found, data, top)) for data in plan.tables for top in TOPS]


def _paper() -> list[str]:
    rows = [
        [name, "–" if change is None else f"{change:+.1%}", f"{auc:.3f}", "–" if change is None else f"{0.620 - auc:.3f}"]
        for name, (change, auc) in paper.TABLE_4.items()
    ]
    return ["**The paper**", "", *table(["defence", "change of the leak by clusters", "AUC", "loss"], rows)]


def _rows(plan: Plan, results: Results) -> list[tuple[str, str, Row]]:
    """Defence, by which strength, and its row at equal loss; or at the strength that is nearest to it."""
    rows = [("none", "", Row("", 0.0, results.leaks(NONE)))]
    for name, strengths in plan.strengths.items():
        row = results.row_at_loss(strengths)
        if row is None:
            losses = [mean(results.loss(one)) for one in strengths]
            side = "costs less" if max(losses) < LOSS else "costs more"
            nearest = min(strengths, key=lambda one: abs(mean(results.loss(one)) - LOSS))
            row = Row(f"never: {side}; {key(nearest)}", mean(results.loss(nearest)), results.leaks(nearest))
        rows.append((name, row.how, row))
    return rows


def _heading(results: Results, data: str, top: str) -> str:
    where = f"{data}, {SHARES[data]:.0%} positives; top: {top}"
    return f"**{where}**: AUC {cell(results.auc(NONE))}, label party alone {cell(results.alone())}"


def _loss(name: str, row: Row) -> str:
    return "0" if name == "none" else f"{row.loss:+.3f}"


def _change(leaks: dict[str, float], results: Results) -> str:
    base = mean(results.leak(NONE, CLUSTERS))
    return f"{(leaks[CLUSTERS] - base) / base:+.1%}"


def _cells(leaks: dict[str, float]) -> list[str]:
    return [f"{value:.3f}" for value in leaks.values()]


def _strengths(plan: Plan, results: Results, heading: str) -> list[str]:
    rows = []
    for name, strengths in {"none": [NONE], **plan.strengths}.items():
        for one in strengths:
            worst, attack = results.worst(one)
            shown = [f"{mean(results.leak(one, other)):.3f}" for other in ATTACKS]
            rows.append(
                [name, key(one) if one else "", interval(results.loss(one)) if one else "0", f"{worst:.3f} {attack}", *shown]
            )
    return [f"**{heading}**", "", *table(["defence", "strength", "loss of AUC", "strongest", *ATTACKS], rows), ""]


def _epochs(plan: Plan, results: Results, heading: str) -> list[str]:
    rows = []
    for name, one in {"none": NONE, **plan.middle}.items():
        for epoch in plan.epochs[:-1]:
            shown = [f"{mean(results.leak(one, attack, epoch)):.3f}" for attack in ATTACKS]
            rows.append([f"{name} {key(one) if one else ''}".rstrip(), str(epoch), *shown])
    return [f"**{heading}**", "", *table(["defence", "epochs", *ATTACKS], rows), ""]


LITERAL_ATTACKS = ("norm", "direction", "residual", "mean_direction", "mean_residual")


def _literal(plan: Plan, results: Results) -> list[list[str]]:
    cells = []
    for epoch in (plan.epochs[0], plan.epochs[-1]):
        for one in (*PUBLISHED, *repaired(plan)):
            leaks = [f"{mean(results.leak(one, attack, epoch)):.3f}" for attack in LITERAL_ATTACKS]
            cells.append([one["name"], str(epoch), interval(results.loss(one)), *leaks])
    return cells


def repaired(plan: Plan) -> list[Defence]:
    """The product's own forms of the strengths of :data:`PUBLISHED`."""
    names = {one["name"].removesuffix("-literal"): {**one, "name": one["name"].removesuffix("-literal")} for one in PUBLISHED}
    return [one for name, wanted in names.items() for one in plan.strengths[name] if one == wanted]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Loss against the strongest attack by gradients: a column for each table, a row for each top."""
    columns = []
    for data in plan.tables:
        column = []
        for top in TOPS:
            results = Results(plan, found, data, top)
            curves = []
            for name, strengths in plan.strengths.items():
                points = sorted((mean(results.loss(one)), results.worst(one)[0], 0.0) for one in (NONE, *strengths))
                curves.append(Curve(name, points))
            column.append(Panel(f"{data}, top: {top}", "loss of AUC", curves))
        columns.append(column)
    return {PICTURE: drawing(columns)}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """What was expected before it was measured: by the paper, and by simulations of gradients on a line."""
    expected = []
    for data in plan.tables:
        for top in TOPS:
            results = Results(plan, found, data, top)
            expected += _expected(plan, results, f"`{data}`, top: {top}")
            if data in plan.published_tables and top == ONE_LAYER:
                expected += _expected_of_published(plan, results, f"`{data}`, top: {top}")
    return expected


def _expected(plan: Plan, results: Results, where: str) -> list[Expectation]:
    expected = [Expectation(f"{where}: AUC of direction without a defence", mean(results.leak(NONE, "direction")), 0.95)]
    for name in ("dp", "marvell", "mixpro"):
        one, (first, *_, last) = plan.middle[name], plan.epochs
        rise = mean(results.leak(one, "mean_direction", last)) - mean(results.leak(one, "mean_direction", first))
        what = f"{where}: mean_direction under {name} after {last} epochs − after {first}"
        expected.append(Expectation(what, rise, 0.05))
    dp, marvell = (results.row_at_loss(plan.strengths[name]) for name in ("dp", "marvell"))
    if dp and marvell:  # the order of the paper's table
        what = f"{where}: {CLUSTERS} under dp − under marvell at equal loss"
        expected.append(Expectation(what, dp.leaks[CLUSTERS] - marvell.leaks[CLUSTERS], 0.0))
    return expected


def _expected_of_published(plan: Plan, results: Results, where: str) -> list[Expectation]:
    expected = []
    for published, own, attack, epoch in zip(
        PUBLISHED, repaired(plan), ("norm", "residual"), (plan.epochs[0], plan.epochs[-1]), strict=True
    ):
        gap = mean(results.leak(published, attack, epoch)) - mean(results.leak(own, attack, epoch))
        what = f"{where}: {attack} under {published['name']} − under {own['name']}, epoch {epoch}"
        expected.append(Expectation(what, gap, 0.2))
    return expected


ABOUT_PICTURE = """\
For each table and each kind of top the picture shows how much AUC a defence costs. It shows how well the strongest of the ten
attacks by gradients then reads labels after ten epochs. The point at 0 is a training without a defence."""

ABOUT_ROW = """\
The paper's table has one figure of leakage and defences that cost about .018 AUC each. Here each defence is taken where it
costs .01 ± .003 of AUC: at the strength that does, or in a straight line between the two around it.

* *none* counts as strength 0 of `dp`, `isotropic` and `marvell`. `maxnorm` has no key, and no key of `mixpro` makes it vanish.
* Where no strength costs that, the row says so and shows the nearest.
* *change of `embeddings`* is the paper's ΔLeakAUC, (with − without) / without, of two clusters of embeddings with hard answers.
* All AUCs are folded: .5 is chance. Of the 40 to 200 positives of a table the noise of one AUC is .02 to .05. The strongest of
  twelve is a little above .5 by chance alone.
* Attacks that put gradients and embeddings together read more, and so do several trainings: [meters.md](meters.md)."""

ABOUT_STRENGTHS = """\
Loss of AUC against no defence, paired by seed, with its 95 % interval; the strongest attack by gradients; and all attacks after
the last of ten epochs."""

ABOUT_EPOCHS = """\
Attacks on what the peer has after 1 and 3 epochs of one training, each defence at the middle one of its strengths. After ten
epochs it has what the tables above show. The paper trains one epoch. `mean_…` are means over epochs of a row's gradients: noise
of mean zero vanishes from them."""

ABOUT_LITERAL = """\
MixPro and Marvell exactly as published, and the product's own of the same strengths, after one epoch and after all. With the
paper's top of one layer all gradients lie on one line. Published MixPro makes rows of one sign zero, which `norm` reads.
Published Marvell gives noise across the line to one class only, which `residual` reads."""
