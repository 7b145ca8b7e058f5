"""The feature audit on the page of a passive party's report: how well its columns were rebuilt from what it sent.

Names of columns are their owner's, and this page is for the owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfl_node.report.results import format_value
from vfl_node.report.words import METRICS_OF_COLUMNS

MOST_COLUMNS = 10
"""Columns on the page: so many that a defence hides and as many others, each those rebuilt best compared with a constant."""

ATTACKS = {
    "static": ("one epoch", "fresh decoders learn from the embeddings of one epoch"),
    "stacked": ("epochs together", "fresh decoders learn from those of several epochs"),
    "adaptive": ("all along", "one decoder learns in every step of the training"),
    "held_out": ("held out", "fresh decoders learn from rows that all meet the same weights"),
    "projections": ("projections", "fresh decoders learn from what was sent before the training with labels"),
}
"""Attack of the feature audit → head of its column in the table, and what it does."""

SENTENCES = {
    "accuracy": "can be rebuilt with an accuracy of {worst} from what {party} sent; always guessing the commonest value "
    "gives {constant}",
    "auc": "can be told with an AUC of {worst} from what {party} sent; by always guessing the same it is {constant}",
    "r2": "can be rebuilt with an R² of {worst} from what {party} sent; always guessing the mean gives {constant}",
}
"""Metric of a column → what was found, after the column's name."""


@dataclass(frozen=True)
class ColumnRow:
    """One column in the table.

    Attributes:
        name: of the column.
        sentence: what was found, after its name.
        metric: what the figures are.
        constant: what always guessing the same gives; None where it is not defined.
        successes: of each attack in the table; likewise.
        worst: which of these counts; None where none does.
        epoch: in which this was so; likewise.
        judged: rows behind it.
        hidden: whether a defence names the column.
    """

    name: str
    sentence: str
    metric: str
    constant: float | None
    successes: tuple[float | None, ...]
    worst: int | None
    epoch: int | None
    judged: int
    hidden: bool


@dataclass(frozen=True)
class FeatureAuditWords:
    """All that the page says of the columns of a passive party and what it sends.

    Attributes:
        rows: of the columns on the page, those first that a defence hides.
        attacks: of each attack in the table the head of its column, and what it does.
        columns: how many were tried.
        known: of how many rows the peer is assumed to know the columns, at most.
        limit: of this party's owner; None: there is none.
        defended: whether a defence names columns that it hides.
    """

    rows: tuple[ColumnRow, ...]
    attacks: tuple[tuple[str, str], ...]
    columns: int
    known: int
    limit: float | None
    defended: bool


def feature_audit(report: Mapping[str, Any]) -> FeatureAuditWords | None:
    """The feature audit of a report as its JSON holds it; None where no column was tried and none is hidden by a defence."""
    training = report["training"]
    if not training or report["role"] != "passive":
        return None
    found = training["feature_audit"] or {}
    defences = training[training["algorithm"]].get("defences", ())
    defended = any("columns" in defence for defence in defences)
    if not (found or defended):
        return None
    bare = _bare(list(found), defences)
    worst = sorted(found, key=lambda name: (-_gain(found[name]), name))
    hidden, others = ([name for name in worst if (name in bare) == known] for known in (False, True))
    projected = any(
        figures.get("projections") is not None for figures in found.values()
    )  # an earlier version has no such figure
    attacks = [name for name in ATTACKS if name != "projections" or projected]
    return FeatureAuditWords(
        rows=tuple(
            _row(name, found[name], report["party"], attacks, hidden=name not in bare)
            for name in (*hidden[:MOST_COLUMNS], *others[:MOST_COLUMNS])
        ),
        attacks=tuple(ATTACKS[name] for name in attacks),
        columns=len(found),
        known=max((figures["known"] for figures in found.values()), default=0),
        limit=training["max_feature_gain"],
        defended=defended,
    )


def _bare(columns: Sequence[str], defences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those of ``columns`` that no defence names."""
    hidden: set[str] = set()
    for defence in defences:
        names = defence.get("columns", ())
        hidden |= set(columns if names == "all" else names)
    return [name for name in columns if name not in hidden]


def _gain(figures: Mapping[str, Any]) -> float:
    """How much better than a constant; columns of which nothing is known are last."""
    return float("-inf") if figures["worst"] is None else figures["worst"] - (figures["constant"] or 0.0)


def _row(name: str, figures: Mapping[str, Any], party: str, attacks: Sequence[str], *, hidden: bool) -> ColumnRow:
    worst, constant = figures["worst"], figures["constant"]
    sentence = "was not judged: there were too few rows, or one value only"
    if worst is not None and constant is not None:
        both = {"worst": format_value(worst, figures["metric"]), "constant": format_value(constant, figures["metric"])}
        sentence = SENTENCES[figures["metric"]].format(party=party, **both)
    return ColumnRow(
        name=name,
        sentence=sentence,
        metric=METRICS_OF_COLUMNS[figures["metric"]],
        constant=constant,
        successes=tuple(figures[attack] for attack in attacks),
        worst=None if figures["attack"] is None else attacks.index(figures["attack"]),
        epoch=figures["epoch"],
        judged=figures["judged"],
        hidden=hidden,
    )
