"""What a node's own earlier jobs show: in which of them, with the same parties and aim, others could tell less."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vfl_node.node.record import Record

MOST_COMPARED = 50
"""The newest jobs that are done, among which earlier ones are looked for: older ones say little of today's tables."""

RANKS = {"low": 0, "some": 1, "high": 2, "open": 2}
"""Level of a leak → how bad it is. What was not measured has none: it is neither better nor worse than another."""


@dataclass(frozen=True)
class RankedJob:
    """A job that is done, and what others could tell.

    Attributes:
        record: of the job.
        aims: its name and its purpose, each with the parties and tables; jobs are compared that share one of them.
        ranks: secret → how bad its leak is, of those that are known.
        figures: what a list shows of its report.
    """

    record: Record
    aims: frozenset[tuple[str, str, str]]
    ranks: dict[str, int]
    figures: dict[str, Any]


def find_safer(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """Earlier jobs in which others could tell less, for each job that has any and is the newest with its aim.

    Args:
        records: jobs that are done, newest first.

    Returns:
        Id → earlier jobs: ``job`` (the id), ``name``, ``algorithm``, and ``leaks`` (secret → ``level``, ``value`` or None).
        Each secret stands with the job in which the least could be told.
    """
    jobs = [job for job in map(_rank, records) if job.ranks]
    found: dict[str, list[dict[str, Any]]] = {}
    seen = set[tuple[str, str, str]]()
    for place, job in enumerate(jobs):
        if seen.isdisjoint(job.aims):
            earlier = [other for other in jobs[place + 1 :] if not other.aims.isdisjoint(job.aims)]
            if safer := _list_safer(job, earlier):
                found[job.record.id] = safer
        seen |= job.aims
    return found


def _rank(record: Record) -> RankedJob:
    document, figures = record.document, json.loads(record.figures or "{}")
    parties = document.get("parties", {})  # a damaged row has none
    who = json.dumps([parties.get("active"), parties.get("passive"), document.get("tables")], sort_keys=True)
    aims = {"name": record.name, "purpose": document.get("purpose")}
    return RankedJob(
        record=record,
        aims=frozenset((who, kind, text) for kind, text in aims.items() if text),
        ranks={secret: RANKS[level] for secret, level in figures.get("leaks", {}).items() if level in RANKS},
        figures=figures,
    )


def _list_safer(job: RankedJob, earlier: Sequence[RankedJob]) -> list[dict[str, Any]]:
    """Those ``earlier`` jobs, newest first, that have the lowest level of a secret, if it is lower than in ``job``."""
    found: dict[str, dict[str, Any]] = {}
    for secret, rank in job.ranks.items():
        best = min((other for other in earlier if secret in other.ranks), key=lambda other: other.ranks[secret], default=job)
        if best.ranks[secret] < rank:
            record, figures = best.record, best.figures
            algorithm = (record.document.get("train") or {}).get("algorithm")
            line = found.setdefault(record.id, {"job": record.id, "name": record.name, "algorithm": algorithm, "leaks": {}})
            value = figures.get("leak_values", {}).get(secret)  # an earlier release kept none
            line["leaks"][secret] = {"level": figures["leaks"][secret], "value": value}
    return list(found.values())
