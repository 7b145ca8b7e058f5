"""Whether two runs were measured on the same held-out rows, as far as their reports can tell.

Each job draws its splits from a seed that its parties toss anew (:mod:`vfl_node.session.toss`). So two jobs of nodes hold out
other rows, unless one uses the alignment of the other (``align.reuse``), and with it the seed: reports have a digest of it.
Where all secrets follow from a seed (``vfl-node run --seed``) a second run can have the same ones, too: its job has the same
name, of which the seed of the toss is made, and the same public seed, alignment and shares.

A report does not name the tables. So figures must agree, too, that follow from the rows alone: how many of each class were held
out, what a constant scores on them, and what a boosted tree of the active party alone does in each split. What cannot be known
to be the same counts as other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vfl_node.job import Job

SHARES = ("test_fraction", "validation_fraction", "hold_out", "repeats")
"""Keys of ``evaluate`` that say which rows are held out."""

SIZES = ("records", "ours", "theirs", "rows", "union", "intersection")
"""Keys of a report's ``alignment`` that follow from the tables."""

CONSTANTS = ("constant_nll", "constant_rmse", "constant_mse", "constant_deviance")

BY_THRESHOLD = ("accuracy", "f1")
"""Metrics that follow from more than the model and the rows."""


@dataclass(frozen=True)
class SplitRows:
    """The held-out rows of a run.

    Attributes:
        origin: all that they were drawn from; None: it is not known.
        witnesses: name → what follows from the rows alone.
    """

    origin: Mapping[str, Any] | None
    witnesses: Mapping[str, Any]

    def equals(self, other: SplitRows) -> bool:
        """Whether they are known to be those of ``other``."""
        shared = self.witnesses.keys() & other.witnesses.keys()
        agree = all(self.witnesses[name] == other.witnesses[name] for name in shared)
        return self.origin is not None and self.origin == other.origin and bool(shared) and agree


def held_out_rows(report: Mapping[str, Any], job: Job) -> SplitRows:
    """Those of a run of ``job``, with its report as its JSON holds it."""
    metrics, alignment, drawn = report["metrics"], report["alignment"], _drawn_by(report, job)
    if not (drawn and job.train and alignment and metrics and metrics["held_out"]):
        return SplitRows(None, {})
    spec = job.model_dump(mode="json")
    spec["align"].pop("reuse", None)
    origin = {
        "drawn": drawn,
        "version": report["versions"]["vfl_node"],
        "labels": [spec["train"].get("seed"), job.task, job.classes, job.label_holder],
        "sections": [spec[section] for section in ("parties", "tables", "align")],
        "shares": [spec["evaluate"][key] for key in SHARES],
        "sizes": [alignment[key] for key in SIZES],
        "measured": [metrics[key] for key in ("rows", "population", "real_share")],
    }
    return SplitRows(origin, dict(_witnesses(report)))


def _drawn_by(report: Mapping[str, Any], job: Job) -> tuple[str, ...] | None:
    """What the held-out rows were drawn by; None: only this job knows it, or its table says which they are."""
    if report["seeded"]:
        return ("job", report["job"]["id"])
    digest = (report["training"] or {}).get("split_digest")
    if digest is None or job.train is None or job.evaluate.hold_out:
        return None
    return ("split", digest, job.train.algorithm)


def _witnesses(report: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    metrics, tree = report["metrics"], report["boosted_tree_metrics"]
    if metrics["confusion"]:
        yield "classes", [sum(counts) for counts in metrics["confusion"]["counts"]]
    yield from ((name, metrics[name]) for name in CONSTANTS if metrics.get(name) is not None)
    for name, values in ((tree and tree["repeats"]) or {}).items():
        if name not in BY_THRESHOLD:
            yield f"tree {name}", values
