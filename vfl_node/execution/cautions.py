"""Warnings where a result would mislead: too few rows, rare positives, a column that gives the label away.

All of them are for the party that has the labels, in its log and its report. They are whole sentences with what to do, without
a label or any other cell. Nothing that is sent depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.label_like import label_like
from vfl_node.data.tables import Table
from vfl_node.execution.column_cautions import shorten
from vfl_node.job import Evaluate
from vfl_node.job.evaluate import LOWER_IS_BETTER

if TYPE_CHECKING:
    from vfl_node.training.evaluation import Confusion
    from vfl_node.training.section import JointAttack
    from vfl_node.training.summary import Summary

FEW_ROWS = 50
"""With fewer rows the accuracy of a model that is right in four rows of five may be off by .11 (its 95 % interval)."""

FEW_POSITIVES = 30
"""With fewer positives the standard error of an AUC of .8 exceeds .048 (Hanley and McNeil 1982)."""

NEARLY_PERFECT, FAR_FROM_IT = 0.995, 0.95
"""AUCs: with the federated model above the one and this party alone below the other, a column may follow from the outcome."""

TELLING = 0.6
"""AUC of the joint attack from which on an owner is advised to train otherwise."""

CHANCE = {"auc": 0.5, "lift": 1.0, "r2": 0.0, "d2": 0.0}
"""Metric, of which more is better → what a model has that knows nothing."""


def label_cautions(table: Table, classes: int) -> tuple[str, ...]:
    """What the labels themselves, and the columns beside them, give rise to.

    Args:
        table: this party's, with labels.
        classes: of the job.
    """
    said = []
    if table.positive_assumed:
        said.append(
            "The labels are 2 classes by name, and the positive one is the last in their order. To choose the other one set "
            "data.label.positive."
        )
    measure = "AUC" if classes == 2 else "accuracy"
    found = [
        f"Column {column.name!r} alone predicts the label almost perfectly ({measure} {column.score:.4f} on {column.rows:,} of "
        "your records). If it was recorded together with the label or after it, new records do not have it yet, and the model "
        f"is useless for them: leave it out (data.columns: {{{quote_key(column.name)}: ignore}})."
        for column in label_like(table, classes)
    ]
    return (*said, *shorten(found, "more columns alone predict the label almost perfectly"))


def membership_cautions(attack: JointAttack) -> tuple[str, ...]:
    """What the joint attack on this party's made-up rows gives rise to."""
    if not attack.value > TELLING:
        return ()
    pairs, how = round(100 * attack.value), "by an estimate " if attack.estimate else ""
    return (
        f"Another party can see {how}which of its records you lack: of a made-up and a real row it names the made-up one in "
        f"{pairs} of 100 pairs, as it does not fit that party's own columns of the same person. No strategy of train.missing "
        "prevents that. If it must stay hidden, train with train.algorithm: hidden. If it need not, align by psi: it tells the "
        "same openly, and no row is made up.",
    )


def row_cautions(labelled: int, evaluate: Evaluate) -> tuple[str, ...]:
    """What the number of rows gives rise to, before training.

    Args:
        labelled: rows with a label of this party that are trained or measured on.
        evaluate: the job's section.
    """
    measured = round(labelled * evaluate.test_fraction)
    trained = labelled - measured - round(labelled * evaluate.validation_fraction)
    said = []
    if trained < FEW_ROWS:
        said.append(
            f"There are about {trained:,} labelled rows to train on, fewer than {FEW_ROWS}: a model hardly learns anything "
            "general from them. Use more records."
        )
    if evaluate.test_fraction and measured < FEW_ROWS:
        said.append(
            f"About {measured:,} labelled rows are held out, fewer than {FEW_ROWS}: metrics measured on them may be far off. "
            "Use more records, a larger evaluate.test_fraction, or more evaluate.repeats."
        )
    return tuple(said)


