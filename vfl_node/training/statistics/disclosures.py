"""What each party learns from statistics in shares, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.statistics.costs import plan_of


def learns(job: Job, rows: int | None, widths: Sequence[int]) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt.

    Args:
        job: the job.
        rows: length of the shared order; None where it is not known.
        widths: columns of each data party, in the job's order; empty where they are not known.
    """
    parties, section = job.parties, Statistics.section_of(job)
    width = dict(zip(parties.data, widths, strict=False))
    noisy = section.epsilon is not None and width
    noise = f", each with noise of standard deviation {plan_of(section, rows or 1, widths).deviation:.3g}" if noisy else ""
    products = ""
    if section.correlations and width:
        products = f", each with noise of standard deviation {plan_of(section, rows or 1, widths).deviation_of_products:.3g}"
    learnt: dict[str, tuple[Disclosure, ...]] = {}
    for name in parties.data:
        masked = "bins and marks of the others, each under a mask of its own: uniform numbers"
        entries = [Disclosure("masked values", rows, masked)]
        entries += [
            Disclosure("features", count, f"how many columns {other} has counted: {count}")
            for other, count in width.items()
            if other != name
        ]
        if section.epsilon is None:
            text = (
                "weights of evidence of its own bins, to 2 digits, and information value, KS, χ² and stability index of each "
                f"of its columns, rounded; bins with fewer than {section.least_rows:,} records of a label are taken together"
            )
            if section.worth and name != parties.active:
                text += f". And of each of its columns the bits it says beyond the columns of {parties.active}, to 3 digits"
        else:
            text = f"how many shared records of each label are in each bin of its own columns{noise}"
        entries.append(Disclosure("statistics", width.get(name), text))
        if name == parties.active:
            text = "of each column of the others its information value, KS, χ² and stability index"
            text += ", rounded" if section.epsilon is None else ", made of what its owner got"
            text += ", and the bits that it says beyond its own columns, to 3 digits" if section.worth else ""
            others = sum(count for other, count in width.items() if other != name) if width else None
            entries.append(Disclosure("statistics of others", others, text))
        if section.correlations:
            count = sum(widths) * (sum(widths) + 1) // 2 if width else None
            text = "how columns of all parties and the label move together: sums of products over all shared records"
            entries.append(Disclosure("correlations", count, text + (products if width else "")))
        learnt[name] = tuple(entries)
    shapes = (
        "how many rows the shared order has, how many columns each party has, how fast each party computes, and when one of "
        "them restarts. No other number that it gets depends on data; but it knows every mask, so with what one data party "
        "receives it knows everything"
    )
    learnt[str(parties.coordinator)] = (Disclosure("shapes", rows, shapes),)
    return learnt
