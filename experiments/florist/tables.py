"""What is made of many trials: the paper's tables and figure, and our own, each one entry of :data:`OUTPUTS`.

A line of a table and a curve of a figure are a :class:`Way` to train and to read the result; an
output lists the ways it needs, and is written from their results. All values are kept by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.florist import paper
from experiments.florist.experiment import Trial
from experiments.florist.figures import Curve, Panel, drawing
from vfl_node.privacy.attacks import ATTACKS

Floats = NDArray[np.float64]

HALF = 0.5
GAUSSIAN_TOO = (0.25, 0.75)
"""Ratios at which Gaussian embeddings are attacked beside one half, where the groups are of equal size."""
SEEN = (0.25, 0.5, 0.95)
"""Ratios of which calibration is tabled."""

RARE = "talkingdata"
PACES = ((0.01, 3), (0.003, 10), (0.001, 20))
"""Learning rates and epochs of which the shift in training is tried where positives are rare."""


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        names: of the records.
        seeds: trials of each kind.
        at_active: how many columns the active party has.
        small: seconds instead of half an hour, for a first look.
    """

    names: tuple[str, ...]
    seeds: int = 5
    at_active: int = 0
    small: bool = False

    @property
    def ratios(self) -> tuple[float, ...]:
        """α and β where they are equal."""
        return SEEN if self.small else tuple(paper.CHANGE)

    @property
    def one_sided(self) -> tuple[float, ...]:
        """α or β where the other one is 0."""
        return SEEN if self.small else (0.1, 0.25, 0.5, 0.75, 0.95)

    @property
    def rows(self) -> int:
        """Trained on at most; 0: all."""
        return 1000 if self.small else 0

    @property
    def draws(self) -> tuple[int, ...]:
        """R."""
        return (1, 3, 10) if self.small else tuple(paper.DRAWS)

    @property
    def transcript(self) -> dict[str, Any]:
        """The trials of which all attacks are run: fewer rows and more epochs, so that every pair of rows can be compared."""
        epochs = (1, 3) if self.small else (1, 3, 10)
        return {"rows": self.rows or 4000, "epochs": epochs[-1], "attacked": epochs, "attacks": tuple(ATTACKS)}


@dataclass(frozen=True)
class Way:
    """A training and how its result is read: ``changes`` to a :class:`Trial`, and one of its readings."""

    label: str
    changes: Mapping[str, Any]
    reading: str = "plain"


def labels_at(beta: float) -> list[Way]:
    """The label strategies, all columns real."""
    attacked = {"beta": beta} | ({"attacked": (3,)} if beta == HALF else {})
    majority = [Way("majority", attacked), Way("majority-tr", attacked | {"calibration": "train"})]
    others = [Way(name, attacked | {"labels": name}) for name in ("minority", "random-pos", "random-pred", "neighbors")]
    return [*majority, Way("majority-te", attacked, "te"), *others]


def features_at(alpha: float) -> list[Way]:
    """The feature strategies, all labels real."""
    attacked = {"alpha": alpha} | ({"attacked": (3,)} if alpha in (HALF, *GAUSSIAN_TOO) else {})
    embeddings = [Way(name, attacked | {"features": name}) for name in ("gaussian", "random")]
    sampling = [Way("sampling", attacked), Way("sampling-tr", attacked | {"calibration": "train"})]
    return [*embeddings, *sampling, Way("sampling-te", attacked, "te")]


def ways_at(ratio: float) -> list[Way]:
    """FLORIST, without and with the shift for features; the paper does not say which of the two shifts it has."""
    each = {"alpha": ratio, "beta": ratio}
    trained = Way("FLORIST-tr", each | {"calibration": "train", "watched": True})
    return [Way("FLORIST-vanilla", each, "te-labels"), trained, Way("FLORIST-te", each, "te")]


def partial_at(alpha: float, beta: float) -> Way:
    """The baseline that trains on the rows real on both sides."""
    return Way("baseline-partial", {"alpha": alpha, "beta": beta, "real_only": True})


FULL = Way("baseline-full", {})


def draws_of(count: int) -> Way:
    """random-pred with the mean of several draws as the target."""
    drawn = {} if count == 1 else {"draws": count}
    return Way(f"{count}", {"beta": HALF, "attacked": (3,), "labels": "random-pred"} | drawn)


