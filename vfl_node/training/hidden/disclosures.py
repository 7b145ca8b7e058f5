"""What each party learns from training in shares, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.shares.deviating import TRAINING, disclose_deviating
from vfl_node.training.shares.metric_noise import sums_text


@dataclass(frozen=True)
class HiddenNumbers:
    """How large a training is.

    Attributes:
        rows: length of the shared order; None where it is not known.
        widths: columns of each data party, in the job's order; empty where they are not known.
        counted: shared records that sums are over, with noise; None where that is not known.
        number: of this training over the same records, among those that count.
        privacy: what bounds all that was opened, in words.
        noise: standard deviation of the noise in a weight; None: there is none, or it is not known.
    """

    rows: int | None
    widths: tuple[int, ...]
    counted: int | None
    number: int = 1
    privacy: str = ""
    noise: float | None = None


def learns(job: Job, numbers: HiddenNumbers) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt."""
    parties, train = job.parties, Hidden.section_of(job)
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
            Disclosure("features", count, f"how many encoded columns {other} has: {count}")
            for other, count in width.items()
            if other != name
        ]
        if train.reveal == "owners":
            layers = ", and all layers behind the first" if name == parties.active and train.layers else ""
            text = f"the weights of its own columns after training{layers}: a function of all shared records"
            if train.epsilon is None:
                text += (
                    ". A column in which few records differ tells about these: if its weight has hardly moved, hardly any of "
                    "them is shared"
                )
            elif numbers.noise is not None:
                text += f", with noise of about {numbers.noise:.2g} in each"
            if numbers.number > 1:
                text += (
                    f"; this is training {numbers.number} over these records, and the mean of several shows by how much "
                    "training moves a weight"
                )
            entries.append(Disclosure("weights", width.get(name), text))
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            over = "the shared records held out" if job.evaluate.test_fraction else "the shared records trained on"
            entries.append(Disclosure("metrics", numbers.counted, f"sums over {over}, each with noise: {sums_text(job)}"))
        if numbers.privacy:
            entries.append(Disclosure("privacy", numbers.rows, numbers.privacy))
        if not train.coordinated:
            entries += disclose_deviating(parties.others(name), numbers.rows, TRAINING)
        learnt[name] = tuple(entries)
    if train.coordinated:
        learnt[str(parties.coordinator)] = _shapes(numbers.rows)
    return learnt


def _shapes(rows: int | None) -> tuple[Disclosure, ...]:
    """What the coordinator learns."""
    return (
        Disclosure(
            "shapes",
            rows,
            "how many rows the shared order has, how many columns each party has, how rows are batched (which tells how many "
            "records are shared, where all data parties know it), how fast each party computes, and when one of them restarts. "
            "No other number that it gets depends on data; but it knows every mask, so with what one data party receives it "
            "knows everything",
        ),
    )
