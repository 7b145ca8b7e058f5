"""What each party learns from training trees in shares, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.shares.metric_noise import sums_text
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.plan import gain_step_bits

OF_A_COLUMN = (
    "The number hints at how many columns there are, and at missing values: a column of numbers with some of them has about "
    "twice as many as one without"
)


def learns(
    job: Job, rows: int | None, widths: Sequence[int], *, counted: int | None = None, number: int = 1, privacy: str = ""
) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt.

    Args:
        job: the job.
        rows: length of the shared order; None where it is not known.
        widths: candidates of each data party, in the job's order; empty where they are not known.
        counted: shared records that sums are over, with noise; None where that is not known.
        number: of this training over the same records, among those that count.
        privacy: what bounds all that was opened, in words.
    """
    parties, train = job.parties, Trees.section_of(job)
    width = dict(zip(parties.data, widths, strict=False))
    masked = "candidates, gradients, sums and ways of rows of the others, each under a mask of its own: uniform numbers"
    several = f"; this is training {number} over these records, and several tell more than one" if number > 1 else ""
    of_each = " of each class's trees" if train.outputs > 1 else ""
    of_these = "" if train.row_fraction == 1 else " that count in this tree"
    learnt: dict[str, tuple[Disclosure, ...]] = {}
    for name in parties.data:
        entries = [Disclosure("masked values", rows, masked)]
        entries += [
            Disclosure("features", count, f"how many candidates for splits {other} has: {count}. {OF_A_COLUMN}")
            for other, count in width.items()
            if other != name
        ]
        if train.reveal == "owners":
            text = f"which of its own candidates splits each node{of_each}, and which nodes it does not split{several}. On "
            text += f"each side of such a split are at least {train.least_rows:,} shared records{of_these}. Also how much the "
            steps = "" if rows is None else f" of {2.0 ** gain_step_bits(rows):g}, about a 1,024th of the rows"
            text += f"splits of each of its own columns gain in all trees, in steps{steps}: functions of the labels of all "
            text += "shared records"
            if train.epsilon is None:
                entries.append(Disclosure("splits", width.get(name), text))
        if train.epsilon is not None:
            text = (
                "whose each node is, drawn in public; and which of its own candidates splits its nodes, drawn by itself alone: "
            )
            entries.append(Disclosure("splits", width.get(name), f"{text}neither tells anything of data"))
        if train.leaves == "active" and name == parties.active:
            count = train.trees * train.outputs << train.depth
            text = (
                f"the values of all {count:,} leaves{of_each}, to 18 bits: functions of the labels and columns of all shared "
                "records. They also show which nodes are split at all"
            )
            if train.epsilon is not None:
                text = f"the values of all {count:,} leaves, to 18 bits, of sums with noise over all shared records"
            entries.append(Disclosure("leaf values", count, text + several))
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            over = "the shared records held out" if job.evaluate.test_fraction else "the shared records trained on"
            entries.append(Disclosure("metrics", counted, f"sums over {over}, each with noise: {sums_text(job)}"))
        if train.epsilon is not None and privacy:
            entries.append(Disclosure("privacy", rows, privacy))
        learnt[name] = tuple(entries)
    of_nodes = "" if train.epsilon is None else "whose each node is, "
    shapes = (
        f"how many rows the shared order has, how many candidates each party has, trees and depth, {of_nodes}how fast each "
        "party computes, and when one of them restarts. No other number that it gets depends on data; but it knows every mask, "
        "so with what one data party receives it knows everything"
    )
    learnt[str(parties.coordinator)] = (Disclosure("shapes", rows, shapes),)
    return learnt
