"""What each party learns by training over candidates, in words for the report; see docs/explanations/training/candidates.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.job import Evaluate
from vfl_node.ledger import Disclosure
from vfl_node.training.candidates.config import Linked


@dataclass(frozen=True)
class LinkedExchange:
    """What both parties sent each other in training; both know all of it.

    Attributes:
        active: name of the active party.
        passive: name of the passive party.
        train: the job's section.
        evaluate: the job's section.
        distinct: embeddings that crossed in the first repeat.
        places: candidates for which they stand.
        gradients: that crossed in the first repeat.
        stopped: (best epoch, last epoch) of each repeat; empty where all epochs are trained.
    """

    active: str
    passive: str
    train: Linked
    evaluate: Evaluate
    distinct: int
    places: int
    gradients: int
    stopped: Sequence[tuple[int, int]] = ()

    @property
    def epochs(self) -> int:
        """How many there were in all repeats together."""
        return sum(last for _, last in self.stopped) if self.stopped else self.evaluate.repeats * self.train.epochs

    @property
    def in_first(self) -> str:
        """Which repeat numbers are of, in words; empty for a single one."""
        return f" in the first of {self.evaluate.repeats} repeats" if self.evaluate.repeats > 1 else ""


def active_learns(exchange: LinkedExchange) -> tuple[Disclosure, ...]:
    """What the active party learns from the passive one."""
    peer = exchange.passive
    linked = Disclosure(
        "linked embeddings",
        exchange.distinct,
        f"from {peer} an embedding of each distinct candidate of a batch, for {exchange.places:,} candidates"
        f"{exchange.in_first}: values of {peer}'s columns can be inferred from them in part. Beside the embeddings "
        f"stands which candidates of the batch are the same record of {peer}. Over many batches that shows which of all "
        "candidates are. Records have no number, but the similarities of one record can be collected, and from them its key "
        "can be located as the ledger's entry on similarities says. The rows that have a record as a candidate locate it "
        f"roughly without any similarity, so that noise does not prevent it. {peer}'s linkage.max_reuse alone limits how many "
        "rows these are; nothing in training does",
    )
    if not exchange.stopped:
        return (linked,)
    found = f"by the loss of its own labels in the validation rows, which it kept to itself, {_best_epochs(exchange)}"
    return (linked, Disclosure("early stopping", exchange.epochs, found))


def passive_learns(exchange: LinkedExchange) -> tuple[Disclosure, ...]:
    """What the passive party learns from the active one."""
    peer, what = exchange.active, "the residual" if exchange.train.task == "regression" else "the label"
    entries = [
        Disclosure(
            "linked gradients",
            exchange.gradients,
            f"from {peer} a gradient for each distinct candidate of a training batch{exchange.in_first}, summed over the "
            f"rows beside which it stands. Of a record that stands beside one row of the batch alone the gradient tells almost "
            f"surely {what} of that row{_scale_words(exchange)}; of one beside many rows it tells whether these lie above or "
            f"below what is predicted. {_weights(exchange)} No defence of {peer} works on them",
        ),
        _figures(exchange),
    ]
    if exchange.stopped:
        decided = (
            f"after each epoch whether the loss of {peer}'s labels in the validation rows was the smallest so far, and so "
            f"{_best_epochs(exchange)}. How long it waits while {peer} trains models of its own tells about when those stop"
        )
        entries.append(Disclosure("early stopping", exchange.epochs, decided))
    return tuple(entries)


def _scale_words(exchange: LinkedExchange) -> str:
    return ", but for a scale" if exchange.train.task == "regression" else ""


def _weights(exchange: LinkedExchange) -> str:
    """What lengths of gradients tell of similarities."""
    if exchange.train.how.nearest:
        return "Where it is 0 the record has the largest similarity of none of these rows, which tells of the similarities."
    if exchange.train.how.gates:
        return "It is the longer the more the record counts, so that lengths tell of similarities, which it was not told."
    if exchange.train.how.each:
        return "Each candidate has its own residual, which depends on its similarity, so that lengths can tell of similarities."
    return "All candidates of a row count alike, so that lengths tell nothing of similarities."


def _figures(exchange: LinkedExchange) -> Disclosure:
    evaluate, peer = exchange.evaluate, exchange.active
    if not evaluate.share_with_passive:
        return Disclosure("figures", 0, f"from {peer} neither loss nor metrics")
    each = ("loss", "AUC") if "auc" in evaluate.metrics else ("loss",)
    sets, where = (2, ", on training and validation rows,") if exchange.stopped else (1, "")
    epochs = exchange.stopped[0][1] if exchange.stopped else exchange.train.epochs
    text = f"from {peer} {' and '.join(each)} of each epoch{where} and the metrics at the end, as the job says"
    spread = "; from R² and an error in the target's unit follows how far the targets spread"
    if exchange.train.task == "regression":
        text += spread
    return Disclosure("figures", epochs * sets * len(each) + len(evaluate.metrics), text)


def _best_epochs(exchange: LinkedExchange) -> str:
    each = [f"epoch {best} was the best and epoch {last} the last" for best, last in exchange.stopped]
    return f"that {each[0]}" if len(each) == 1 else f"that in the repeats {'; '.join(each)}"
