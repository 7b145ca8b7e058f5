"""The result on the page of a report: metrics with their intervals, the confusion matrix and the calibration plot.

Each function takes a report as its JSON holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from markupsafe import Markup

from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.job import Evaluate
from vfl_node.job.evaluate import LOWER_IS_BETTER, WITH_UNIT
from vfl_node.report import charts
from vfl_node.report.charts import CalibrationChart, Mark
from vfl_node.report.words import add_sign, quantity

Change = Literal["better", "worse", "unclear"]

Reading = tuple[str, str, float]
"""A metric: title, how to read it, largest value that has a meaning."""

METRICS = {
    "auc": ("AUC", "ranking; higher is better, 0.5 is chance", 1.0),
    "pr_auc": ("PR AUC", "average precision; higher is better, the share of positives is chance", 1.0),
    "ks": ("KS", "largest distance between the scores of the two classes; higher is better", 1.0),
    "lift": ("Lift", "positives among the top tenth of scores, over those among all; higher is better, 1 is chance", 10.0),
    "accuracy": ("Accuracy", "at threshold {threshold:g}; higher is better", 1.0),
    "f1": ("F1", "precision and recall at threshold {threshold:g}; higher is better", 1.0),
    "ace": ("ACE", "adaptive calibration error; lower is better", 1.0),
    "nll": ("NLL", "negative log-likelihood; lower is better", float("inf")),
    "rmse": ("RMSE", "root of the mean squared error, in the target's unit; lower is better", float("inf")),
    "mae": ("MAE", "mean absolute error, in the target's unit; lower is better", float("inf")),
    "r2": ("R²", "share of the target's variance that is explained; 1 is perfect, 0 as good as these rows' own mean", 1.0),
    "deviance": ("Deviance", "mean Poisson deviance, in the target's unit; lower is better", float("inf")),
    "d2": ("D²", "share of the deviance of these rows' constant rate that is explained; 1 is perfect, 0 as good as it", 1.0),
    "mse": ("MSE", "mean squared error, in the square of the target's unit; lower is better", float("inf")),
}
"""Metric → its reading, in the order of the page."""

MANY_CLASSES = {
    "auc": ("AUC", "mean over the classes, each against the rest; higher is better, 0.5 is chance", 1.0),
    "pr_auc": ("PR AUC", "average precision, mean over the classes, each against the rest; higher is better", 1.0),
    "accuracy": ("Accuracy", "the likeliest class is the right one; higher is better", 1.0),
    "f1": ("F1", "of the likeliest class, mean over the classes; higher is better", 1.0),
}
"""The same, where labels have more than two classes."""

MOST_CLASSES = 10
"""A confusion matrix of more classes is in the JSON only."""

METHODS = {
    "repeats": "over the repeated splits, corrected for their overlap",
    "delong": "over its rows, by DeLong's variance",
    "bootstrap": "over its rows, by a bootstrap",
    "noised": "over its rows and the noise in the sums that were opened",
}
"""Method of an interval → in words."""


TREE = "boosted tree"
ALIGNED = "alone, aligned rows"


def models(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Short name, style and metrics of each model that this party knows: the federated one, then those of one party alone."""
    known = (
        ("federated", "joint", report["metrics"]),
        ("alone", "alone", report["local_metrics"]),
        (ALIGNED, "second", report["local_aligned_metrics"]),
        (TREE, "first", report["boosted_tree_metrics"]),
    )
    return [(title, style, figures) for title, style, figures in known if figures]


CONSTANTS = {
    "classification": "The constant is a model that always says how frequent each class is among the labels trained on.",
    "regression": "The constant is a model that always says the mean of the targets trained on.",
    "poisson": "The constant is a model that always says the rate of the targets trained on, by exposure if there is one.",
}
"""Task → what the constant model is, with which some metrics are compared."""


CHANGES: Mapping[Change, str] = {"better": "better", "worse": "worse", "unclear": "no clear difference"}
"""How one model compares with another in a metric → in words."""


NO_WIDTH = 1e-12


def change_of(metric: str, low: float, high: float) -> Change:
    """How a model compares in ``metric``, by the ends of the 95 % interval of the difference.

    Without a width it is unclear: differences that are equal in few splits say nothing about others.
    """
    if low <= 0 <= high or high - low <= NO_WIDTH:
        return "unclear"
    return "better" if (low > 0) != (metric in LOWER_IS_BETTER) else "worse"


def format_value(value: float, name: str) -> str:
    """The value of metric ``name``: to three places, or to four digits where it has a unit."""
    return (quantity(value) if name in WITH_UNIT else f"{value:.3f}").replace("-", "−")


