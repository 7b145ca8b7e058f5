"""What each party learns by split training, in words for the report (docs/explanations/privacy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vfl_node.job import Evaluate
from vfl_node.ledger import Disclosure
from vfl_node.privacy.defences.idle import effective
from vfl_node.roles import NUMBER_TASKS, Task
from vfl_node.settings.defences import DefenceParams, Direction
from vfl_node.training.class_weight import BALANCED
from vfl_node.training.split import matched
from vfl_node.training.split.config import Train


class RowCounts(NamedTuple):
    """Numbers of shared rows in each repeat.

    Attributes:
        trained: trained on.
        held_out: measured on at the end.
        validated: measured on after each epoch.
    """

    trained: int
    held_out: int
    validated: int = 0


Stopped = Sequence[tuple[int, int]]
"""(best epoch, last epoch) of each repeat; empty where all epochs are trained."""


@dataclass(frozen=True)
class TrainingExchange:
    """What one party sent another one in training, as far as the party knows whose report it is for.

    Attributes:
        peer: name of the sender.
        rows: of each repeat.
        lacks: how many of the shared rows ``peer`` does not own; None if that is hidden.
        train: the job's section.
        evaluate: the job's section.
        training: which training over these records it is, from 1.
        defences: of ``peer``, in its own report; none in another party's, which does not know them.
        stopped: where training stopped.
        others: each passive party that is neither of the two → how many of the shared rows it does not own, as ``lacks``.
        hidden: whether the alignment hides from a party how many records are shared.
        answered: ε of the randomised answers about labels, and of all that the receiver has about the same labels; in the
            active party's own report, if it gives such.
        noised: ε of the gradients of a row, of those that the receiver has by all jobs, and δ; likewise, of ``dp``.
        weighed: whether rows of ``peer`` have weights; in its own report alone, as nobody else knows.
        offset: whether they have offsets; likewise.
    """

    peer: str
    rows: RowCounts
    lacks: int | None
    train: Train
    evaluate: Evaluate
    training: int = 1
    defences: Sequence[DefenceParams] = ()
    stopped: Stopped = ()
    others: Mapping[str, int | None] = field(default_factory=dict)
    hidden: bool = False
    answered: tuple[float, float] | None = None
    noised: tuple[float | None, float | None, float] | None = None
    weighed: bool = False
    offset: bool = False

    @property
    def epochs(self) -> int:
        """How many there were in all repeats together."""
        return exchanged_epochs(self.stopped, self.evaluate, self.train)


def exchanged_epochs(stopped: Stopped, evaluate: Evaluate, train: Train) -> int:
    """How many epochs there were in all repeats together."""
    return sum(last for _, last in stopped) if stopped else evaluate.repeats * train.epochs


def active_learns(exchange: TrainingExchange) -> tuple[Disclosure, ...]:
    """What the active party learns from a passive party by training."""
    peer, rows, train, evaluate, stopped = exchange.peer, exchange.rows, exchange.train, exchange.evaluate, exchange.stopped
    embeddings = Disclosure(
        "embeddings",
        evaluate.repeats * rows.held_out + exchange.epochs * (rows.trained + rows.validated),
        f"from {peer} an embedding of each shared row, anew in each of {_epochs_in_words(train, stopped)} or for evaluation"
        f"{', of each row set apart for validation after each epoch' if rows.validated else ''}"
        f"{f', {evaluate.repeats} times over' if evaluate.repeats > 1 else ''}: values of {peer}'s columns can be inferred "
        f"from them in part (see docs/explanations/privacy/index.md){_defence_words(exchange.defences, 'embeddings')}",
    )
    counts = matched.active_learns(peer, rows.held_out) if evaluate.matched else ()
    if train.unaligned.epochs_before:
        counts = (*counts, *_pretraining_disclosures(exchange, "an embedding"), _unaligned_rows(exchange))
    if stopped:
        found = f"by the loss of its own labels in the validation rows, which it kept to itself, {_best_epochs(stopped)}"
        counts = (*counts, Disclosure("early stopping", exchange.epochs, found))
    if exchange.lacks == 0:
        return (embeddings, *counts)
    also = ", and which of the other shared rows, without knowing whose these are," if exchange.others else ""
    return (
        embeddings,
        *counts,
        Disclosure(
            "membership",
            exchange.lacks,
            f"which of its own records {peer} lacks{also} can be inferred from the embeddings, "
            f"{train.missing.feature_strategy.learnt()} (see docs/explanations/privacy/index.md){_history(exchange.training)}",
        ),
    )


def passive_learns(exchange: TrainingExchange) -> tuple[Disclosure, ...]:
    """What a passive party learns from the active party by training."""
    peer, train, evaluate, stopped = exchange.peer, exchange.train, exchange.evaluate, exchange.stopped
    labels = "of every row trained on" if exchange.lacks == 0 else "used for each, real or synthetic,"
    gradients = Disclosure(
        "gradients",
        exchange.epochs * exchange.rows.trained,
        f"from {peer} a gradient for each row of every batch: {_label_leak(labels, peer, exchange.defences, train.task)} (see "
        f"docs/explanations/privacy/index.md){_weight_words(exchange)}"
        f"{_defence_words(exchange.defences, 'gradients')}",
    )
    answers: tuple[Disclosure, ...] = (_answer_bound(exchange.rows, peer, *exchange.answered),) if exchange.answered else ()
    answers += (_noise_bound(exchange.rows, peer, *exchange.noised),) if exchange.noised else ()
    figures = Disclosure("figures", 0, f"from {peer} neither loss nor metrics")
    if evaluate.share_with_passive:
        each = ("loss", "AUC") if "auc" in evaluate.metrics else ("loss",)
        where, sets = (", on training and validation rows,", 2) if stopped else ("", 1)
        shared = f"{' and '.join(each)} of each epoch{where} and the metrics at the end, as the job says{_spread(train.task)}"
        reported = stopped[0][1] if stopped else train.epochs
        figures = Disclosure("figures", reported * sets * len(each) + len(evaluate.metrics), f"from {peer} {shared}")
    counts = matched.passive_learns(peer) if evaluate.matched else ()
    if evaluate.hold_out:
        counts = (*counts, _held_out_rows(exchange))
    if stopped:
        decided = (
            f"after each epoch whether the loss of {peer}'s labels in the validation rows was the smallest so far, and so "
            f"{_best_epochs(stopped)}; this depends on how many of the shared rows {peer} has a label for, too. How long it "
            f"waits while {peer} trains models of its own tells about when those stop"
        )
        counts = (*counts, Disclosure("early stopping", exchange.epochs, decided))
    if train.unaligned.used:
        counts = (*counts, *_pretraining_disclosures(exchange, "a gradient"), _unaligned_rows(exchange, gradients=True))
    if exchange.others:
        counts = (*counts, _indirect_leaks(exchange))
    if exchange.lacks == 0:
        return (gradients, *answers, figures, *counts)
    strategy = train.missing.label_strategy
    compared = _history(exchange.training, drawn=strategy.redrawn, lasting=strategy.fixed)
    membership = f"{strategy.learnt(peer)} (see docs/explanations/privacy/membership.md){compared}"
    return (gradients, *answers, Disclosure("membership", exchange.lacks, membership), figures, *counts)


def _answer_bound(rows: RowCounts, peer: str, epsilon: float, together: float) -> Disclosure:
    """What is bounded where gradients are made of randomised answers."""
    answers = f"a randomised answer of ε = {epsilon:g} about the label of each, the same in every epoch, repeat and job"
    earlier = f"; together with answers of earlier jobs that had another ε or other terms: ε = {together:g}"
    return Disclosure(
        "randomised labels",
        rows.trained + rows.validated,
        f"from {peer} by all of training at most {answers}{earlier if together > epsilon else ''}. Whoever else has the same "
        "answers learns nothing more by putting them together",
    )


def _noise_bound(rows: RowCounts, peer: str, epsilon: float | None, together: float | None, delta: float) -> Disclosure:
    """What is bounded where gradients have noise in proportion to their length."""
    if epsilon is None:
        text = f"from {peer} gradients with noise that is too weak for a bound on what they tell of labels"
        return Disclosure("noised gradients", rows.trained, text)
    sum_ = "is beyond any meaning" if together is None else f"= {together:.3g}"
    earlier = (
        ""
        if together is not None and together <= epsilon * 1.0001
        else f"; with those of other trials and earlier jobs ε {sum_}"
    )
    text = f"from {peer} by all gradients of a row no more about its label than ε = {epsilon:.3g} at δ = {delta:g}{earlier}"
    return Disclosure("noised gradients", rows.trained, text)


def _held_out_rows(exchange: TrainingExchange) -> Disclosure:
    """What a passive party learns where the last rows are held out."""
    peer, rows = exchange.peer, exchange.rows
    before = f", and which {rows.validated} came before them" if rows.validated else ""
    return Disclosure(
        "held-out rows",
        rows.held_out + rows.validated,
        f"from {peer} which {rows.held_out} of the shared records are the last ones in the order of a private column of "
        f"{peer}{before}; neither the values of that column nor the order within each part",
    )


def _pretraining_disclosures(exchange: TrainingExchange, received: str) -> tuple[Disclosure, ...]:
    """What a party that ``received`` something, or a projection, of each row learns in the training without labels."""
    peer, method = exchange.peer, exchange.train.unaligned
    count = exchange.evaluate.repeats * method.epochs_before * exchange.rows.trained
    each = f"each aligned row trained on in each of {method.epochs_before} epochs before the training with labels"
    if method.exchanges == "projections":
        text = f"from {peer} a projection of {each}: values of {peer}'s columns can be inferred from it in part"
        text += _defence_words(effective(exchange.defences, "projections"), "projections")
        return (Disclosure("projections", count, text),)
    if method.exchanges == "embeddings and gradients":
        tells = {
            "an embedding": "from it values of its columns can be inferred in part",
            "a gradient": "it tells how well the columns of both fit, and depends on columns of rows outside, too; on no label",
        }[received]
        return (Disclosure("matched pairs", count, f"from {peer} {received} of {each}: {tells}"),)
    return ()


def _unaligned_rows(exchange: TrainingExchange, *, gradients: bool = False) -> Disclosure:
    """What a party learns where the other one learns from rows outside of the alignment, too.

    Args:
        exchange: what the other one sent.
        gradients: whether this party gets them before the training with labels, if the method exchanges any.
    """
    peer = exchange.peer
    nothing = f"from {peer} no message about its records outside of the alignment"
    if gradients and exchange.train.unaligned.exchanges == "embeddings and gradients":
        nothing = f"from {peer} no message about its records outside of the alignment but those gradients"
    time = f"How long {peer} computes before and between batches tells"
    if not exchange.hidden:
        return Disclosure("pace", 0, f"{nothing}. {time} about how many of these there are for each of the aligned ones")
    same = (
        f"Between batches of shared rows {peer} learns from as many of its own, repeated, as it has announced records, so that "
        "their number does not depend on how many are shared"
    )
    return Disclosure(
        "pace", 0, f"{nothing}. {same}. {time} that number; only small differences may come from how many are shared"
    )


def _indirect_leaks(exchange: TrainingExchange) -> Disclosure:
    """What a passive party learns about the other ones."""
    peer, others = exchange.peer, exchange.others
    them, lacking = " and ".join(others), " and ".join(name for name, lacks in others.items() if lacks != 0)
    made_up = f", and so in part for which rows {lacking} made columns up" if lacking else ""
    figures = ["the figures"] if exchange.evaluate.share_with_passive else []
    decisions = ["the decisions when to stop"] if exchange.stopped else []
    depending = " and ".join(["the gradients", *figures, *decisions])
    return Disclosure(
        "other passive parties",
        0,
        f"from {them} no message of training: these go to {peer} alone. But {depending} from {peer} depend on the "
        f"embeddings of {them} for the same rows, so they tell something about these: how well the columns of {them} explain "
        f"the label of a row, for example{made_up} (see docs/explanations/privacy/index.md)",
    )


def _epochs_in_words(train: Train, stopped: Stopped) -> str:
    """How many there were in a repeat."""
    counts = {last for _, last in stopped} or {train.epochs}
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)})) + " epochs"


def _best_epochs(stopped: Stopped) -> str:
    """Which epochs were the best and the last."""
    each = [f"epoch {best} was the best and epoch {last} the last" for best, last in stopped]
    return f"that {each[0]}" if len(each) == 1 else f"that in the repeats {'; '.join(each)}"


def _spread(task: Task) -> str:
    """What metrics of numbers tell besides."""
    if task == "poisson":
        return "; from the deviance and its explained share follows roughly how large the targets are"
    return "; from R² and an error in the target's unit follows how far the targets spread" if task == "regression" else ""


def _label_leak(labels: str, peer: str, defences: Sequence[DefenceParams], task: Task) -> str:
    """How well labels can be read from gradients of ``peer``."""
    if task in NUMBER_TASKS:
        unless = f"how well depends on {peer}'s defences" if defences else f"unless {peer} has a defence, almost surely"
        return (
            f"the residual {labels} can be read from them, the prediction minus the target, but for a scale, {unless}; from "
            "residuals over the epochs the order of the targets and their distances follow roughly, and neither mean nor unit"
        )
    if defences:
        return f"how well the label {labels} can be read from them depends on {peer}'s defences"
    return f"unless {peer} has a defence, the label {labels} can be read from the gradients almost surely"


def _weight_words(exchange: TrainingExchange) -> str:
    """What weights of rows and of classes, and offsets, tell."""
    peer, words = exchange.peer, ""
    if exchange.weighed:
        words += (
            f"; each is as many times longer as its row counts more (data.weight of {peer}), so that the lengths show weights"
        )
    if exchange.offset:
        words += (
            f"; among rows of one label, the residual in it grows with the row's offset (data.offset or exposure of {peer})"
        )
    return words + _class_weight_words(exchange.train, peer)


def _class_weight_words(train: Train, peer: str) -> str:
    if train.class_weight is None:
        return ""
    lengths = "; each is as many times longer as its class counts more (train.class_weight)"
    if train.class_weight != BALANCED:
        return lengths
    return f"{lengths}, so that the lengths tell how frequent each class is among {peer}'s labels"


def _defence_words(defences: Sequence[DefenceParams], direction: Direction) -> str:
    """What the sender's defences do."""
    return "".join(f"; before they are sent, {params.words(direction)}" for params in defences)


def _history(training: int, *, drawn: bool = True, lasting: bool = True) -> str:
    """What comes on top from the second training over the same records on.

    Args:
        training: its number.
        drawn: whether what is seen of a row is drawn.
        lasting: whether all trainings over one alignment draw the same.
    """
    if training == 1:
        return ""
    what = "comparing trainings tells more"
    if drawn:
        when = "with each alignment, and comparing trainings over several" if lasting else "in each, and comparing them"
        what = f"synthetic rows are drawn again {when} tells which they are"
    return f"; this is training {training} over these records: {what}"
