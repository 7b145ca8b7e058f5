"""What each party learns from training in shares, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.hidden.config import Hidden


@dataclass(frozen=True)
class HiddenNumbers:
    """How large a training is.

    Attributes:
        rows: length of the shared order; None where it is not known.
        widths: columns of each data party, in the job's order; empty where they are not known.
        held_out: shared rows that the metrics are about; None where that is not known.
        number: of this training over the same records, among those that count.
    """

    rows: int | None
    widths: tuple[int, ...]
    held_out: int | None
    number: int = 1


def learns(job: Job, numbers: HiddenNumbers) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt."""
    parties, train = job.parties, Hidden.of(job)
    width = dict(zip(parties.data, numbers.widths, strict=False))
    masked = Disclosure(
        "masked values",
        numbers.rows,
        "columns, scores and residuals of the others, each under a mask of its own: uniform numbers",
    )
    learnt: dict[str, tuple[Disclosure, ...]] = {}
    for name in parties.data:
        entries = [masked]
        entries += [
            Disclosure("features", count, f"how many columns {other} has: {count}")
            for other, count in width.items()
            if other != name
        ]
        if train.reveal == "owners":
            text = (
                "the weights of its own columns after training: a function of all shared records. A column in which few "
                "records differ tells about these: with its weight almost unmoved, that hardly any of them is shared"
            )
            if numbers.number > 1:
                text += (
                    f"; this is training {numbers.number} over these records, and the mean of several shows by how much "
                    "training moves a weight"
                )
            if name == parties.active and train.hidden:
                text += ", and all layers behind the first"
            entries.append(Disclosure("weights", width.get(name), text))
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            what = (
                "sums over the shared records held out: how many there are, their targets, the squares of these, squared "
                "errors, and how many are far off"
                if train.task == "regression"
                else "sums over the shared records held out: how many there are of each label, how many pairs are in order, "
                "the loss, how many are right, and how many have scores beyond ±16"
            )
            entries.append(Disclosure("metrics", numbers.held_out, what))
        if train.show_loss and (name == parties.active or job.evaluate.share_with_passive):
            what = (
                "the sum of squared residuals of each epoch over the shared records: where scores begin near 0, the first "
                "one tells how many records are trained on"
            )
            entries.append(Disclosure("loss", train.epochs, what))
        learnt[name] = tuple(entries)
    learnt[str(parties.coordinator)] = (
        Disclosure(
            "shapes",
            numbers.rows,
            "how many rows the shared order has, how many columns each party has, how rows are batched (which tells how many "
            "records are shared, where all data parties know it), how fast each party computes, and when one of them restarts. "
            "No other number that it gets depends on data; but it knows every mask, so with what one data party receives it "
            "knows everything",
        ),
    )
    return learnt
