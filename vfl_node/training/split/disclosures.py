"""What each party learns by split training, in words for the report; see docs/training.md and docs/privacy.md."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.job import Evaluate
from vfl_node.ledger import Disclosure
from vfl_node.privacy.defences.spec import DefenceParams, Direction
from vfl_node.trainers import Task
from vfl_node.training.split import matched
from vfl_node.training.split.config import Train


def active_learns(
    peer: str,
    rows: tuple[int, int],
    lacks: int | None,
    train: Train,
    evaluate: Evaluate,
    training: int = 1,
    defences: Sequence[DefenceParams] = (),
) -> tuple[Disclosure, ...]:
    """What the active party learns from the passive party ``peer`` by training.

    Args:
        peer: its name.
        rows: shared rows trained on and held out in each repeat.
        lacks: how many of the shared rows ``peer`` does not own; None if that is hidden.
        train: the job's section.
        evaluate: the job's section.
        training: which training over these records it is, from 1.
        defences: of ``peer``, in its own report; none in another party's, which does not know them.
    """
    trained, held_out = rows
    embeddings = Disclosure(
        "embeddings",
        evaluate.repeats * (train.epochs * trained + held_out),
        f"from {peer} an embedding of each shared row, anew in each of {train.epochs} epochs or for evaluation"
        f"{f', {evaluate.repeats} times over' if evaluate.repeats > 1 else ''}: values of {peer}'s columns can be inferred "
        f"from them in part (see docs/privacy.md){_defended(defences, 'embeddings')}",
    )
    counts = matched.active_learns(peer, held_out) if evaluate.matched else ()
    if lacks == 0:
        return (embeddings, *counts)
    return (
        embeddings,
        *counts,
        Disclosure(
            "membership",
            lacks,
            f"which of its own records {peer} lacks can be inferred from the embeddings, "
            f"{train.missing.feature_strategy.learnt()} (see docs/privacy.md){_compared(training)}",
        ),
    )


def passive_learns(
    peer: str,
    rows: tuple[int, int],
    lacks: int | None,
    train: Train,
    evaluate: Evaluate,
    training: int = 1,
    defences: Sequence[DefenceParams] = (),
) -> tuple[Disclosure, ...]:
    """What the passive party learns from the active party ``peer`` by training; args as :func:`active_learns`."""
    labels = "of every row trained on" if lacks == 0 else "used for each, real or synthetic,"
    gradients = Disclosure(
        "gradients",
        evaluate.repeats * train.epochs * rows[0],
        f"from {peer} a gradient for each row of every batch: {_readable(labels, peer, defences, train.task)} (see "
        f"docs/privacy.md)"
        f"{_defended(defences, 'gradients')}",
    )
    figures = Disclosure("figures", 0, f"from {peer} neither loss nor metrics")
    if evaluate.share_with_passive:
        each = ("loss", "AUC") if "auc" in evaluate.metrics else ("loss",)
        shared = f"{' and '.join(each)} of each epoch and the metrics at the end, as the job says{_spread(train.task)}"
        figures = Disclosure("figures", train.epochs * len(each) + len(evaluate.metrics), f"from {peer} {shared}")
    counts = matched.passive_learns(peer) if evaluate.matched else ()
    if lacks == 0:
        return (gradients, figures, *counts)
    strategy = train.missing.label_strategy
    membership = f"{strategy.learnt(peer)} (see docs/privacy.md){_compared(training, drawn=strategy.redrawn)}"
    return (gradients, Disclosure("membership", lacks, membership), figures, *counts)


def _spread(task: Task) -> str:
    """What metrics of numbers tell besides."""
    return "; from R² and an error in the target's unit follows how far the targets spread" if task == "regression" else ""


def _readable(labels: str, peer: str, defences: Sequence[DefenceParams], task: Task) -> str:
    """How well labels can be read from gradients of ``peer``."""
    if task == "regression":
        unless = f"how well depends on {peer}'s defences" if defences else f"unless {peer} has a defence, almost surely"
        return (
            f"the residual {labels} can be read from them, the prediction minus the target, but for a scale, {unless}; from "
            "residuals over the epochs the order of the targets and their distances follow roughly, and neither mean nor unit"
        )
    if defences:
        return f"how well the label {labels} can be read from them depends on {peer}'s defences"
    return f"unless {peer} has a defence, the label {labels} can be read from the gradients almost surely"


def _defended(defences: Sequence[DefenceParams], direction: Direction) -> str:
    """What the sender's defences do."""
    return "".join(f"; before they are sent, {params.words(direction)}" for params in defences)


def _compared(training: int, *, drawn: bool = True) -> str:
    """What comes on top from the second training over the same records on; ``drawn``: what is seen of a row is drawn anew."""
    if training == 1:
        return ""
    what = (
        "synthetic rows were drawn again, and comparing trainings tells which they are"
        if drawn
        else "comparing trainings tells more"
    )
    return f"; this is training {training} over these records: {what}"