def label_transcripts(plan: Plan) -> list[Way]:
    """Every label strategy, to be attacked."""
    chosen = [("majority", 1), ("majority-tr", 1), ("minority", 1), ("random-pos", 1), ("random-pred", 1)]
    labels = [
        Way(name, plan.transcript | {"beta": HALF, "labels": name.removesuffix("-tr"), "draws": draws})
        for name, draws in (*chosen, ("random-pred", 10), ("neighbors", 1))
    ]
    labels[1].changes["calibration"] = "train"
    labels[5] = Way("random-pred, R = 10", labels[5].changes)
    return labels


def feature_transcripts(plan: Plan) -> list[Way]:
    """Every feature strategy, to be attacked."""
    made = ("sampling", "smoothed", "naive", "gaussian", "random")
    return [Way(name, plan.transcript | {"alpha": HALF, "features": name}) for name in made]


def joint_ways(plan: Plan) -> list[Way]:
    """Strategies of which both parties run the joint attack, each with half of the columns."""
    shares = {"alpha": 0.3, "beta": 0.2, "rows": plan.rows or 6000, "epochs": 4, "joint": True}
    attacked = shares | {"attacked": (4,), "attacks": tuple(ATTACKS)}
    made = [Way(name, attacked | {"features": name}) for name in ("sampling", "smoothed", "naive", "random")]
    labelled = [
        Way(f"smoothed, {name}", attacked | {"features": "smoothed", "labels": name}) for name in ("random-pred", "neighbors")
    ]
    return [*made, *labelled]


class Results:
    """The outcomes of all trials of a plan.

    Args:
        plan: whose.
        outcomes: name of a trial → its outcome.
    """

    def __init__(self, plan: Plan, outcomes: Mapping[str, Mapping[str, Any]]) -> None:
        self.plan, self._outcomes = plan, outcomes

    def outcomes(self, way: Way, data: str) -> list[Mapping[str, Any]]:
        """The outcome for every seed."""
        return [self._outcomes[trial.name] for trial in trials(self.plan, [way], data)]

    def test(self, way: Way, data: str, metric: str) -> Floats:
        """A metric on the test rows, float64[seeds]."""
        return np.array([outcome["test"][way.reading][metric] for outcome in self.outcomes(way, data)], np.float64)

    def attack(self, way: Way, data: str, name: str = "spectral", stage: int = -1) -> Floats:
        """An attack's AUC, float64[seeds]; NaN where it is not defined."""
        return np.array([outcome["attacks"][name][stage] for outcome in self.outcomes(way, data)], np.float64)

    def joint(self, way: Way, data: str, attacker: str) -> Floats:
        """AUC of the joint attack by one party, float64[seeds]; NaN where it is not defined."""
        return np.array([outcome["joint"][attacker] for outcome in self.outcomes(way, data)], np.float64)

    def equal_weights(self, way: Way, data: str, name: str) -> Floats | None:
        """An attack's AUC on all rows under the last weights, float64[seeds]; None where it was not run."""
        found = [outcome.get("equal weights", {}).get(name) for outcome in self.outcomes(way, data)]
        return None if None in found else np.array(found, np.float64)


def trials(plan: Plan, ways: Sequence[Way], *names: str) -> list[Trial]:
    """What has to be trained, for every seed."""
    return [
        Trial(data, seed, **{"rows": plan.rows, "at_active": plan.at_active} | dict(way.changes))
        for data in names or plan.names
        for way in ways
        for seed in range(plan.seeds)
    ]


@dataclass
class Written:
    """An output: a table in Markdown, its values by seed for JSON, and drawings by name."""

    lines: list[str]
    values: dict[str, Any] = field(default_factory=dict)
    drawings: dict[str, str] = field(default_factory=dict)

    def row(self, first: str, *cells: str) -> None:
        """Add a line to the table."""
        self.lines.append(f"| {first} | {' | '.join(cells)} |")

    def keep(self, values: Floats, *path: str) -> Floats:
        """``values`` themselves, kept for JSON."""
        place = self.values
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = [None if np.isnan(value) else round(float(value), 6) for value in values]
        return values


def begin(first: str, *heads: str) -> Written:
    """An empty table."""
    return Written([f"| {first} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"])


