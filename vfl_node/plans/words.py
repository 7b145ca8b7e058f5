"""A recommendation in words, as a job file, and for a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import yaml

from vfl_node.ledger import Declaration
from vfl_node.plans.answers import Answers
from vfl_node.plans.cost import Span, WayCost
from vfl_node.plans.meaning import MEANINGS, Counted
from vfl_node.plans.ranking import explain_place
from vfl_node.plans.recommend import Proposal, Ranked
from vfl_node.report.words import human_bytes, human_seconds

KNOBS = ("epsilon", "epochs", "iterations", "batch_size", "learning_rate")
"""Keys of ``train`` that a job file says although it need not, since owners change them first."""


def job_text(proposal: Proposal) -> str:
    """The job file."""
    document = dict(proposal.document)
    if train := proposal.job.train:
        shown = {key: value for key in KNOBS if (value := getattr(train, key, None)) is not None}
        document["train"] = {**document["train"], **shown}
        document["evaluate"] = {"test_fraction": proposal.job.evaluate.test_fraction}
    lines = [f"# {proposal.combination.name}, by vfl-node plan. Put the names of your nodes in place of these.\n"]
    for key, value in document.items():
        style = None if isinstance(value, dict) else False  # a section is one line in braces
        lines.append(yaml.safe_dump({key: value}, default_flow_style=style, sort_keys=False, width=120))
    return "".join(lines)


def count_told(declaration: Declaration, answers: Answers, rows: Span) -> float | None:
    """About how many things an entry is of; None where it has no number, or none is known."""
    counted = MEANINGS[declaration.what].counted
    records, shared = answers.records, answers.shared
    numbers: Mapping[Counted, float | None] = {
        "": None,
        "records": next((number for name, number in records.items() if f"records {name} has" in declaration.bound), None),
        "union": rows[1],
        "shared": shared,
        "rows": rows[1],
        "others": rows[1] - shared,
        "lacking": records.get(declaration.to, 0) - shared,
    }
    return numbers[counted]


def describe(ranked: Ranked, answers: Answers, cost: WayCost, wire: str) -> Iterator[str]:
    """All of it, line by line; ``wire`` names its rate and round trip."""
    best, *others = ranked.fitting
    yield f"recommended: {best.combination.name}"
    yield ""
    yield from (f"    {line}" for line in job_text(best).splitlines())
    yield ""
    yield from _cost_lines(best, answers, cost, wire)
    yield "what each party would learn at most:"
    for name in best.job.parties.all:
        yield f"  {name}:"
        for each in best.declared:
            if each.to == name:
                number = count_told(each, answers, cost.rows)
                about = "" if number is None else f" (about {number:,.0f})"
                yield f"    {each.what}: {each.bound}{about}"
    yield from (f"warning: {warning}" for warning in best.warnings)
    if others:
        yield "also possible, the better ones first:"
    for other in others:
        warnings = "".join(f" Warning: {each}." for each in other.warnings)
        yield f"  {other.combination.name}: {explain_place(other.rank, best.rank)}{warnings}"
    yield "ruled out:"
    for why, names in _group_by_reason(ranked).items():
        yield f"  {why}"
        yield f"    {', '.join(names)}"


def to_document(ranked: Ranked, answers: Answers, assumed: Sequence[str], cost: WayCost) -> dict[str, Any]:
    """All of it for a program: seconds, bytes, and [least, most] for each figure."""
    best, *others = ranked.fitting
    learns = [
        {"to": each.to, "what": each.what, "bound": each.bound, "about": count_told(each, answers, cost.rows)}
        for each in best.declared
    ]
    return {
        "answers": asdict(answers),
        "assumed": list(assumed),
        "recommended": best.combination.name,
        "job": best.job.model_dump(mode="json", exclude_unset=True),
        "job_file": job_text(best),
        "costs": asdict(cost),
        "learns": learns,
        "warnings": list(best.warnings),
        "possible": [
            {"way": other.combination.name, "why_later": explain_place(other.rank, best.rank), "warnings": list(other.warnings)}
            for other in others
        ],
        "ruled_out": [{"way": each.combination.name, "answer": each.answer, "why": each.why} for each in ranked.ruled],
    }


def _cost_lines(best: Proposal, answers: Answers, cost: WayCost, wire: str) -> Iterator[str]:
    yield f"what it costs, {wire}, if all parties have a machine like this:"
    trained = best.job.train is not None
    took = f", training {_span(cost.train_s, human_seconds)}" * trained
    yield f"  time: alignment {_span(cost.align_s, human_seconds)}{took}"
    sent = f", training {_span(cost.train_bytes, human_bytes)}" * trained
    dealt = f", {best.job.parties.coordinator} {_span(cost.dealt_bytes, human_bytes)}" if cost.dealt_bytes[1] else ""
    yield f"  sent: alignment {_span(cost.align_bytes, human_bytes)}{sent}{dealt}"
    yield f"  memory: {_span(cost.memory_bytes, human_bytes)} at {best.job.parties.active}'s node"
    yield f"  rows: {_span(cost.rows, lambda count: f'{count:,.0f}')}"
    records = " ".join(f"--records {name}={count}" for name, count in answers.records.items())
    yield f"  more: vfl-node estimate JOB.yaml {records} --shared {answers.shared}"


def _span(span: Span, text: Any) -> str:
    low, high = (text(value) for value in span)
    return f"about {low}" if low == high else f"{low} to {high}"


def _group_by_reason(ranked: Ranked) -> dict[str, list[str]]:
    """Sentence → the ways that it rules out."""
    reasons: dict[str, list[str]] = {}
    for each in ranked.ruled:
        reasons.setdefault(each.why, []).append(each.combination.name)
    return reasons
