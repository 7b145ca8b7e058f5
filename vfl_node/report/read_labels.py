"""The label meter on the page of an active party's report: how well its labels can be read from what a passive party has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vfl_node.privacy.labels.words import WORDS, describe_known
from vfl_node.roles import NUMBER_TASKS


@dataclass(frozen=True)
class LabelRow:
    """One attack in the table.

    Attributes:
        title: its name for people.
        reading: what it goes by.
        knows: what the peer is assumed to know already.
        first: AUC, folded, after the first epoch; None where it is not defined.
        last: after the last one; likewise.
        worst: the largest of all epochs; likewise.
        strongest: whether it is the one that tells most.
    """

    title: str
    reading: str
    knows: str
    first: float | None
    last: float | None
    worst: float | None
    strongest: bool


@dataclass(frozen=True)
class LabelWords:
    """All that the page says of labels.

    Attributes:
        rows: of each attack.
        figure: what the figures are, in a sentence.
        strongest: the largest AUC.
        limit: of this party's owner; None: there is none.
        defended: whether a defence changed gradients.
        budget: :class:`~vfl_node.training.split.section.LabelPrivacy`; None without one.
    """

    rows: tuple[LabelRow, ...]
    figure: str
    strongest: float
    limit: float | None
    defended: bool
    budget: Mapping[str, Any] | None


def label_audit(report: Mapping[str, Any]) -> LabelWords | None:
    """The label audit of a report as its JSON holds it; None where no label was judged."""
    training = report["training"]
    worst = training["label_audit"] if training else {}
    known = {name: value for name, value in worst.items() if value is not None}
    if not known:
        return None
    first, last = training["epochs"][0]["labels"], training["epochs"][-1]["labels"]
    strongest = max(known, key=known.__getitem__)
    section = training[training["algorithm"]]
    return LabelWords(
        rows=tuple(
            LabelRow(*WORDS[name], describe_known(name), first.get(name), last.get(name), worst[name], name == strongest)
            for name in WORDS
            if name in worst
        ),
        figure=_figure(report["job"]["spec"]["train"]),
        strongest=known[strongest],
        limit=training["max_label_auc"],
        defended=bool(section.get("defences")),
        budget=section.get("label_privacy"),
    )


def _figure(train: Mapping[str, Any]) -> str:
    if train["task"] in NUMBER_TASKS:
        return "A figure says of two rows how often the one with the larger number is told."
    if train["classes"] > 2:
        return "A figure is the mean AUC of one class against the others."
    return "A figure is an AUC."