def cell(values: Floats, digits: int = 3, scale: float = 1.0) -> str:
    """Mean ± standard deviation over seeds."""
    defined = values[~np.isnan(values)] * scale
    if not len(defined):
        return "–"
    spread = f" ± {defined.std(ddof=1):.{digits}f}" if len(defined) > 1 else ""
    return f"{defined.mean():.{digits}f}{spread}"


def _published(values: Sequence[float] | None) -> list[str]:
    return [f"{value:.3f}" for value in values] if values else ["–"] * len(paper.DATA)


def _attack_table(results: Results, first: str, lines: Iterable[tuple[Way, str, Sequence[float] | None]]) -> Written:
    """Lines: (way, its label, the paper's numbers). In brackets the AUC with real rows as the positive class."""
    written = begin(first, *(f"paper: {name}" for name in paper.DATA), *(f"{data} (1 − AUC)" for data in results.plan.names))
    for way, label, published in lines:
        found = [written.keep(results.attack(way, data), label, data) for data in results.plan.names]
        written.row(label, *_published(published), *(f"{cell(values)} ({1 - values.mean():.3f})" for values in found))
    return written


def table_1(results: Results) -> Written:
    """Attack AUC of label strategies, β = .5."""
    return _attack_table(results, "labels", ((way, way.label, paper.LABELS[way.label]) for way in labels_at(HALF)))


def table_2(results: Results) -> Written:
    """Attack AUC of feature strategies, α = .5; and of Gaussian embeddings where the groups are not of equal size."""
    lines = [(way, way.label, paper.FEATURES[way.label]) for way in features_at(HALF)]
    more = [(features_at(alpha)[0], f"gaussian, α = {alpha:g}", None) for alpha in GAUSSIAN_TOO]
    return _attack_table(results, "features", [*lines, *more])


def table_3(results: Results) -> Written:
    """Change of the AUC against baseline-partial in points, and relative to it in per cent; paired by seed."""
    published = [f"paper: {name}, %" for name in paper.DATA]
    written = begin("α = β", *published, *(f"{data}: {suffix}" for data in results.plan.names for suffix in ("-tr", "-te")))
    for ratio in results.plan.ratios:
        cells = []
        for data in results.plan.names:
            partial = results.test(partial_at(ratio, ratio), data, "auc")
            for way in ways_at(ratio)[1:]:
                change = written.keep(results.test(way, data, "auc") - partial, f"{ratio:g}", data, way.label)
                cells.append(f"{cell(change, 2, 100)} ({100 * (change / partial).mean():.2f} %)")
        written.row(f"{ratio:g}", *(f"{value:.2f}" for value in paper.CHANGE[ratio]), *cells)
    return written


def table_5(results: Results) -> Written:
    """random-pred by the number of draws: test AUC and attack AUC, β = .5."""
    heads = [f"{data}: {figure}" for data in results.plan.names for figure in ("AUC", "attack")]
    written = begin("R", "paper, Avazu: AUC", "attack", *heads)
    for count in results.plan.draws:
        way, cells = draws_of(count), []
        for data in results.plan.names:
            cells.append(cell(written.keep(results.test(way, data, "auc"), f"{count}", data, "auc")))
            cells.append(cell(written.keep(results.attack(way, data), f"{count}", data, "attack")))
        written.row(f"{count}", *(f"{value:.3f}" for value in paper.DRAWS[count]), *cells)
    return written


def calibration_table(results: Results) -> Written:
    """ACE on the test rows, by what is made up, and the AUC in brackets."""
    written = begin("", *results.plan.names)

    def add(label: str, way: Way) -> None:
        cells = []
        for data in results.plan.names:
            ace, auc = (written.keep(results.test(way, data, name), label, data, name) for name in ("ace", "auc"))
            cells.append(f"{cell(ace)} ({auc.mean():.3f})")
        written.row(label, *cells)

    add(FULL.label, FULL)
    for ratio in SEEN:
        for way in _labels_seen(ratio):
            add(f"β = {ratio:g}: {way.label}", way)
    for ratio in SEEN:
        for way in _features_seen(ratio):
            add(f"α = {ratio:g}: {way.label}", way)
    for ratio in SEEN:
        for way in _ways_seen(ratio):
            add(f"α = β = {ratio:g}: {way.label}", way)
    return written


