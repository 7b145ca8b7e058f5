"""Where no way fits: which answer to relax, and what that would tell whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.plans.answers import LEARNERS, THIRD, Answers
from vfl_node.plans.meaning import SECRETS, list_told
from vfl_node.plans.recommend import Proposal, recommend

CHANGES: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "third_party": ((True, "--third-party yes"),),
    "may_learn_shared": (("active", "--may-learn-shared active"), ("both", "--may-learn-shared both")),
    "hide_labels": ((False, "--hide-labels no"),),
    "aim": (("count", "--task count"),),
    "same_id": ((True, "--same-id yes"),),
}
"""Field of the answers → what it may be relaxed to, and the option that says so; what costs least privacy comes first."""


@dataclass(frozen=True)
class Relaxed:
    """Answers that were relaxed until a way fits.

    Attributes:
        answers: what they are then.
        said: the options that say so.
        proposal: the best way.
    """

    answers: Answers
    said: tuple[str, ...]
    proposal: Proposal


def relax(answers: Answers) -> Relaxed | None:
    """Relax as few answers as lead to a way; None where no answer helps."""
    for changed, said in _list_changes(answers):
        if fitting := recommend(changed).fitting:
            return Relaxed(changed, said, fitting[0])
    return None


def refuse(answers: Answers) -> UsageError:
    """What to say of answers that no way fits: which to relax, and what each party would learn by that."""
    hint = "name fewer other parties (--passive)"
    if found := relax(answers):
        told = "; ".join(_list_told(found.proposal, answers, found.answers))
        hint = f"say {' and '.join(found.said)}: then {found.proposal.combination.name} fits, and {told}"
    return UsageError("no way fits these answers", hint=hint)


def _list_changes(answers: Answers) -> Iterator[tuple[Answers, tuple[str, ...]]]:
    """The answers with some of them relaxed, the fewest first, and the options that say so."""
    for count in range(1, len(CHANGES) + 1):
        for fields in combinations(CHANGES, count):
            yield from _relax(answers, fields, ())


def _relax(answers: Answers, fields: tuple[str, ...], said: tuple[str, ...]) -> Iterator[tuple[Answers, tuple[str, ...]]]:
    if not fields:
        yield answers, said
        return
    field, *others = fields
    for value, option in CHANGES[field]:
        before = getattr(answers, field)
        wider = LEARNERS.index(value) > LEARNERS.index(before) if value in LEARNERS else value != before
        if wider:
            yield from _relax(replace(answers, **{field: value}), tuple(others), (*said, option))


def _list_told(proposal: Proposal, before: Answers, after: Answers) -> Iterator[str]:
    """What parties would learn that the answers did not allow before; clauses."""
    for name in list_told(proposal.declared, "shared"):
        if name in after.learners - before.learners:
            yield f"{name} learns {SECRETS['shared']}"
    if before.hide_labels and not after.hide_labels:
        yield from (f"{name} learns {SECRETS['labels']}" for name in list_told(proposal.declared, "labels"))
    if after.third_party and not before.third_party:
        yield from (f"{each.to} learns {each.bound}" for each in proposal.declared if each.to == THIRD)
    if after.aim != before.aim:
        yield "each party learns how many records are shared, and nothing is trained"
    if after.same_id and not before.same_id:
        yield "the parties have to make an identifier that both tables have"