def positive_cautions(positives: int, rows: int, *, about: str = "") -> tuple[str, ...]:
    """What rare positives give rise to.

    Args:
        positives: among the rows measured on.
        rows: measured on.
        about: ``About`` before measurement, when the numbers are expected ones.
    """
    if positives >= FEW_POSITIVES:
        return ()
    few = f"{about} {positives:,}".strip() if about or positives else "None"
    return (
        f"{few} of {rows:,} rows measured on {'is' if positives == 1 else 'are'} positive, fewer than {FEW_POSITIVES}: metrics "
        "depend on single rows. Use more records, a larger evaluate.test_fraction, or more evaluate.repeats.",
    )


def result_cautions(confusion: Confusion | None, accuracy: float | None) -> tuple[str, ...]:
    """What the result gives rise to; nothing where no confusion matrix is known.

    Args:
        confusion: of the federated model, first repeat.
        accuracy: of the same, the mean over repeats; None where it was not measured.
    """
    if confusion is None:
        return ()
    frequency = [sum(row) for row in confusion]
    rows = sum(frequency)
    said = positive_cautions(frequency[1], rows) if len(confusion) == 2 else ()
    if rows and accuracy is not None:
        said += _accuracy_cautions(accuracy, max(frequency) / rows, len(confusion))
    return said


def model_cautions(results: Summary, *, held_out: bool) -> tuple[str, ...]:
    """What the result gives rise to, beside that of this party alone and of chance.

    Args:
        results: at the party with the labels.
        held_out: whether the rows measured on are held out.
    """
    return (*_perfection_cautions(results, held_out=held_out), *_rival_cautions(results), *_chance_cautions(results))


def _perfection_cautions(results: Summary, *, held_out: bool) -> Iterator[str]:
    joint, alone = (model.metrics.get("auc") if model else None for model in (results, results.alone))
    if held_out and joint is not None and joint > NEARLY_PERFECT and (alone is None or alone < FAR_FROM_IT):
        beside = "this party's columns alone tell little" if alone is None else f"this party alone reaches {alone:.3f}"
        yield (
            f"AUC {joint:.4f} on held-out rows is nearly perfect, and {beside}. Ask the other party whether one of its columns "
            "is a consequence of the outcome, such as a code or a payment that follows it: new records do not have it yet, and "
            "the model is useless for them."
        )


def _rival_cautions(results: Summary) -> Iterator[str]:
    """Metrics that are worse than those of another model on the same rows, by an interval of the difference without zero."""
    rivals = {
        "this party alone": results.alone,
        "this party alone by aligned rows": results.aligned,
        "a boosted tree of this party alone": results.rival,
    }
    for called, rival in rivals.items():
        worse = [
            f"{name} (by {abs(gain['mean']):.3g})"
            for name, gain in (rival.gains if rival else {}).items()
            if (gain["low"] > 0 if name in LOWER_IS_BETTER else gain["high"] < 0)
        ]
        if worse:
            yield (
                f"The federated model is significantly worse than {called} in {', '.join(worse)}. Train it longer or "
                "otherwise, or do without the other party's columns."
            )


def _chance_cautions(results: Summary) -> Iterator[str]:
    for name, chance in CHANCE.items():
        interval = results.intervals.get(name)
        if interval and interval["high"] < chance:
            yield (
                f"The federated model is worse than chance in {name}: {interval['mean']:.3f}, with an interval from "
                f"{interval['low']:.3f} to {interval['high']:.3f} that lies below {chance:g}. It has learnt nothing that holds "
                "for other rows, or labels mean something else there."
            )


def _accuracy_cautions(accuracy: float, commonest: float, classes: int) -> tuple[str, ...]:
    if accuracy > commonest:
        return ()
    advice = "Judge the model by AUC or PR AUC instead (evaluate.metrics)"
    if classes == 2:
        advice += ", and set evaluate.threshold so that both classes are predicted"
    return (f"Accuracy {accuracy:.3f} is no better than always predicting the commonest class ({commonest:.3f}). {advice}.",)