def paced(rate: float, epochs: int) -> list[Way]:
    """Both baselines and FLORIST at another pace, α = β = .25."""
    pace = {"learning_rate": rate, "epochs": epochs}
    ways = [FULL, partial_at(0.25, 0.25), *(way for way in ways_at(0.25) if way.label != "FLORIST-vanilla")]
    return [Way(way.label, {**way.changes, **pace}, way.reading) for way in ways]


def rare_table(results: Results) -> Written:
    """Test AUC where positives are rare, by learning rate, α = β = .25."""
    data = RARE if RARE in results.plan.names else results.plan.names[0]
    written = begin(f"{data}: learning rate, epochs", *(way.label for way in paced(*PACES[0])))
    for pace in PACES:
        label = "{:g}, {}".format(*pace)
        written.row(label, *(cell(written.keep(results.test(way, data, "auc"), label, way.label)) for way in paced(*pace)))
    return written


def label_attacks(results: Results) -> Written:
    """Every label strategy under every attack, after some epochs."""
    return _attacked(results, label_transcripts(results.plan))


def feature_attacks(results: Results) -> Written:
    """Every feature strategy under every attack, after some epochs, and with all rows under the last weights."""
    return _attacked(results, feature_transcripts(results.plan))


def joint_attacks(results: Results) -> Written:
    """The joint attack of both parties, beside the strongest other one on embeddings."""
    heads = [f"{data}: {figure}" for data in results.plan.names for figure in ("joint, active", "joint, passive", "others")]
    written = begin("", *heads)
    for way in joint_ways(results.plan):
        cells = []
        for data in results.plan.names:
            found = {attacker: results.joint(way, data, attacker) for attacker in ("active", "passive")}
            cells += [cell(written.keep(values, data, way.label, attacker), 2) for attacker, values in found.items()]
            others = {name: float(results.attack(way, data, name).mean()) for name in ATTACKS}
            strongest = max((name for name in others if not np.isnan(others[name])), key=lambda name: abs(others[name] - 0.5))
            written.keep(results.attack(way, data, strongest), data, way.label, strongest)
            cells.append(f"{others[strongest]:.2f}, {strongest}")
        written.row(way.label, *cells)
    return written