def format_interval(interval: Mapping[str, float], name: str) -> str:
    """The interval of metric ``name``, or of a difference."""
    low, high = (format_value(interval[end], name) for end in ("low", "high"))
    return f"{low} to {high}" if name in WITH_UNIT else f"{low}, {high}"


def format_difference(value: float, name: str) -> str:
    """A difference of two values of metric ``name``, with its sign."""
    return add_sign(value, format_value(abs(value), name))


def readings(report: dict[str, Any], classes: int) -> dict[str, Reading]:
    """:data:`METRICS` that were measured, as they are for this job."""
    threshold = Evaluate.model_validate(report["job"]["spec"]["evaluate"], context=LASTING_NAMES).threshold
    about, values = METRICS | (MANY_CLASSES if classes > 2 else {}), report["metrics"] or {}
    return {
        name: (title, reading.format(threshold=threshold), most)
        for name, (title, reading, most) in about.items()
        if values.get(name) is not None
    }


def methods(report: dict[str, Any], about: Mapping[str, Reading]) -> str:
    """How the intervals of the federated model's metrics were computed; empty where there are none."""
    intervals = (report["metrics"] or {}).get("intervals") or {}
    titles = {
        method: [about[name][0] for name in about if name in intervals and intervals[name]["method"] == method]
        for method in METHODS
    }
    used = [method for method in METHODS if titles[method]]
    if len(used) == 1:
        return METHODS[used[0]]
    return "; ".join(f"{', '.join(titles[method])} {METHODS[method]}" for method in used)


def name_models(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """As :func:`models`, with names that say whose model it is."""
    owner = report["parties"]["active"]
    titles = {"alone": f"{owner} alone", ALIGNED: f"{owner} {ALIGNED}", TREE: f"{TREE} of {owner} alone"}
    return [(titles.get(title, title), style, figures) for title, style, figures in models(report)]


def confusions(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Whose model, and its confusion matrix; none of very many classes."""
    return [
        (title.replace("federated", "Federated"), figures["confusion"])
        for title, _, figures in name_models(report)
        if figures["confusion"] and figures["rows"] and len(figures["confusion"]["counts"]) <= MOST_CLASSES
    ]


def _changes(gains: Mapping[str, Mapping[str, float]]) -> dict[str, Change]:
    return {name: change_of(name, gain["low"], gain["high"]) for name, gain in gains.items()}


def rivals(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Each model of the active party alone: ``title``, ``style``, ``metrics``, ``gains`` over it, and in words ``changes``."""
    held_out = report["metrics"] and report["metrics"]["held_out"]
    gains = {"alone": report["gains"], "second": report["local_aligned_gains"], "first": report["boosted_tree_gains"]}
    return [
        {
            "title": title,
            "style": style,
            "metrics": figures,
            "gains": gains[style] or {},
            "changes": _changes(gains[style] or {}) if held_out else {},
        }
        for title, style, figures in name_models(report)
        if style in gains
    ]


def comparisons(report: dict[str, Any]) -> dict[str, Markup]:
    """Metric → the value of each model on one axis, where there is something to compare."""
    drawn = {}
    for name, (title, _, most) in METRICS.items():
        marks = [_mark(label, figures, name, style) for label, style, figures in models(report) if figures[name] is not None]
        if len(marks) > 1 or any(mark.low < mark.high for mark in marks):
            drawn[name] = charts.dot_chart(f"metric-{name}", title, marks, most=most, figure=partial(format_value, name=name))
    return drawn


def _mark(label: str, figures: dict[str, Any], name: str, style: str) -> Mark:
    value, interval = figures[name], (figures["intervals"] or {}).get(name)
    return Mark(label, value, interval["low"] if interval else value, interval["high"] if interval else value, style)


def agreement(report: dict[str, Any]) -> dict[str, Any] | None:
    """How predictions of each model agree with what was true: title, how to read it, drawing; None where nothing is drawn.

    Probabilities against the share of positives (calibration), or predicted numbers against actual ones.
    """
    numbers = any(figures["predicted_actual"] for _, _, figures in models(report))
    points = "predicted_actual" if numbers else "calibration"
    curves = [
        CalibrationChart(title, figures[points], style) for title, style, figures in name_models(report) if figures[points]
    ]
    if not curves:
        return None
    if numbers:
        drawing = charts.agreement_chart("agreement", "Predicted and actual", curves, figure=quantity)
        return {
            "title": "Predicted and actual",
            "reading": "On the diagonal predictions are right on average.",
            "drawing": drawing,
        }
    drawing = charts.calibration_chart("calibration", "Calibration", curves)
    return {"title": "Calibration", "reading": "On the diagonal predictions mean what they say.", "drawing": drawing}