def _attacked(results: Results, ways: Sequence[Way]) -> Written:
    stages = results.plan.transcript["attacked"]
    written = begin(f"after {', '.join(map(str, stages))} epochs", *ATTACKS, "furthest from .5", "test AUC")
    for data in results.plan.names:
        written.row(f"**{data}**", *[""] * (2 + len(list(ATTACKS))))
        for way in ways:
            cells, distances = [], []
            for name in ATTACKS:
                found = [
                    written.keep(results.attack(way, data, name, stage), data, way.label, name, f"{epochs}")
                    for stage, epochs in enumerate(stages)
                ]
                equal = results.equal_weights(way, data, name)
                if equal is not None:
                    found.append(written.keep(equal, data, way.label, name, "equal weights"))
                means = [float(values.mean()) for values in found]
                told = ["–" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
                cells.append(" ".join(told[: len(stages)]) + "".join(f"; {text}" for text in told[len(stages) :]))
                distances += [(abs(mean - 0.5), mean, name) for mean in means[len(stages) - 1 :]]
            _, value, name = max(distances)
            test = written.keep(results.test(way, data, "auc"), data, way.label, "test AUC")
            written.row(way.label, *cells, f"{value:.2f}, {name}", cell(test))
    return written


def figure_2(results: Results) -> Written:
    """Panels a to f for each table: AUC and ACE by what share is synthetic."""
    written, plan = Written([]), results.plan
    kinds: list[tuple[str, str, dict[float, list[Way]]]] = [
        ("ad", "synthetic label ratio β", {at: [*labels_at(at), partial_at(0.0, at), FULL] for at in plan.one_sided}),
        ("be", "synthetic feature ratio α", {at: [*features_at(at), partial_at(at, 0.0), FULL] for at in plan.one_sided}),
        ("cf", "synthetic ratio per party α = β", {at: [*ways_at(at), partial_at(at, at), FULL] for at in plan.ratios}),
    ]
    for data in plan.names:
        columns = []
        for letters, x_label, ways in kinds:
            column = []
            for letter, metric in zip(letters, ("auc", "ace"), strict=True):
                found: dict[str, list[tuple[float, float, float]]] = {}
                for ratio, way in ((ratio, way) for ratio, some in ways.items() for way in some):
                    values = written.keep(results.test(way, data, metric), data, letter, way.label, f"{ratio:g}")
                    spread = 0.0 if way is FULL else float(values.std())
                    found.setdefault(way.label, []).append((ratio, float(values.mean()), spread))
                curves = [Curve(label, points, label.startswith("baseline")) for label, points in found.items()]
                column.append(Panel(f"({letter}) test {metric.upper()}", x_label, curves, limits=(0.0, 1.0)))
            columns.append(column)
        written.drawings[data] = drawing(columns)
    return written


def convergence(results: Results) -> Written:
    """Panels h to j for each table: losses and AUC of FLORIST-tr by step."""
    written = Written([])
    ratios = [ratio for ratio in results.plan.ratios if ratio >= 0.25]
    for data in results.plan.names:
        curves: dict[int, list[Curve]] = {1: [], 2: [], 3: []}
        for ratio in ratios:
            runs = np.array([outcome["curve"] for outcome in results.outcomes(ways_at(ratio)[1], data)], np.float64)
            written.values.setdefault(data, {})[f"{ratio:g}"] = runs.mean(axis=0).round(6).tolist()
            for column, drawn in curves.items():
                points = [(step, mean, 0.0) for step, mean in zip(runs[0, :, 0], runs[:, :, column].mean(axis=0), strict=True)]
                drawn.append(Curve(f"α = β = {ratio:g}", points))
        titles = ("(h) training loss, synthetic labels taken as true", "(i) test loss", "(j) test AUC")
        panels = [[Panel(title, "step", curve)] for title, curve in zip(titles, curves.values(), strict=True)]
        written.drawings[data] = drawing(panels)
    return written


@dataclass(frozen=True)
class Output:
    """One table or figure: which ways it needs, and how it is written; ``only``: the records it is about, if they are there."""

    ways: Callable[[Plan], Sequence[Way]]
    write: Callable[[Results], Written]
    only: str = ""

    def trials(self, plan: Plan) -> list[Trial]:
        """What it needs."""
        return trials(plan, self.ways(plan), *([self.only] if self.only in plan.names else []))


def _labels_seen(ratio: float) -> list[Way]:
    return [partial_at(0.0, ratio), *(way for way in labels_at(ratio) if way.label.startswith("majority"))]


def _features_seen(ratio: float) -> list[Way]:
    return [partial_at(ratio, 0.0), *(way for way in features_at(ratio) if way.label.startswith("sampling"))]


def _ways_seen(ratio: float) -> list[Way]:
    return [partial_at(ratio, ratio), *ways_at(ratio)]


def _list_ratios(plan: Plan) -> list[Way]:
    ways = [FULL]
    for ratio in plan.one_sided:
        ways += [*labels_at(ratio), partial_at(0.0, ratio), *features_at(ratio), partial_at(ratio, 0.0)]
    for ratio in plan.ratios:
        ways += _ways_seen(ratio)
    return ways


def _seen(plan: Plan) -> list[Way]:
    return [FULL, *(way for ratio in SEEN for seen in (_labels_seen, _features_seen, _ways_seen) for way in seen(ratio))]


OUTPUTS: dict[str, Output] = {
    "table-1": Output(lambda plan: labels_at(HALF), table_1),
    "table-2": Output(lambda plan: [*features_at(HALF), *(features_at(alpha)[0] for alpha in GAUSSIAN_TOO)], table_2),
    "table-3": Output(lambda plan: [way for ratio in plan.ratios for way in _ways_seen(ratio)], table_3),
    "table-5": Output(lambda plan: [draws_of(count) for count in plan.draws], table_5),
    "calibration": Output(_seen, calibration_table),
    "rare": Output(lambda plan: [way for pace in PACES for way in paced(*pace)], rare_table, only=RARE),
    "label-attacks": Output(label_transcripts, label_attacks),
    "feature-attacks": Output(feature_transcripts, feature_attacks),
    "joint": Output(joint_ways, joint_attacks),
    "figure-2": Output(_list_ratios, figure_2),
    "convergence": Output(lambda plan: [ways_at(ratio)[1] for ratio in plan.ratios if ratio >= 0.25], convergence),
}
"""Name on the command line → output. Tables 1, 2 and 3 stand for the paper's 6, 7 and 8, too."""
